//! CPU quotas of cgroups (`cpu.max`, `cpu.cfs_quota_us`).

use serde::{Deserialize, Serialize};

/// The hierarchy that a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// The `cpu` controller in a hierarchy by itself: `cpu.cfs_quota_us`.
    V1,
    /// The unified hierarchy: `cpu.max`.
    V2,
}

/// A cgroup with a quota, and how long it stopped its threads in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// Directory of the group, as this host mounts it.
    pub directory: String,
    /// Which hierarchy.
    pub version: CgroupVersion,
    /// CPU time that it allows, in CPUs.
    pub cpus: f64,
    /// Period of the quota, us.
    pub period_us: u64,
    /// Time that its threads were stopped within the window, ns, summed over CPUs.
    /// A stop counts when it ends (`throttled_usec`, `throttled_time`).
    pub throttled_ns: u64,
    /// Periods in which it stopped its threads; a stop that goes on counts too (`nr_throttled`).
    #[serde(default)]
    pub throttled_periods: u64,
    /// vCPU threads in it, by ID.
    pub threads: Vec<u32>,
}
