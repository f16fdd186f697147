//! What this KVM can do, as plain data. `crate::probing` determines it; a machine's CPUID then
//! hides what does not work (`crate::cpuid`).
//!
//! Neighbours: below `vm` and `vcpu`, which read it.

mod capabilities;
pub(crate) mod feature;
pub(crate) mod instructions;
mod report;
mod saved;
#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

use kvm_bindings::kvm_cpuid_entry2;
use serde::{Deserialize, Serialize};
use tare_abi::cpuid::KVM_FEATURES;

pub use capabilities::Capabilities;
pub use feature::Feature;
pub use instructions::Instruction;

/// Paravirtual features that a guest uses by hypercalls: waking a spinner, sending IPIs,
/// yielding to a preempted CPU, naming shared pages.
pub(crate) const HYPERCALLS: u32 = 1 << 7 | 1 << 11 | 1 << 13 | 1 << 16;

/// How this KVM executes a guest's ring 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvmKind {
    /// By hardware virtualisation.
    Hardware,
    /// By KVM's instruction emulator.
    Emulated,
}

/// The result of trying an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// It worked as specified.
    Works,
    /// CPUID does not offer it, so it was not tried.
    NotOffered,
    /// It raised the exception of this vector.
    Fault(u8),
    /// KVM's emulator does not know it: `KVM_RUN` ends with an internal error.
    NotEmulated,
    /// It did not end in time.
    Hung,
    /// The processor shut down, or KVM returned another exit.
    Lost,
}

/// An instruction and its result.
#[derive(Clone, Copy, Debug)]
pub struct InstructionResult {
    /// The instruction.
    pub instruction: &'static Instruction,
    /// What became of it.
    pub outcome: ProbeOutcome,
}

/// The probe's result. Plain data; `Display` prints it for people, and serde writes it for another
/// process of the same version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "saved::SavedProbe", try_from = "saved::SavedProbe")]
pub struct Probe {
    /// Hardware or emulated.
    pub kind: KvmKind,
    /// Instructions that KVM's emulator executed of [`Self::loop_instructions`];
    /// `None` where KVM has no such statistic.
    pub emulated_instructions: Option<u64>,
    /// Instructions of the loop that decided [`Self::kind`].
    pub loop_instructions: u64,
    /// Time for that loop.
    pub loop_time: Duration,
    /// Every instruction tried.
    pub instructions: Vec<InstructionResult>,
    /// Features that CPUID shows to a guest although its table does not have them. This KVM cannot
    /// hide them, so a guest must not rely on CPUID alone.
    pub shown_regardless: Vec<Feature>,
    /// What the descriptor offers.
    pub capabilities: Capabilities,
    /// How long the probe took.
    pub elapsed: Duration,
    pub(crate) supported: Vec<kvm_cpuid_entry2>,
}

impl Probe {
    /// KVM's paravirtual features as a guest sees them, EAX of its feature leaf
    /// (Linux `Documentation/virt/kvm/x86/cpuid.rst`). No hypercalls where ring 0 is
    /// emulated: KVM's emulator only patches their instruction, for hardware to execute,
    /// which in read-only code is a page fault.
    pub fn paravirtual_features(&self) -> u32 {
        let mut leaves = self.supported.iter();
        let leaf = leaves.find(|entry| entry.function == KVM_FEATURES);
        let features = leaf.map_or(0, |entry| entry.eax);
        match self.kind {
            KvmKind::Hardware => features,
            KvmKind::Emulated => features & !HYPERCALLS,
        }
    }

    /// The result of the instruction called `name`.
    pub fn outcome(&self, name: &str) -> Option<ProbeOutcome> {
        let named = |it: &&InstructionResult| it.instruction.name == name;
        self.instructions
            .iter()
            .find(named)
            .map(|result| result.outcome)
    }

    /// Instructions that this processor offers and this KVM does not execute in ring 0.
    pub fn broken(&self) -> impl Iterator<Item = &InstructionResult> {
        self.instructions
            .iter()
            .filter(|it| !matches!(it.outcome, ProbeOutcome::Works | ProbeOutcome::NotOffered))
    }

    /// Features that a machine's CPUID must not offer.
    pub fn hidden_features(&self) -> impl Iterator<Item = &'static Feature> {
        self.broken().flat_map(|result| result.instruction.hides)
    }

    pub(crate) fn supported_cpuid(&self) -> &[kvm_cpuid_entry2] {
        &self.supported
    }
}
