//! Builds a machine from its set-up: memory, image, devices, vCPUs. Nothing
//! runs yet.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tare_abi::rings::Rings;
use tare_abi::{layout, ports};
use tare_boot::{LoadOptions, Protocol};
use tare_control::config::{GuestKind, MachineConfig};
use tare_control::console_log::ConsoleLog;
use tare_control::halt::HaltPolicy;
use tare_control::{config, stats};
use tare_devices::rng::{OsEntropy, Rng};
use tare_devices::serial::{IrqLine, SerialPort};
use tare_hv::{DisableExits, GuestMemoryMmap, HugePages, KickHandle, Kvm, KvmKind, Probe, Vm};
use vm_memory::{GuestAddress, GuestMemoryBackend as _, GuestMemoryRegion as _};
use vmm_sys_util::eventfd::EventFd;

use crate::assembly::Devices;
use crate::bus::Bus;
use crate::console::log::SharedLog;
use crate::console::output::Output;
use crate::console::ports::{Ports, Unread};
use crate::console::{Console, terminal};
use crate::drain::Drain;
use crate::exit_reason::ShutdownHandle;
use crate::exits::ExitCounters;
use crate::halt::{CanPoll, Governor};
use crate::io::{ConsoleInput, IoLoop};
use crate::observe::{MemoryObserver, ObservedExpiries, ObservedVcpu, Observer};
use crate::settings::Adjustable;
use crate::signals::ProgramSignals;
use crate::start::{Setup, Sources, StartError, failed_to};
use crate::vcpu::VcpuLoop;
use crate::wiring::eventfd;

/// A machine ready to run.
pub(crate) struct AssembledMachine {
    pub(crate) vcpus: Vec<VcpuLoop>,
    pub(crate) kick_handles: Vec<KickHandle>,
    pub(crate) io: IoLoop,
    pub(crate) io_stop: EventFd,
    pub(crate) observer: Observer,
    pub(crate) adjustable: Adjustable,
    /// Takes signals to the guest's program, if it runs one.
    pub(crate) signals: Option<Arc<ProgramSignals>>,
    /// Drains the guest's output before the end, if its streams are ports.
    pub(crate) drain: Option<Drain>,
}

/// The means to end the machine and its threads.
pub(crate) struct Control {
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) started: Instant,
}

impl AssembledMachine {
    /// Builds it.
    pub(crate) fn build(
        setup: &mut Setup,
        mut sources: Sources,
        control: &Control,
    ) -> Result<Self, StartError> {
        check_cpus(&sources.kvm, setup.config.cpus)?;
        let probe = match sources.probe.take() {
            Some(probe) => probe,
            None => Probe::run(&sources.kvm)?,
        };
        let bytes = u64::from(setup.config.memory_mib) << 20;
        let memory = tare_hv::machine_memory(bytes, huge_pages(&setup.config))?;
        let entry = load(&setup.config, &mut sources, &memory)?;
        let rings = match setup.config.guest {
            GuestKind::Linux => None,
            _ => tare_boot::rings(&mut sources.image)?,
        };
        let ring = ring(
            rings.unwrap_or(Rings::EITHER),
            &setup.config.cmdline,
            probe.kind,
        );
        if (setup.config.guest, ring, probe.kind) == (GuestKind::Program, 0, KvmKind::Emulated) {
            return Err(StartError::ProgramInRing0);
        }
        let expiries = match setup.config.guest {
            GuestKind::Program => tare_boot::expiries(&mut sources.image)?,
            _ => None,
        };
        let vm = Arc::new(Vm::new(&sources.kvm, &memory)?);
        if setup.config.halt == HaltPolicy::Dedicated {
            halt_by_itself(&sources.kvm, &probe, &vm)?;
        }
        let mut devices = Devices::new(&vm, &memory);
        if let (Some(net), Some(link)) = (&setup.config.net, setup.link.take()) {
            devices.add_net(net, link)?;
        }
        for disk in setup.disks.drain(..) {
            devices.add_disk(disk)?;
        }
        if setup.config.rng {
            devices.add("rng", Rng::new(OsEntropy), None)?;
        }
        let log = setup.console_log.try_clone().and_then(ConsoleLog::new);
        let log = SharedLog::new(log.map_err(failed_to("use its console log"))?);
        let signals = program_signals(setup, &vm)?;
        let drain = ports(setup, &mut devices, &log, signals.as_ref())?;
        let input = match (&setup.config.console, &drain) {
            (config::Console::Stdio { .. }, None) if terminal::may_read() => ConsoleInput::Stdin,
            _ => ConsoleInput::None,
        };
        let console = console(setup, &vm, log)?;
        let mut adjustable = devices.adjustable();
        let (bus, io_devices, observed_devices) = devices.finish(
            console,
            huge_pages(&setup.config),
            register(setup, signals.as_ref()),
        );
        let (vcpus, observed) = vcpus(&vm, &probe, ring, &setup.config, control, &bus)?;
        let halt = governor(&vm, &probe, setup.config.halt, &observed)?;
        adjustable.halt = Some(Rc::clone(&halt));
        if let Some(first) = vcpus.first() {
            first.vcpu.enter_at(&entry)?;
        }
        let io_stop = eventfd()?;
        let io = IoLoop::new(
            io_devices,
            Arc::clone(&bus.console),
            input,
            io_stop.try_clone().map_err(failed_to("copy an eventfd"))?,
        );
        Ok(Self {
            kick_handles: vcpus.iter().map(|it| it.vcpu.kick_handle()).collect(),
            vcpus,
            io: io.map_err(failed_to("watch its descriptors"))?,
            io_stop,
            signals,
            drain,
            adjustable,
            observer: Observer {
                name: setup.config.name.clone(),
                pid: setup.pid,
                kvm: match probe.kind {
                    KvmKind::Hardware => stats::Kvm::Hardware,
                    KvmKind::Emulated => stats::Kvm::Emulated,
                },
                ring: (setup.config.guest != GuestKind::Linux).then_some(ring),
                started: control.started,
                vcpus: observed,
                devices: observed_devices,
                threads: Vec::new(),
                memory: MemoryObserver::new(host_ranges(&memory)),
                halt,
                expiries: expiries.map(|table| ObservedExpiries {
                    memory: memory.clone(),
                    table: GuestAddress(table),
                }),
            },
        })
    }
}

