//! Puts devices on a machine's buses: wiring, bus address, ioeventfds, and the views of the I/O
//! thread and the observer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use tare_abi::layout;
use tare_control::config::NetConfig;
use tare_daemon::disk::DiskRules;
use tare_daemon::rules::SharedRules;
use tare_devices::blk::{Blk, MonotonicClock};
use tare_devices::cmos::Cmos;
use tare_devices::console as virtio_console;
use tare_devices::net::{Link, Net, NetSettings};
use tare_devices::pci::{MemoryWindow, PciBus};
use tare_devices::power::Power;
use tare_devices::virtio::{VirtioDevice, VirtioPci};
use tare_devices::{CounterSource, blk};
use tare_hv::{GuestMemoryMmap, HugePages, Vm};
use tare_policy::limit::NetLimits;
use vmm_sys_util::eventfd::EventFd;

use crate::bus::{Bus, StrayAccesses};
use crate::complaint::complain;
use crate::console::Console;
use crate::console::ports::Ports;
use crate::disk::OpenDisk;
use crate::drain::{Drain, Drained};
use crate::huge_pages::HugePageRequests;
use crate::io::{IoDevice, QueueWork};
use crate::link::AnyLink;
use crate::observe::ObservedDevice;
use crate::settings::{Adjustable, AdjustableDisk, AdjustableNet, Adjusted};
use crate::signals::ProgramSignals;
use crate::start::{StartError, failed_to};
use crate::wiring::{FunctionWiring, Gsis};

/// Devices as they are added.
pub(crate) struct Devices {
    vm: Arc<Vm>,
    memory: GuestMemoryMmap,
    gsis: Gsis,
    pci: PciBus,
    io: Vec<IoDevice>,
    observed: Vec<ObservedDevice>,
    adjustable: Adjustable,
}

impl Devices {
    pub(crate) fn new(vm: &Arc<Vm>, memory: &GuestMemoryMmap) -> Self {
        let window = MemoryWindow {
            start: layout::PCI_MMIO_START,
            size: layout::PCI_MMIO_SIZE,
        };
        Self {
            vm: Arc::clone(vm),
            memory: memory.clone(),
            gsis: Gsis::default(),
            pci: PciBus::new(window),
            io: Vec::new(),
            observed: Vec::new(),
            adjustable: Adjustable::default(),
        }
    }

    /// A network device over `link`.
    pub(crate) fn add_net(&mut self, net: &NetConfig, link: AnyLink) -> Result<(), StartError> {
        let settings = NetSettings {
            mac: net.mac,
            mtu: net.mtu,
            limits: NetLimits {
                frames_per_s: net.frames_per_s,
                bytes_per_s: net.bytes_per_s,
            },
        };
        match link {
            AnyLink::Tap(link) => self.add_link(settings, link),
            AnyLink::Forward(link) => {
                let (counters, dropped) = (link.counters(), link.dropped());
                self.add_link(settings, *link)?;
                if let Some(net) = self.observed.last_mut() {
                    net.counters.push(counters);
                    net.counters
                        .extend(dropped.map(|it| it as Arc<dyn CounterSource>));
                }
                Ok(())
            }
            AnyLink::Stream(link) => {
                let dropped = link.dropped();
                self.add_link(settings, link)?;
                if let Some(net) = self.observed.last_mut() {
                    net.counters.push(dropped);
                }
                Ok(())
            }
        }
    }

