//! Determines what this KVM can do by running code, not by names: a temporary machine with one vCPU
//! executes a few bytes at a time in 64-bit ring 0.
//!
//! - *Hardware or emulated*: a loop of ordinary instructions, counted by KVM's
//!   statistic `insn_emulation`; where KVM has none, timed.
//! - *Which instructions work*: each with an interrupt table beneath it, so that
//!   a fault differs from an instruction that KVM cannot emulate.
//! - *Which capabilities* the descriptor offers.
//!
//! The result is a [`Probe`], plain data below `vm` and `vcpu`; this module is above them.

mod error;
mod guest_setup;
mod probe_vm;

use std::time::Instant;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};

use crate::kvm::Kvm;
use crate::probe::{Feature, Probe, instructions};
pub use error::ProbeError;
use probe_vm::ProbeVm;

impl Probe {
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

    /// Whether a vCPU whose HLT exits are disabled halts without an exit. A KVM that emulates ring
    /// 0 accepts the setting and exits all the same.
    pub fn halts_natively(&self, kvm: &Kvm) -> Result<bool, ProbeError> {
        ProbeVm::without_halt_exits(kvm, &self.supported)?.halts_natively()
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
