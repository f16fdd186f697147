//! A simulated scheduler: how long an application takes in a group of a host with any number of
//! CPUs. [`simulate`] runs threads on CPUs in simulated time, with what Linux does of it that
//! CPU-Pinning 2020 names as the cause of a container's overhead: the group's accounting at
//! each context switch, caches that are cold after a migration, and CFS bandwidth control
//! (a quota of CPU time for each 100 ms).
//!
//! What it follows (Linux 6.12, `kernel/sched/fair.c`):
//! - a thread that wakes up takes its last CPU if that is idle, else another idle one, else it
//!   queues at its last (`select_idle_sibling`);
//! - a CPU without threads pulls one from the longest queue (`sched_balance_newidle`);
//! - threads of one queue take turns of a base slice (`sysctl_sched_base_slice`);
//! - with a quota, a CPU takes up to 5 ms at a time from the group's pool, stops when the pool is
//!   empty until the next period, and gives back what it has above 1 ms when it becomes idle
//!   (`assign_cfs_rq_runtime`, `throttle_cfs_rq`, `return_cfs_rq_runtime`).
//!
//! What it leaves out: other load, priorities, preemption at a wake-up, levels of caches and
//! sockets (all migrations cost the same), and the tick (a CPU stops exactly when its time is
//! used up). Pure: the same seed gives the same outcome.

#![forbid(unsafe_code)]

mod cpu;
mod simulation;
#[cfg(test)]
mod tests;

pub use simulation::simulate;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// A quota's period, as containers have it (`cpu.cfs_period_us`).
pub const PERIOD_NS: u64 = 100 * MS;

/// What runs: threads that take turns of work from one pool, and wait after each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Application {
    /// Threads; none counts as one.
    pub threads: u32,
    /// Turns, all threads together.
    pub turns: u32,
    /// Mean CPU time of a turn, ns; exponentially distributed.
    pub turn_ns: f64,
    /// Mean time that a thread waits after its turn, ns; exponentially distributed.
    pub wait_ns: f64,
}

/// Where it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// CPUs that its threads may use; none counts as one.
    pub cpus: u32,
    /// CPUs of bandwidth: as many times 100 ms for each 100 ms. `None` for no quota.
    pub quota_cpus: Option<u32>,
    /// CPU time that a context switch adds, ns.
    pub switch_ns: f64,
    /// CPU time that a migration adds, ns.
    pub migration_ns: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// From the start to the end of the last turn, ns.
    pub time_ns: u64,
    /// CPU time, with what switches and migrations added, ns.
    pub on_cpu_ns: u64,
    /// Times that a CPU began with another thread than its last.
    pub switches: u64,
    /// Times that a thread began on another CPU than its last.
    pub migrations: u64,
    /// For how long the quota kept CPUs from work that they had, over all CPUs, ns.
    pub throttled_ns: u64,
}
