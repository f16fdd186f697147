//! The machine's view of itself: statistics of vCPUs, devices, host threads and memory, gathered on
//! request only.
//!
//! All files of /proc are opened before the monitor confines itself.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tare_control::stats::{DeviceStats, Kvm, Stats, VcpuStats};
use tare_devices::CounterSource;
use tare_hv::{StatsFd, StatsValue};

use crate::exits::ExitCounters;
use crate::halt::Governor;
pub use tare_daemon::observe::{MemoryObserver, ThreadObserver};

/// A vCPU's sources.
pub struct ObservedVcpu {
    /// Index.
    pub index: u8,
    /// Exits to the monitor.
    pub exits: Arc<ExitCounters>,
    /// KVM's own, where the kernel has them.
    pub kvm: Option<Arc<StatsFd>>,
}

/// A device's sources.
pub struct ObservedDevice {
    /// `net`, `rng`, `serial`, ...
    pub kind: &'static str,
    /// PCI address or nothing.
    pub address: String,
    /// Its counters.
    pub counters: Vec<Arc<dyn CounterSource>>,
}

/// Everything that can be observed.
pub struct Observer {
    /// Name of the run.
    pub name: String,
    /// The monitor's process, as the host numbers it.
    pub pid: u32,
    /// What executes the guest.
    pub kvm: Kvm,
    /// The ring in which a library-OS image is to run.
    pub ring: Option<u8>,
    /// When the monitor began.
    pub started: Instant,
    /// vCPUs.
    pub vcpus: Vec<ObservedVcpu>,
    /// Devices.
    pub devices: Vec<ObservedDevice>,
    /// Host threads.
    pub threads: Vec<ThreadObserver>,
    /// Memory.
    pub memory: MemoryObserver,
    /// How halted vCPUs wait.
    pub halt: Rc<RefCell<Governor>>,
}

impl Observer {
    /// Time since the monitor began, ns.
    pub fn uptime_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Further observers of the vCPUs' threads.
    pub(crate) fn vcpu_threads(&self) -> io::Result<Vec<ThreadObserver>> {
        let threads = self.threads.iter();
        threads
            .filter(|thread| thread.name().starts_with("vcpu"))
            .map(ThreadObserver::try_clone)
            .collect()
    }

    /// All statistics as they are now.
    pub fn stats(&self) -> Stats {
        Stats {
            name: self.name.clone(),
            pid: self.pid,
            kvm: self.kvm,
            ring: self.ring,
            uptime_ns: self.uptime_ns(),
            vcpus: self.vcpus.iter().map(ObservedVcpu::stats).collect(),
            devices: self.devices.iter().map(ObservedDevice::stats).collect(),
            threads: self.threads.iter().map(ThreadObserver::stats).collect(),
            memory: self.memory.stats(),
            halt: Some(self.halt.borrow().stats()),
        }
    }
}

impl ObservedVcpu {
    fn stats(&self) -> VcpuStats {
        let mut stats = VcpuStats {
            index: self.index,
            exits: self.exits.snapshot(),
            ..VcpuStats::default()
        };
        let read = self.kvm.as_ref().and_then(|kvm| kvm.read().ok());
        for stat in read.unwrap_or_default() {
            let name = stat.name.to_owned();
            match stat.value {
                StatsValue::Scalar(value) => {
                    if !stat.only_grows {
                        stats.states.insert(name.clone());
                    }
                    stats.kvm.insert(name, value);
                }
                StatsValue::LogHistogram(counts) => drop(stats.histograms.insert(name, counts)),
                // No vCPU statistic has linear buckets so far, and the type has no field for their
                // width.
                StatsValue::LinearHistogram { .. } => {}
            }
        }
        stats
    }
}

impl ObservedDevice {
    fn stats(&self) -> DeviceStats {
        let counters = self.counters.iter().map(|source| source.snapshot());
        DeviceStats {
            kind: self.kind.to_owned(),
            address: self.address.clone(),
            counters: counters.flatten().collect(),
        }
    }
}
