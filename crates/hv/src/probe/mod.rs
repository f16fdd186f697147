//! What this KVM is, found out by running code and not by names: a throw-away
//! machine with one vCPU executes a few bytes at a time in 64-bit ring 0.
//!
//! - *Hardware or emulated*: a loop of ordinary instructions, counted by KVM's
//!   statistic `insn_emulation`; where KVM has none, timed.
//! - *Which instructions work*: each with an interrupt table beneath it, so that
//!   a fault differs from an instruction that KVM cannot emulate.
//! - *Which capabilities* the descriptor offers.
//!
//! A machine's CPUID then hides what does not work (`crate::cpuid`).

mod capabilities;
mod feature;
mod guest_setup;
mod instructions;
mod probe_vm;
mod report;
#[cfg(test)]
pub(crate) mod testing;

use std::time::{Duration, Instant};

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use tare_abi::cpuid::KVM_FEATURES;
use thiserror::Error;

pub use capabilities::Capabilities;
pub use feature::Feature;
pub use instructions::Instruction;

use crate::kvm::Kvm;
use crate::memory::MemoryError;
use crate::stats::StatsError;
use crate::vcpu::{RunError, VcpuError};
use crate::vm::VmError;
use probe_vm::ProbeVm;

/// Why the probe could not find out what it wanted.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No memory for the throw-away machine.
    #[error("no memory for the probe's machine")]
    Memory(#[from] MemoryError),
    /// KVM refused the throw-away machine.
    #[error("KVM refused the probe's machine")]
    Vm(#[from] VmError),
    /// KVM refused its vCPU.
    #[error("KVM refused the probe's vCPU")]
    Vcpu(#[from] VcpuError),
    /// KVM refused a call on the vCPU.
    #[error("KVM refused to {step} of the probe's vCPU")]
    Step {
        /// What was being done.
        step: &'static str,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM's list of CPUID leaves could not be read.
    #[error("KVM does not list the CPUID leaves that it supports")]
    Cpuid(#[source] kvm_ioctls::Error),
    /// The probe's code did not fit its machine's memory.
    #[error("the probe could not write its code")]
    Code(#[from] vm_memory::GuestMemoryError),
    /// `KVM_RUN` failed.
    #[error("KVM could not run the probe")]
    Run(#[from] RunError),
    /// Statistics are there, and cannot be read.
    #[error("KVM's statistics of the probe are unusable")]
    Stats(#[source] StatsError),
    /// Even a loop of ordinary instructions does not reach its end.
    #[error("this KVM does not execute ordinary 64-bit code: {outcome}")]
    Unusable {
        /// What happened instead.
        outcome: Outcome,
    },
}

/// Paravirtual features that a guest uses by hypercalls: waking a spinner, sending IPIs,
/// yielding to a preempted CPU, naming shared pages.
pub(crate) const HYPERCALLS: u32 = 1 << 7 | 1 << 11 | 1 << 13 | 1 << 16;

/// How this KVM executes a guest's ring 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By hardware virtualisation.
    Hardware,
    /// By KVM's instruction emulator.
    Emulated,
}

/// What became of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Works,
    /// CPUID does not offer it, so it was not tried.
    NotOffered,
    /// It raised the exception of this vector.
    Fault(u8),
    /// KVM's emulator does not know it: `KVM_RUN` ends with an internal error.
    NotEmulated,
    /// It did not come to an end in time.
    Hung,
    /// The processor shut down, or KVM gave another exit.
    Lost,
}

/// An instruction and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct InstructionResult {
    /// The instruction.
    pub instruction: &'static Instruction,
    /// What became of it.
    pub outcome: Outcome,
}

/// What this KVM is. Plain data; `Display` prints it for people.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Hardware or emulated.
    pub kind: Kind,
    /// Instructions that KVM's emulator executed of [`Self::loop_instructions`];
    /// `None` where KVM has no such statistic.
    pub emulated_instructions: Option<u64>,
    /// Instructions of the loop that decided [`Self::kind`].
    pub loop_instructions: u64,
    /// Time for that loop.
    pub loop_time: Duration,
    /// Every instruction tried.
    pub instructions: Vec<InstructionResult>,
    /// Features that CPUID shows to a guest although its table does not have them: this KVM
    /// cannot hide them, so a guest must not act on CPUID alone.
    pub shown_regardless: Vec<Feature>,
    /// What the descriptor offers.
    pub capabilities: Capabilities,
    /// How long the probe took.
    pub elapsed: Duration,
    supported: Vec<kvm_cpuid_entry2>,
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
            Kind::Hardware => features,
            Kind::Emulated => features & !HYPERCALLS,
        }
    }

    /// Probes; takes a few milliseconds.
    pub fn run(kvm: &Kvm) -> Result<Self, ProbeError> {
        let begin = Instant::now();
        let supported = supported_cpuid(kvm)?;
        let (mut vm, capabilities) = ProbeVm::open(kvm, &supported)?;
        let (ordinary, visible, instructions) = vm.guarded(|vm| {
            let ordinary = vm.ordinary_code()?;
            let visible = vm.visible_cpuid()?;
            let instructions = vm.try_instructions(&visible)?;
            Ok::<_, ProbeError>((ordinary, visible, instructions))
        })?;
        Ok(Self {
            kind: ordinary.kind(),
            emulated_instructions: ordinary.emulated,
            loop_instructions: probe_vm::LOOP_INSTRUCTIONS,
            loop_time: ordinary.time,
            shown_regardless: shown_regardless(&visible, &supported),
            instructions,
            capabilities,
            elapsed: begin.elapsed(),
            supported,
        })
    }

    /// Whether a vCPU whose HLT exits are disabled halts by itself. A KVM that
    /// executes ring 0 by its emulator takes the setting and halts all the same.
    pub fn halts_natively(&self, kvm: &Kvm) -> Result<bool, ProbeError> {
        ProbeVm::without_halt_exits(kvm, &self.supported)?.halts_natively()
    }

    /// What became of the instruction called `name`.
    pub fn outcome(&self, name: &str) -> Option<Outcome> {
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
            .filter(|it| !matches!(it.outcome, Outcome::Works | Outcome::NotOffered))
    }

    /// Features that a machine's CPUID must not offer.
    pub fn hidden_features(&self) -> impl Iterator<Item = &'static Feature> {
        self.broken().flat_map(|result| result.instruction.hides)
    }

    pub(crate) fn supported_cpuid(&self) -> &[kvm_cpuid_entry2] {
        &self.supported
    }
}

fn shown_regardless(visible: &[kvm_cpuid_entry2], table: &[kvm_cpuid_entry2]) -> Vec<Feature> {
    let mut features: Vec<_> = instructions::INSTRUCTIONS
        .iter()
        .filter_map(|instruction| instruction.feature)
        .filter(|feature| feature.is_in(visible) && !feature.is_in(table))
        .collect();
    features.dedup();
    features
}

fn supported_cpuid(kvm: &Kvm) -> Result<Vec<kvm_cpuid_entry2>, ProbeError> {
    kvm.fd()
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map(|cpuid| cpuid.as_slice().to_vec())
        .map_err(ProbeError::Cpuid)
}