fn check_cpus(kvm: &Kvm, asked: u8) -> Result<(), StartError> {
    let most = kvm.max_vcpus().min(layout::MAX_CPUS.into());
    if usize::from(asked) <= most {
        Ok(())
    } else {
        Err(StartError::Cpus { asked, most })
    }
}

fn huge_pages(config: &MachineConfig) -> HugePages {
    match config.huge_pages {
        None => HugePages::AsHost,
        Some(config::HugePages::Auto) => HugePages::Wanted,
        Some(config::HugePages::Off) => HugePages::Refused,
    }
}

fn load(
    config: &MachineConfig,
    sources: &mut Sources,
    memory: &GuestMemoryMmap,
) -> Result<tare_abi::entry::EntryState, StartError> {
    let options = LoadOptions {
        cmdline: &config.cmdline,
        initramfs: sources.files.initramfs(),
        cpus: config.cpus,
        protocol: match config.guest {
            config::GuestKind::LibraryOs | config::GuestKind::Program => Protocol::Pvh,
            config::GuestKind::Linux => Protocol::Linux,
        },
    };
    Ok(tare_boot::load(memory, &mut sources.image, options)?.entry)
}

/// What takes signals to a program, or to a Linux guest's command.
fn program_signals(setup: &Setup, vm: &Vm) -> Result<Option<Arc<ProgramSignals>>, StartError> {
    Ok(match setup.config.guest {
        GuestKind::Program => {
            let line = eventfd()?;
            vm.irqfd(ports::SIGNAL_IRQ, &line)?;
            Some(Arc::new(ProgramSignals::of_program(line)))
        }
        GuestKind::Linux if setup.config.has_init => {
            Some(Arc::new(ProgramSignals::of_command(eventfd()?)))
        }
        GuestKind::Linux | GuestKind::LibraryOs => None,
    })
}

/// The register from which a program gets them.
fn register(setup: &Setup, signals: Option<&Arc<ProgramSignals>>) -> Option<Arc<ProgramSignals>> {
    let is_program = setup.config.guest == GuestKind::Program;
    signals.filter(|_| is_program).cloned()
}

/// The device of the standard streams, if they are ports, and of a Linux guest's signals. Returns how
/// the streams are drained.
fn ports(
    setup: &mut Setup,
    devices: &mut Devices,
    log: &SharedLog,
    signals: Option<&Arc<ProgramSignals>>,
) -> Result<Option<Drain>, StartError> {
    let streams = setup.streams.take();
    let has_streams = streams.is_some();
    let guest = setup.config.guest;
    let signals = signals.filter(|_| guest == GuestKind::Linux).cloned();
    if !has_streams && signals.is_none() {
        return Ok(None);
    }
    let ports = Ports::new(streams, signals, log.clone(), Unread::of(guest))
        .map_err(failed_to("make an epoll"))?;
    let drain = devices.add_ports(ports)?;
    Ok(has_streams.then_some(drain))
}

