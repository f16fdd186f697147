//! CPU sets of cgroups (`cpuset.cpus`).

use serde::{Deserialize, Serialize};

use crate::CgroupVersion;

/// A cgroup that leaves its threads fewer CPUs than the host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpuset {
    /// Directory of the group, as this host mounts it.
    pub directory: String,
    /// Which hierarchy.
    pub version: CgroupVersion,
    /// CPUs that it allows.
    pub cpus: Vec<u32>,
    /// vCPU threads in it, by ID.
    pub threads: Vec<u32>,
}
