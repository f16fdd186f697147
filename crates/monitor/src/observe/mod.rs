//! The machine's view of itself: statistics of vCPUs, devices, host threads and memory, gathered on
//! request only.
//!
//! All files of /proc are opened before the monitor confines itself.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tare_abi::expiries::{self, Entry, Origin};
use tare_boot::GuestMemoryMmap;
use tare_control::stats::{DeviceStats, Expiry, Kvm, Stats, VcpuStats};
use tare_devices::CounterSource;
use tare_hv::{StatsFd, StatsValue};
use vm_memory::{Bytes, GuestAddress};

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

/// Where the image counts the time limits and timers of its program that ran out
/// ([`tare_abi::expiries`]).
pub struct ObservedExpiries {
    /// The guest's memory.
    pub memory: GuestMemoryMmap,
    /// The table's address in it, as the image's file says.
    pub table: GuestAddress,
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
    /// What runs out in the program, if the image counts it.
    pub expiries: Option<ObservedExpiries>,
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
            expiries: self
                .expiries
                .as_ref()
                .map_or_else(Vec::new, |it| it.stats()),
        }
    }
}

impl ObservedExpiries {
    /// A table that is not in the guest's memory counts nothing. Each origin is there once, also where
    /// the guest names it twice.
    fn stats(&self) -> Vec<Expiry> {
        let mut table = [0; expiries::TABLE_BYTES];
        if self.memory.read_slice(&mut table, self.table).is_err() {
            return Vec::new();
        }
        let mut all: Vec<Expiry> = Vec::new();
        for expiry in expiries::parse(&table).map(expiry) {
            match all.iter_mut().find(|it| it.has_same_origin(&expiry)) {
                Some(same) => same.count = same.count.saturating_add(expiry.count),
                None => all.push(expiry),
            }
        }
        all
    }
}

/// An entry of a table, which may hold anything.
fn expiry(entry: Entry) -> Expiry {
    let count = entry.count;
    let Some(origin) = entry.origin else {
        return Expiry {
            count,
            ..Expiry::default()
        };
    };
    let number = |origin: &Origin| format!("call {}", origin.call);
    Expiry {
        call: origin
            .call_name()
            .map_or_else(|| number(&origin), str::to_owned),
        thread: origin.thread,
        thread_name: String::from_utf8_lossy(origin.name_bytes()).into_owned(),
        count,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_anything_is_read_and_one_outside_of_memory_is_empty() {
        let size = 8192;
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size)]).unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        memory.write_slice(&bytes, GuestAddress(0)).unwrap();
        let read = |table: u64| {
            let memory = memory.clone();
            let table = GuestAddress(table);
            ObservedExpiries { memory, table }.stats()
        };
        // At any alignment; one that is cut off by the end of memory has no entries.
        for table in [0, 1, 4093] {
            let found = read(table);
            assert!(!found.is_empty() && found.len() <= expiries::ENTRIES);
            // Bytes that are not UTF-8 become characters of three bytes.
            let longest = 3 * expiries::NAME_BYTES;
            assert!(found.iter().all(|it| it.thread_name.len() <= longest));
        }
        // An origin that the table names twice, with another name.
        let mut twice = [0; expiries::TABLE_BYTES];
        for (entry, (count, name)) in [(u64::MAX, b'a'), (2, b'b')].into_iter().enumerate() {
            let entry = &mut twice[entry * expiries::ENTRY_BYTES..];
            entry[..8].copy_from_slice(&count.to_le_bytes());
            entry[8..16].copy_from_slice(&(1 << 32 | 36_u64).to_le_bytes());
            entry[16] = name;
        }
        memory.write_slice(&twice, GuestAddress(0)).unwrap();
        let expected = Expiry {
            call: "nanosleep".to_owned(),
            thread: 1,
            thread_name: "a".to_owned(),
            count: u64::MAX,
        };
        assert_eq!(read(0), [expected]);
        for table in [size as u64 - 1000, size as u64, u64::MAX - 7] {
            assert_eq!(read(table), []);
        }
    }
}
