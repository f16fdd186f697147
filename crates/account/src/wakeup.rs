//! A halted vCPU's way back into its guest, step by step.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// Steps of the wake-ups of one vCPU by an IPI, each a histogram. A step that no
/// trace point on this host delimits stays empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakeups {
    /// In order of time.
    pub steps: Vec<(Step, Histogram)>,
}

impl Wakeups {
    /// The histogram of a step.
    pub fn step(&self, step: Step) -> Option<&Histogram> {
        self.steps
            .iter()
            .find(|(which, _)| *which == step)
            .map(|(_, histogram)| histogram)
    }
}

/// One step of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// On the sender: from the write of the ICR (`kvm_apic_ipi`) to the target's
    /// local APIC having it (`kvm_apic_accept_irq`).
    Send,
    /// On the sender: from there to waking the target's thread (`sched_waking`).
    Kick,
    /// From there to the thread being on a CPU (`sched_switch`).
    Schedule,
    /// From there to KVM having left its wait (`kvm_vcpu_wakeup`).
    Return,
    /// From there to entering the guest (`kvm_entry`).
    Entry,
    /// From there (else from [`Step::Return`]) to the handler's end of interrupt
    /// (`kvm_eoi`, `kvm_pv_eoi`).
    Handler,
    /// All of it: from the write of the ICR to the last step that was seen.
    Total,
}