    fn add_link<L: Link + AsFd + 'static>(
        &mut self,
        settings: NetSettings,
        link: L,
    ) -> Result<(), StartError> {
        let backend = link
            .as_fd()
            .try_clone_to_owned()
            .map_err(failed_to("copy the network's descriptor"))?;
        let limits = Arc::new(SharedRules::new(settings.limits));
        let shared = Arc::clone(&limits);
        let device = Net::new(settings, link);
        let queues = self.add_served("net", device, Some(backend), |device| {
            Box::new(Adjusted {
                device,
                rules: shared,
                apply: Net::set_limits,
            })
        })?;
        self.adjustable.net = queues
            .into_iter()
            .next()
            .map(|queue| AdjustableNet { limits, queue });
        Ok(())
    }

    /// A block device over `disk`.
    pub(crate) fn add_disk(&mut self, disk: OpenDisk) -> Result<(), StartError> {
        if let Some(why) = disk.engine.refused {
            complain(format_args!(
                "the disk {} is served without io_uring, one request after the other: {why}",
                disk.path
            ));
        }
        let clock = Box::new(MonotonicClock);
        let engine = blk::paced(disk.engine.engine, disk.latency, Box::new(MonotonicClock));
        let device = Blk::new(disk.settings, disk.disk, engine, clock);
        let rules = Arc::new(SharedRules::new(DiskRules::now(&device)));
        let event = device
            .event()
            .map(|event| event.try_clone_to_owned())
            .transpose()
            .map_err(failed_to("copy an eventfd"))?;
        let shared = Arc::clone(&rules);
        let queues = self.add_served("blk", device, event, |device| {
            Box::new(Adjusted {
                device,
                rules: shared,
                apply: |disk, rules| DiskRules::apply(&rules, disk),
            })
        })?;
        // At least one: the device guarantees it.
        if let Some(queue) = queues.into_iter().next() {
            self.adjustable.disks.push(AdjustableDisk {
                disk: tare_daemon::disk::AdjustableDisk {
                    path: disk.path,
                    rules,
                    growth: disk.growth,
                },
                queue,
            });
        }
        Ok(())
    }

    /// Adds a console with these ports; returns how their output is drained.
    pub(crate) fn add_ports(&mut self, ports: Ports) -> Result<Drain, StartError> {
        let event = ports.event().map_err(failed_to("copy an epoll"))?;
        let counters = ports.counters();
        let device = virtio_console::Console::new(&ports.settings(), ports);
        let drain = Drain::new()?;
        let asked = drain.clone();
        let queues = self.add_served("console", device, Some(event), |device| {
            Box::new(Drained::new(device, asked))
        })?;
        if let Some(console) = self.observed.last_mut() {
            console.counters.push(counters);
        }
        Ok(drain.through(queues))
    }

    /// Adds a virtio device at the next PCI address; returns its queues' events.
    pub(crate) fn add<D: VirtioDevice + 'static>(
        &mut self,
        kind: &'static str,
        device: D,
        backend: Option<OwnedFd>,
    ) -> Result<Vec<Arc<EventFd>>, StartError> {
        self.add_served(kind, device, backend, |device| Box::new(device))
    }

    /// As [`add`](Self::add), served by the I/O thread as `serve` says.
    fn add_served<D: VirtioDevice + 'static>(
        &mut self,
        kind: &'static str,
        device: D,
        backend: Option<OwnedFd>,
        serve: impl FnOnce(Arc<Mutex<VirtioPci<D>>>) -> Box<dyn QueueWork>,
    ) -> Result<Vec<Arc<EventFd>>, StartError> {
        let queues = device.queue_sizes().len() as u16;
        let wiring = FunctionWiring::new(&self.vm, &self.gsis, queues + 1, queues)?;
        let function = VirtioPci::new(device, self.memory.clone(), wiring.wiring());
        let counters = function.counters();
        let function = Arc::new(Mutex::new(function));
        let address = self.pci.add(Arc::clone(&function))?;
        for queue in 0..queues {
            let function = function.lock().unwrap_or_else(PoisonError::into_inner);
            let address = function.notify_address(queue).ok_or_else(unnotifiable)?;
            wiring.bind(queue, address)?;
        }
        let work = serve(function);
        self.io.push(IoDevice::new(work, wiring.queues(), backend));
        self.observe(kind, address.to_string(), counters);
        Ok(wiring.queues().to_vec())
    }

    /// The settings of the devices that can change at run time.
    pub(crate) fn adjustable(&mut self) -> Adjustable {
        std::mem::take(&mut self.adjustable)
    }

    /// The bus with everything on it, what the I/O thread serves, and what can be
    /// observed. The guest may ask for huge pages unless the user has chosen.
    pub(crate) fn finish(
        mut self,
        console: Console,
        huge_pages: HugePages,
        signals: Option<Arc<ProgramSignals>>,
    ) -> (Arc<Bus>, Vec<IoDevice>, Vec<ObservedDevice>) {
        let power = Power::new();
        let stray = Arc::<StrayAccesses>::default();
        let followed = (huge_pages == HugePages::AsHost).then(|| self.memory.clone());
        let huge_pages = Arc::new(HugePageRequests::new(followed));
        self.observe("memory", String::new(), Arc::clone(&huge_pages) as _);
        self.observe("serial", String::new(), console.counters());
        self.observe("power", String::new(), power.counters());
        self.observe("pci", String::new(), self.pci.counters());
        self.observe("bus", String::new(), Arc::clone(&stray) as _);
        let bus = Bus {
            pci: self.pci,
            console: Arc::new(console),
            cmos: Mutex::new(Cmos::new()),
            power: Mutex::new(power),
            huge_pages,
            signals,
            stray,
        };
        (Arc::new(bus), self.io, self.observed)
    }

    fn observe(&mut self, kind: &'static str, address: String, source: Arc<dyn CounterSource>) {
        self.observed.push(ObservedDevice {
            kind,
            address,
            counters: vec![source],
        });
    }
}

fn unnotifiable() -> StartError {
    failed_to("bind a queue's notification")(io::ErrorKind::NotFound.into())
}
