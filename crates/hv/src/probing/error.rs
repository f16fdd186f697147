//! Why the probe failed.

use thiserror::Error;

use crate::memory::MemoryError;
use crate::probe::ProbeOutcome;
use crate::stats::StatsError;
use crate::vcpu::{RunError, VcpuError};
use crate::vm::VmError;

/// Why the probe has no result.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No memory for the temporary machine.
    #[error("no memory for the probe's machine")]
    Memory(#[from] MemoryError),
    /// KVM refused the temporary machine.
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
        outcome: ProbeOutcome,
    },
}