/// The serial port.
fn console(setup: &mut Setup, vm: &Vm, log: SharedLog) -> Result<Console, StartError> {
    let output = Output::new(log, setup.screen.take());
    let line = eventfd()?;
    vm.irqfd(ports::COM1_IRQ, &line)?;
    let port = SerialPort::new(IrqLine(line), output);
    Ok(Console::new(port, eventfd()?))
}

/// The ring in which an image of the library OS runs: the only one that it supports, else that of
/// its command line, else ring 3 where KVM emulates ring 0.
fn ring(supported: Rings, cmdline: &str, kvm: KvmKind) -> u8 {
    match supported {
        Rings::ZERO => 0,
        Rings::THREE => 3,
        _ => tare_abi::cmdline::ring(cmdline).unwrap_or(match kvm {
            KvmKind::Hardware => 0,
            KvmKind::Emulated => 3,
        }),
    }
}

fn vcpus(
    vm: &Vm,
    probe: &Probe,
    ring: u8,
    config: &MachineConfig,
    control: &Control,
    bus: &Arc<Bus>,
) -> Result<(Vec<VcpuLoop>, Vec<ObservedVcpu>), StartError> {
    let one = |index| {
        let vcpu = vm.vcpu(probe, index, config.cpus, ring)?;
        let exits = Arc::<ExitCounters>::default();
        let observed = ObservedVcpu {
            index,
            exits: Arc::clone(&exits),
            kvm: vcpu.stats().ok().map(Arc::new),
        };
        let runs = VcpuLoop {
            vcpu,
            dedicated_cpu: config
                .dedicated_cpus
                .get(usize::from(index))
                .map(|own| own.cpu),
            bus: Arc::clone(bus),
            exits,
            shutdown: control.shutdown.clone(),
            stop: Arc::clone(&control.stop),
        };
        Ok((runs, observed))
    };
    let pairs: Result<Vec<_>, StartError> = (0..config.cpus).map(one).collect();
    Ok(pairs?.into_iter().unzip())
}

/// Lets halts run without an exit to KVM; possible only before the first vCPU.
fn halt_by_itself(kvm: &Kvm, probe: &Probe, vm: &Vm) -> Result<(), StartError> {
    let offered = probe.capabilities.disable_exits;
    if !offered.contains(DisableExits::HLT) {
        return Err(StartError::DedicatedRefused);
    }
    if !probe.halts_natively(kvm)? {
        return Err(StartError::DedicatedIgnored);
    }
    let exits = if offered.contains(DisableExits::PAUSE) {
        DisableExits::HLT.union(DisableExits::PAUSE)
    } else {
        DisableExits::HLT
    };
    Ok(vm.disable_exits(exits)?)
}

fn governor(
    vm: &Arc<Vm>,
    probe: &Probe,
    policy: HaltPolicy,
    vcpus: &[ObservedVcpu],
) -> Result<Rc<RefCell<Governor>>, StartError> {
    let can_poll = if probe.capabilities.halt_poll {
        CanPoll::Yes
    } else {
        CanPoll::No
    };
    let stats = vcpus.iter().filter_map(|vcpu| vcpu.kvm.clone()).collect();
    let governor = Governor::new(Arc::<Vm>::clone(vm), policy, stats, can_poll)?;
    Ok(Rc::new(RefCell::new(governor)))
}

fn host_ranges(memory: &GuestMemoryMmap) -> Vec<Range<u64>> {
    let range = |region: &vm_memory::GuestRegionMmap| {
        let start = memory.get_host_address(region.start_addr()).ok()? as u64;
        Some(start..start + region.len())
    };
    memory.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_that_is_shown_is_one_that_the_image_supports() {
        use KvmKind::{Emulated, Hardware};
        for (supported, cmdline, kvm, expected) in [
            (Rings::EITHER, "", Hardware, 0),
            (Rings::EITHER, "", Emulated, 3),
            (Rings::EITHER, "ring=0", Emulated, 0),
            (Rings::EITHER, "ring=3", Hardware, 3),
            (Rings::ZERO, "", Emulated, 0),
            (Rings::THREE, "", Hardware, 3),
        ] {
            assert_eq!(
                ring(supported, cmdline, kvm),
                expected,
                "{supported:?} {cmdline}"
            );
        }
    }
}
