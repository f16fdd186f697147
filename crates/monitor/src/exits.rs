//! Counts a vCPU's returns to the monitor by kind. Written by the vCPU's
//! thread alone, read by any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tare_hv::Exit;

/// Kinds of exits that a machine survives or ends with, as [`Exit::name`] says.
const NAMES: [&str; 12] = [
    "pio_in",
    "pio_out",
    "mmio_read",
    "mmio_write",
    "hlt",
    "emulator_gap",
    "interrupted",
    "system_event",
    "shutdown",
    "internal_error",
    "fail_entry",
    "unexpected",
];

/// Exits of one vCPU by kind.
#[derive(Debug, Default)]
pub struct ExitCounters([AtomicU64; NAMES.len()]);

impl ExitCounters {
    /// Counts `exit`.
    pub fn count(&self, exit: &Exit<'_>) {
        let name = exit.name();
        if let Some(counter) = NAMES.iter().zip(&self.0).find(|(known, _)| **known == name) {
            // One writer: no read-modify-write needed.
            let value = counter.1.load(Ordering::Relaxed);
            counter.1.store(value + 1, Ordering::Relaxed);
        }
    }

    /// All kinds, also those that never happened.
    pub fn snapshot(&self) -> BTreeMap<String, u64> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pairs = NAMES.iter().zip(&self.0);
        pairs
            .map(|(name, counter)| ((*name).to_owned(), value(counter)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_exit_is_counted_under_its_name() {
        let counters = ExitCounters::default();
        let exits = [
            Exit::PioOut {
                port: 0,
                width: 1,
                data: &[],
            },
            Exit::PioIn {
                port: 0,
                width: 1,
                data: &mut [],
            },
            Exit::MmioRead {
                address: 0,
                data: &mut [],
            },
            Exit::MmioWrite {
                address: 0,
                data: &[],
            },
            Exit::Hlt,
            Exit::Emulated,
            Exit::Interrupted,
            Exit::SystemEvent(tare_hv::SystemEvent::Reset),
        ];
        for exit in &exits {
            counters.count(exit);
            assert_eq!(counters.snapshot()[exit.name()], 1, "{}", exit.name());
        }
        assert_eq!(counters.snapshot().values().sum::<u64>(), 8);
    }
}
