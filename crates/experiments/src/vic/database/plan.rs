//! How much of the database is weighed.

use std::time::Duration;

use serde_json::{Value, json};
use tare_lab::kit::Depth;

/// The rule where a translated guest is the slow side.
pub(super) const TRANSLATED: [&str; 2] = [
    "disk0.coalesce.iops_threshold=50",
    "disk0.coalesce.longest_hold_us=20000",
];

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vic) struct Plan {
    /// Runs of each arm, even.
    pub(in crate::vic) rounds: usize,
    /// Time of each run.
    pub(in crate::vic) seconds: u64,
    /// Sessions at once.
    pub(in crate::vic) clients: u32,
    /// Times 100,000 accounts.
    pub(in crate::vic) scale: u32,
    /// Size of the disk.
    pub(in crate::vic) disk_mib: u64,
    /// Memory of the guest: too little for the accounts.
    pub(in crate::vic) memory_mib: u32,
    /// Latency of the disk where the guest is translated.
    pub(in crate::vic) latency_us: u32,
}

impl Plan {
    pub(in crate::vic) fn of(depth: Depth) -> Self {
        let (rounds, seconds) = depth.of([(2, 5), (4, 10), (10, 30)]);
        Self {
            rounds,
            seconds,
            clients: 32,
            scale: 20,
            disk_mib: 1024,
            memory_mib: 384,
            latency_us: 10_000,
        }
    }

    pub(super) const fn runs(&self) -> usize {
        self.rounds * 2
    }

    /// What all of it takes, about.
    pub(in crate::vic) fn took(&self) -> Duration {
        Duration::from_secs(30 + (self.seconds + 3) * self.runs() as u64)
    }

    pub(in crate::vic) fn describe(&self) -> Value {
        json!({
            "runs_of_each_arm": self.rounds, "seconds": self.seconds, "clients": self.clients,
            "accounts": u64::from(self.scale) * 100_000, "memory_mib": self.memory_mib,
            "latency_us_where_translated": self.latency_us, "vic_where_translated": TRANSLATED,
        })
    }
}
