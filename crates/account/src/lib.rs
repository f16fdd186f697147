//! The account of one virtual machine over a window of time.
//!
//! Plain data: counts and times within the window, times in ns. `None` means
//! unknown on this host; the reason is in
//! [`Account::unavailable`]. Dividing by the window gives rates, by a count of
//! transactions the figures of one ([`Account::per`]).

#![forbid(unsafe_code)]

mod cpuset;
mod exit;
mod expiry;
mod histogram;
mod interrupt;
mod kind;
mod monitor;
mod quota;
mod role;
mod thread;
mod unavailable;
mod vm;
mod wakeup;

use serde::{Deserialize, Serialize};

pub use cpuset::Cpuset;
pub use exit::{Cost, CostBasis, ExitCount};
pub use expiry::Expiry;
pub use histogram::{Bucket, Histogram};
pub use interrupt::{
    Injector, InterruptCount, IpiCount, IpiMode, IpiTarget, IrqLine, LineCount, PicCount,
};
pub use kind::{Access, Device, ExitKind, Isa, USER_SIGNAL};
pub use quota::{CgroupVersion, Quota};
pub use thread::{Awake, Halts, OffCpu, OnCpu, Preemptor, Resources, ThreadAccount, Vcpu};
pub use unavailable::{Source, Unavailable};
pub use vm::{Monitor, Role, Vm};
pub use wakeup::{Step, Wakeups};

/// Everything known about one VM in a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// What was observed.
    pub vm: Vm,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Share of the window in which events were counted, 1.0 being all of it. Less in
    /// a storm: counts are those of slices of time then, each by the time that it stands for, and
    /// so are estimates. 0 without BPF.
    #[serde(default = "whole")]
    pub counted_share: f64,
    /// The VM ended within the window: the account stops there.
    pub ended: bool,
    /// CPUs of this host that are online.
    pub host_cpus: u32,
    /// KVM runs the guest's ring 0 by its instruction emulator (no VT-x, no SVM).
    pub emulated: bool,
    /// Each thread that lived in the window, by thread ID.
    pub threads: Vec<ThreadAccount>,
    /// Interrupt lines that were raised (`kvm_set_irq`), by GSI.
    pub lines: Vec<LineCount>,
    /// Lines as the 8259s saw them.
    #[serde(default)]
    pub pic: Vec<PicCount>,
    /// Interrupts that a local APIC accepted, by vCPU, vector and injector.
    pub interrupts: Vec<InterruptCount>,
    /// Interrupts between vCPUs as their senders asked for them.
    pub ipis: Vec<IpiCount>,
    /// CPU quotas of the cgroups that its threads are in.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// CPU sets of the cgroups that its vCPUs are in, an outer one before those in it.
    #[serde(default)]
    pub cpusets: Vec<Cpuset>,
    /// Its tap devices together; `None` if it has none that this network namespace shows.
    #[serde(default)]
    pub network: Option<Network>,
    /// Time limits and timers of the guest's program that ran out; empty where the guest does not
    /// count them (only Tare's image for programs does).
    #[serde(default)]
    pub expiries: Vec<Expiry>,
    /// Kinds that were counted together because the guest made too many.
    pub overflowed: u64,
    /// Sources that could not be used.
    pub unavailable: Vec<Unavailable>,
    /// What the observation itself cost.
    pub observer: ObserverCost,
}

/// Accounts recorded before there was a choice counted all the time.
fn whole() -> f64 {
    1.0
}

impl Account {
    /// Whether events were counted at all; without, rates of exits, halts and
    /// interrupts are unknown, not zero.
    pub fn counts_events(&self) -> bool {
        self.counted_share > 0.0
    }

    /// Exits of all vCPUs, by kind, most frequent first.
    pub fn exits(&self) -> Vec<ExitCount> {
        let all = self.vcpus().flat_map(|(_, vcpu)| &vcpu.exits);
        ExitCount::merged(all)
    }

    /// Threads that run a vCPU, with what only those have.
    pub fn vcpus(&self) -> impl Iterator<Item = (&ThreadAccount, &Vcpu)> {
        self.threads
            .iter()
            .filter_map(|thread| Some((thread, thread.vcpu.as_ref()?)))
    }

    /// On-CPU time of all threads, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.on_cpu.total_ns)
            .sum()
    }

    /// `count` in each second of the window.
    pub fn per_second(&self, count: u64) -> f64 {
        self.per(count, self.window_ns) * 1e9
    }

    /// `count` for each of `transactions`; 0 where there was none.
    pub fn per(&self, count: u64, transactions: u64) -> f64 {
        if transactions == 0 {
            return 0.0;
        }
        count as f64 / transactions as f64
    }

    /// `ns` as a share of one CPU over the window, 1.0 being all of it.
    pub fn share(&self, ns: u64) -> f64 {
        self.per(ns, self.window_ns)
    }
}

/// What a machine's tap devices carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes to the guest.
    pub to_guest_bytes: u64,
    /// Bytes from it.
    pub from_guest_bytes: u64,
}

/// What the observation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverCost {
    /// CPU time of the observing thread within the window, ns.
    pub user_space_ns: u64,
    /// Run time of the BPF programs within the window, ns, as the kernel
    /// measures it.
    pub bpf_ns: Option<u64>,
    /// Runs of BPF programs.
    pub bpf_runs: Option<u64>,
}

impl ObserverCost {
    /// Together, ns, as far as known.
    pub fn total_ns(&self) -> u64 {
        self.user_space_ns + self.bpf_ns.unwrap_or(0)
    }
}
