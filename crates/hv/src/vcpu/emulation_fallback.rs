//! Instructions that KVM's emulator lacks and Linux needs: the monitor executes them.
//!
//! - INT3: while Linux changes its own code (static branches, static calls) the places
//!   that change hold an INT3 for a moment, and an interrupt that comes meanwhile runs
//!   into them, also with one CPU.
//! - FWAIT: each task that used the x87 unit waits for it when it ends.
//!
//! Limits: the lazy x87 unit (CR0.TS), which Linux does not use, raises no exception.
//! Reference: `Documentation/virt/kvm/api.rst`, `KVM_SET_VCPU_EVENTS`; Linux
//! `arch/x86/kernel/alternative.c`, `text_poke_bp_batch`; `fpu/core.c`, `fpu__drop`.

use kvm_bindings::{
    KVM_INTERNAL_ERROR_EMULATION, KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES,
};
use kvm_ioctls::{Error, VcpuFd};

use crate::crash::{Crash, CrashCause};
use crate::probe::{Probe, ProbeOutcome};

/// x87 status: an exception waits that is not masked.
const EXCEPTION_SUMMARY: u16 = 1 << 7;

/// An instruction of one byte that the monitor can execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    Int3,
    Fwait,
}

impl Instruction {
    const ALL: [Self; 2] = [Self::Int3, Self::Fwait];

    /// Its name in the probe.
    const fn name(self) -> &'static str {
        match self {
            Self::Int3 => "int3",
            Self::Fwait => "fwait",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Int3 => 0xcc,
            Self::Fwait => 0x9b,
        }
    }
}

/// An exception, by its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exception {
    Breakpoint = 3,
    X87 = 16,
}

/// The instructions that the monitor executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EmulationFallback(Vec<Instruction>);

impl EmulationFallback {
    pub(super) fn of(probe: &Probe) -> Self {
        let lacks = |it: &Instruction| probe.outcome(it.name()) == Some(ProbeOutcome::NotEmulated);
        Self(Instruction::ALL.into_iter().filter(lacks).collect())
    }

    fn instruction_at(&self, crash: &Crash) -> Option<Instruction> {
        let code = fetched(&crash.cause)?;
        self.0.iter().copied().find(|it| it.code() == code)
    }

    /// Executes the instruction at which the vCPU stopped, if it is one of these; `false` leaves
    /// the vCPU unchanged.
    pub(super) fn emulate(&self, vcpu: &VcpuFd, crash: &Crash) -> bool {
        match self.instruction_at(crash) {
            None => false,
            // A trap: the handler's frame points behind the instruction.
            Some(Instruction::Int3) => {
                step_over(vcpu, crash).is_ok() && raise(vcpu, Exception::Breakpoint).is_ok()
            }
            Some(Instruction::Fwait) => fwait(vcpu, crash).is_ok(),
        }
    }
}

fn fwait(vcpu: &VcpuFd, crash: &Crash) -> Result<(), Error> {
    match vcpu.get_fpu()?.fsw & EXCEPTION_SUMMARY {
        0 => step_over(vcpu, crash),
        _ => raise(vcpu, Exception::X87),
    }
}

fn step_over(vcpu: &VcpuFd, crash: &Crash) -> Result<(), Error> {
    let mut regs = match crash.regs {
        Some(regs) => regs,
        None => vcpu.get_regs()?,
    };
    regs.rip = regs.rip.wrapping_add(1);
    vcpu.set_regs(&regs)
}

fn raise(vcpu: &VcpuFd, exception: Exception) -> Result<(), Error> {
    let mut events = vcpu.get_vcpu_events()?;
    events.exception.injected = 1;
    events.exception.nr = exception as u8;
    events.exception.has_error_code = 0;
    vcpu.set_vcpu_events(&events)
}

/// The first byte of the instruction that KVM's emulator does not know, as KVM fetched it: another
/// CPU may have replaced it since. (`kvm_run.emulation_failure`: flags; the number of bytes and the
/// bytes.)
fn fetched(cause: &CrashCause) -> Option<u8> {
    let CrashCause::InternalError {
        suberror: KVM_INTERNAL_ERROR_EMULATION,
        data,
    } = cause
    else {
        return None;
    };
    let flags = *data.first()?;
    let [size, first, ..] = data.get(1)?.to_le_bytes();
    let told = flags & u64::from(KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) != 0;
    (told && size > 0).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fetched_byte_differs_from_its_absence() {
        let cause = |suberror, data: &[u64]| CrashCause::InternalError {
            suberror,
            data: data.to_vec(),
        };
        let bytes = 0x005a_2c09_e990_cc0f;
        assert_eq!(fetched(&cause(1, &[1, bytes, 0, 0])), Some(0xcc));
        for absent in [
            cause(1, &[0, bytes]),
            cause(1, &[1, 0xcc00]),
            cause(1, &[1]),
            cause(1, &[]),
            cause(3, &[1, bytes]),
            CrashCause::Shutdown,
        ] {
            assert_eq!(fetched(&absent), None, "{absent:?}");
        }
    }
}
