//! One CPU, and the group's bandwidth.

use std::collections::VecDeque;

use super::{MS, PERIOD_NS};

/// What a CPU takes from the pool at a time (`sysctl_sched_cfs_bandwidth_slice`).
const BANDWIDTH_SLICE_NS: u64 = 5 * MS;
/// What an idle CPU keeps (`min_cfs_rq_runtime`).
const KEPT_NS: u64 = MS;

/// A CPU's part of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    /// Thread that runs, and since when, ns.
    pub(crate) running: Option<(usize, u64)>,
    /// Threads that could run.
    pub(crate) queue: VecDeque<usize>,
    /// Thread that ran last.
    pub(crate) last: Option<usize>,
    /// Since when the quota keeps it from its queue, ns.
    pub(crate) throttled_since: Option<u64>,
    /// Bandwidth that it has taken and not used, ns.
    bandwidth_ns: u64,
}

impl Cpu {
    /// Whether a thread that wakes up may begin here at once. A CPU that is throttled runs
    /// nothing, and Linux takes it for idle too.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }
}

/// The group's bandwidth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bandwidth {
    /// For each period, ns; `None` without a quota.
    quota_ns: Option<u64>,
    /// What no CPU has taken yet, ns.
    pool_ns: u64,
}

impl Bandwidth {
    pub(crate) fn new(quota_cpus: Option<u32>) -> Self {
        let quota_ns = quota_cpus.map(|cpus| u64::from(cpus.max(1)) * PERIOD_NS);
        Self {
            quota_ns,
            pool_ns: quota_ns.unwrap_or(0),
        }
    }

    /// Whether there is a quota.
    pub(crate) fn is_limited(&self) -> bool {
        self.quota_ns.is_some()
    }

    /// Begins a period: what was left of the last one is lost.
    pub(crate) fn refill(&mut self) {
        self.pool_ns = self.quota_ns.unwrap_or(0);
    }

    /// Whether a CPU that waits could go on.
    pub(crate) fn has_some(&self) -> bool {
        self.pool_ns > 0
    }

    /// For how long a CPU may run now, ns; nothing while there is none to take.
    pub(crate) fn take(&mut self, cpu: &mut Cpu) -> Option<u64> {
        if !self.is_limited() {
            return Some(u64::MAX);
        }
        if cpu.bandwidth_ns == 0 {
            let taken = self.pool_ns.min(BANDWIDTH_SLICE_NS);
            self.pool_ns -= taken;
            cpu.bandwidth_ns = taken;
        }
        Some(cpu.bandwidth_ns).filter(|left| *left > 0)
    }

    /// A CPU ran for so long, at most what it had.
    pub(crate) fn used(&self, cpu: &mut Cpu, ns: u64) {
        if self.is_limited() {
            cpu.bandwidth_ns -= ns;
        }
    }

    /// A CPU has become idle. Whether it gave something back.
    pub(crate) fn give_back(&mut self, cpu: &mut Cpu) -> bool {
        let slack = cpu.bandwidth_ns.saturating_sub(KEPT_NS);
        self.pool_ns += slack;
        cpu.bandwidth_ns -= slack;
        slack > 0
    }
}
