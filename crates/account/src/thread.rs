//! Where one thread's time went.

use serde::{Deserialize, Serialize};

use crate::vm::Role;
use crate::{ExitCount, Histogram, Wakeups};

/// One thread within the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// Thread ID.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Time on a CPU.
    pub on_cpu: OnCpu,
    /// Time not on a CPU.
    pub off_cpu: OffCpu,
    /// Moves from one CPU to another; `None` without the kernel's account.
    pub migrations: Option<u64>,
    /// Page faults and block devices.
    #[serde(default)]
    pub resources: Resources,
    /// CPUs it may run on, ascending.
    pub allowed_cpus: Vec<u32>,
    /// The CPU it was last on.
    pub last_cpu: Option<u32>,
    /// What only a vCPU's thread has.
    pub vcpu: Option<Vcpu>,
}

/// Time on a CPU, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnCpu {
    /// All of it (schedstat).
    pub total_ns: u64,
    /// In user mode without the guest (utime - gtime), to a clock tick. On an
    /// emulating KVM the guest's ring 3 is in here.
    pub user_ns: u64,
    /// In the kernel (stime), to a clock tick. On an emulating KVM the guest's
    /// ring 0 is in here.
    pub system_ns: u64,
    /// In the guest (gtime), to a clock tick; `None` where this KVM does not
    /// account it.
    pub guest_ns: Option<u64>,
}

/// Time not on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpu {
    /// Ready, but waiting for a CPU (schedstat's run delay), ns: what the guest
    /// sees as steal.
    pub run_delay_ns: u64,
    /// Of that, in a wait that had not ended when the window did, ns; 0 where the kernel's
    /// tasks are not read.
    #[serde(default)]
    pub unfinished_delay_ns: u64,
    /// Switched out because it waited.
    pub voluntary_switches: u64,
    /// Switched out although it could have run.
    pub involuntary_switches: u64,
    /// Single waits for a CPU, from being ready to running. Empty without BPF.
    pub run_delays: Histogram,
    /// Processes that ran while it waited for their CPU, longest first.
    pub preempted_by: Vec<Preemptor>,
}

/// A process that had the CPU which a thread waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptor {
    /// Process ID; 0 is the CPU's idle task.
    pub pid: u32,
    /// Its name; `None` if it has ended.
    #[serde(default)]
    pub process: Option<String>,
    /// The virtual machine that it runs, by name.
    #[serde(default)]
    pub machine: Option<String>,
    /// How often it followed the thread on the CPU although that could have run.
    pub count: u64,
    /// Time that it ran while the thread waited, ns.
    #[serde(default)]
    pub ran_ns: u64,
}

/// What a vCPU's thread has beside a thread's account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vcpu {
    /// The vCPU's index.
    pub index: u32,
    /// Exits by kind, most frequent first.
    pub exits: Vec<ExitCount>,
    /// Halts and polling for their end.
    pub halts: Halts,
    /// Times between two writes of the TSC deadline or the APIC timer's initial
    /// count.
    pub timer_arming: Histogram,
    /// Steps of wake-ups.
    pub wakeups: Wakeups,
    /// Time on a CPU from the end of a halt to the next halt, by the interrupt that
    /// ended the halt.
    #[serde(default)]
    pub awake: Vec<Awake>,
    /// KVM's own counters within the window, by KVM's names, where they could be
    /// read.
    pub kvm: std::collections::BTreeMap<String, u64>,
}

/// Time that a vCPU was awake because of one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awake {
    /// The vector; `None` if no trace point on this host named it.
    pub vector: Option<u8>,
    /// How often.
    pub count: u64,
    /// Time on a CPU, ns.
    pub total_ns: u64,
}

/// Halts of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halts {
    /// Halts that ended within the window (`kvm_vcpu_wakeup`).
    pub count: u64,
    /// By how much that may be off, as of [`ExitCount`].
    #[serde(default)]
    pub margin: Option<u64>,
    /// Of those, ended by an event for the guest (not by a signal to the thread).
    pub valid: u64,
    /// Times from the halt to its end, polled and waited together.
    pub waits: Histogram,
    /// Halts for which KVM polled at all.
    pub polls_attempted: u64,
    /// Polls that saw the end of the halt.
    pub polls_successful: u64,
    /// By how much the numbers of polls may be off.
    #[serde(default)]
    pub polls_margin: Option<u64>,
    /// CPU time of successful polls, ns.
    pub poll_success_ns: u64,
    /// CPU time of polls after which the vCPU had to wait all the same, ns: what
    /// polling lost.
    pub poll_wasted_ns: u64,
}

/// What a thread used beside CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Page faults, minor and major; of a vCPU those that KVM resolved too.
    pub page_faults: u64,
    /// Bytes that block devices read for it; `None` where the kernel's tasks are not read.
    pub read_bytes: Option<u64>,
    /// Bytes that it made block devices write.
    pub written_bytes: Option<u64>,
}
