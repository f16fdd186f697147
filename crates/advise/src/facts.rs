//! What is known of a target and its host when advice is given.

use serde::Serialize;
use tare_policy::placement::Class;

/// What an application runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// A process of the host.
    Process,
    /// A container.
    Container,
    /// A virtual machine of Tare.
    TareVm,
    /// Another virtual machine.
    Vm,
}

impl Platform {
    /// Whether it is a virtual machine.
    pub fn is_vm(self) -> bool {
        matches!(self, Self::TareVm | Self::Vm)
    }

    /// As the lab's figures call it.
    pub(crate) fn figure_name(self) -> &'static str {
        match self {
            Self::Process => "bare",
            Self::Container => "container",
            Self::TareVm | Self::Vm => "vm",
        }
    }
}

/// CPUs of host and target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// CPUs of the host that are online.
    pub host_cpus: u64,
    /// NUMA nodes with CPUs.
    pub host_nodes: u64,
    /// CPUs that the host's scheduler leaves alone.
    pub isolated_cpus: u64,
    /// CPUs that the target may use, thousandths; the smaller of set and quota.
    pub assigned_millicpus: u64,
    /// The smallest of its quotas, thousandths of a CPU.
    pub quota_millicpus: Option<u64>,
    /// vCPUs of a machine.
    pub vcpus: u64,
}

/// How the target's threads lie on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Threads that may use fewer CPUs than are online.
    pub bound_threads: u64,
    /// All threads.
    pub threads: u64,
    /// NUMA nodes that the allowed CPUs lie on.
    pub nodes: u64,
    /// Pairs of vCPUs that are pinned to CPUs of one core.
    pub sibling_vcpus: u64,
    /// Cores that no vCPU is pinned to.
    pub free_cores: u64,
    /// Emulator and I/O threads that may run where a pinned vCPU runs.
    pub helpers_on_vcpus: u64,
    /// vCPUs on isolated CPUs.
    pub isolated_vcpus: u64,
}

impl Layout {
    /// Whether every thread is bound.
    pub fn is_pinned(&self) -> bool {
        self.threads > 0 && self.bound_threads == self.threads
    }
}

/// Halts of a machine's vCPUs within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Halting {
    /// Halts a second.
    pub halts_per_s: u64,
    /// Halts for which the host polled, thousandths.
    pub polled_permille: u64,
    /// CPU time of polls that lost, thousandths of a CPU.
    pub wasted_millicpus: u64,
}

/// What a disk of a machine did within the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// As `tare set` calls it.
    pub name: String,
    /// Whether its completions may be held back.
    pub coalesces: bool,
    /// Requests that were completed, a second.
    pub completions_per_s: u64,
    /// Interrupts for each of them, thousandths.
    pub interrupts_permille: u64,
    /// Requests in flight when one was completed, thousandths, at the mean.
    pub depth_permille: u64,
    /// Completions a second from which coalescing would begin.
    pub least_completions_per_s: u64,
    /// Requests in flight from which it would.
    pub least_depth: u64,
}

impl Disk {
    /// Whether coalescing is off and would do something.
    pub fn would_coalesce(&self) -> bool {
        !self.coalesces
            && self.completions_per_s >= self.least_completions_per_s.max(1)
            && self.depth_permille >= self.least_depth * 1000
    }
}

/// A CPU quota that bounds the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// CPUs, thousandths.
    pub millicpus: u64,
    /// Times that it was used up, within the window.
    pub throttled: u64,
    /// Its cgroup.
    pub group: String,
    /// The shell's line that takes it off; none if others share the group.
    pub off: Option<String>,
}

/// Everything that rules look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// The target as commands take it; `TARGET` without one.
    pub name: String,
    /// What it runs in; none for a workload that is only planned.
    pub platform: Option<Platform>,
    /// The known workload that it is.
    pub workload: Option<&'static str>,
    /// What it spends its time with.
    #[serde(serialize_with = "class")]
    pub class: Option<Class>,
    /// CPUs.
    pub resources: Resources,
    /// Places.
    pub layout: Layout,
    /// CPUs kept busy, thousandths.
    pub busy_millicpus: u64,
    /// Of the time that it could run, the part in which it waited for a CPU,
    /// thousandths.
    pub ready_permille: u64,
    /// Moves between CPUs, a second.
    pub migrations_per_s: u64,
    /// CPU quotas of its cgroup and of those above it, the inner ones first.
    pub quotas: Vec<Quota>,
    /// Halts, of a machine that was observed.
    pub halting: Option<Halting>,
    /// Disks of a machine of Tare, within the window.
    pub disks: Vec<Disk>,
    /// KVM emulates ring 0 here.
    pub emulated: bool,
    /// KVM can be opened here: without, a virtual machine runs in QEMU's translator.
    pub kvm_opens: bool,
    /// QEMU's translator executes the target.
    pub translated: bool,
    /// The target is a machine whose halts end by its own timers, hardly ever by a device.
    pub timer_driven: bool,
}

fn class<S: serde::Serializer>(class: &Option<Class>, to: S) -> Result<S::Ok, S::Error> {
    match class.map(class_name) {
        Some(words) => to.serialize_str(words),
        None => to.serialize_none(),
    }
}

/// A class as people say it.
pub fn class_name(class: Class) -> &'static str {
    match class {
        Class::CpuBound => "CPU-bound",
        Class::IoBound => "I/O-bound",
        Class::UltraIoBound => "ultra-I/O-bound",
    }
}
