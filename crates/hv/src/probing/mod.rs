//! What this KVM is, found out by running code and not by names: a throw-away
//! machine with one vCPU executes a few bytes at a time in 64-bit ring 0.
//!
//! - *Hardware or emulated*: a loop of ordinary instructions, counted by KVM's
//!   statistic `insn_emulation`; where KVM has none, timed.
//! - *Which instructions work*: each with an interrupt table beneath it, so that
//!   a fault differs from an instruction that KVM cannot emulate.
//! - *Which capabilities* the descriptor offers.
//!
//! The result is a [`Probe`], plain data below `vm` and `vcpu`; this module is above them.

mod guest_setup;
mod probe_vm;

use std::time::Instant;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use thiserror::Error;

use crate::kvm::Kvm;
use crate::memory::MemoryError;
use crate::probe::{Feature, Outcome, Probe, instructions};
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

    /// Whether a vCPU whose HLT exits are disabled halts by itself. A KVM that
    /// executes ring 0 by its emulator takes the setting and halts all the same.
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
