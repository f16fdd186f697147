//! The state of a processor that cannot go on, for people to read: the cause, the registers, and
//! the bytes at RIP, laid out as in a Linux oops.

use std::fmt;

use kvm_bindings::{
    KVM_INTERNAL_ERROR_DELIVERY_EV, KVM_INTERNAL_ERROR_EMULATION, KVM_INTERNAL_ERROR_SIMUL_EX,
    KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON, kvm_regs, kvm_sregs,
};
use kvm_ioctls::VcpuFd;
use vm_memory::{Bytes, GuestAddress};

use crate::memory::GuestMemoryMmap;

const BYTES_BEFORE: u64 = 16;
const BYTES_FROM: u64 = 24;
const PAGE_BYTES: u64 = 4096;

/// Why a processor cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashCause {
    /// Triple fault.
    Shutdown,
    /// `KVM_EXIT_INTERNAL_ERROR`.
    InternalError {
        /// Kind, `KVM_INTERNAL_ERROR_*`.
        suberror: u32,
        /// What KVM adds.
        data: Vec<u64>,
    },
    /// `KVM_EXIT_FAIL_ENTRY`.
    FailEntry {
        /// The hardware's reason.
        reason: u64,
    },
    /// An exit that Tare does not know or does not enable.
    Unexpected {
        /// `KVM_EXIT_*`.
        exit_reason: u32,
    },
}

/// A processor's state when it could not go on.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Why.
    pub cause: CrashCause,
    /// Which vCPU.
    pub vcpu: u8,
    /// General registers, if KVM still gives them.
    pub regs: Option<kvm_regs>,
    /// System registers, if KVM still gives them.
    pub sregs: Option<kvm_sregs>,
    /// The code around RIP, if it is mapped.
    pub code: Option<Code>,
}

/// Bytes around an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Bytes just before the instruction, as far as its page reaches back.
    pub before: Vec<u8>,
    /// Bytes from the instruction's first.
    pub from_rip: Vec<u8>,
}

impl Crash {
    pub(crate) fn collect(
        cause: CrashCause,
        vcpu: u8,
        fd: &VcpuFd,
        memory: &GuestMemoryMmap,
    ) -> Self {
        let regs = fd.get_regs().ok();
        let sregs = fd.get_sregs().ok();
        let code = regs.zip(sregs).and_then(|(regs, sregs)| {
            // CS has a base in real mode and may have one in 32-bit code.
            let rip = regs.rip.wrapping_add(sregs.cs.base);
            Code::read(rip, memory, |address| translate(fd, address))
        });
        Self {
            cause,
            vcpu,
            regs,
            sregs,
            code,
        }
    }
}

fn translate(fd: &VcpuFd, linear: u64) -> Option<u64> {
    let translation = fd.translate_gva(linear).ok()?;
    (translation.valid != 0).then_some(translation.physical_address)
}

impl Code {
    fn read(
        rip: u64,
        memory: &GuestMemoryMmap,
        translate: impl Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let read = |linear: u64, count: u64| {
            let mut bytes = vec![0; count as usize];
            memory
                .read_slice(&mut bytes, GuestAddress(translate(linear)?))
                .ok()
                .map(|()| bytes)
        };
        let in_page = rip % PAGE_BYTES;
        let before = in_page.min(BYTES_BEFORE);
        let left = PAGE_BYTES - in_page;
        let mut from_rip = read(rip, left.min(BYTES_FROM))?;
        if left < BYTES_FROM {
            from_rip.extend(read(rip.wrapping_add(left), BYTES_FROM - left).unwrap_or_default());
        }
        Some(Self {
            before: read(rip - before, before)?,
            from_rip,
        })
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vCPU {}: {}", self.vcpu, self.cause)?;
        if let Some(regs) = &self.regs {
            write_regs(f, regs)?;
        }
        if let Some(sregs) = &self.sregs {
            write_sregs(f, sregs)?;
        }
        match &self.code {
            Some(code) => write!(f, "\n  code {code}"),
            None => write!(f, "\n  code: RIP is not mapped to memory"),
        }
    }
}

fn write_regs(f: &mut fmt::Formatter<'_>, regs: &kvm_regs) -> fmt::Result {
    let rows = [
        [("rax", regs.rax), ("rbx", regs.rbx), ("rcx", regs.rcx)],
        [("rdx", regs.rdx), ("rsi", regs.rsi), ("rdi", regs.rdi)],
        [("rbp", regs.rbp), ("rsp", regs.rsp), ("r8", regs.r8)],
        [("r9", regs.r9), ("r10", regs.r10), ("r11", regs.r11)],
        [("r12", regs.r12), ("r13", regs.r13), ("r14", regs.r14)],
        [("r15", regs.r15), ("rip", regs.rip), ("rfl", regs.rflags)],
    ];
    rows.iter().try_for_each(|row| write_row(f, row))
}

fn write_sregs(f: &mut fmt::Formatter<'_>, sregs: &kvm_sregs) -> fmt::Result {
    write_row(
        f,
        &[("cr0", sregs.cr0), ("cr2", sregs.cr2), ("cr3", sregs.cr3)],
    )?;
    write_row(f, &[("cr4", sregs.cr4), ("efer", sregs.efer)])?;
    write!(
        f,
        "\n  cs {:04x} ss {:04x} ds {:04x} tr {:04x}  gdt {:x}+{:x}  idt {:x}+{:x}",
        sregs.cs.selector,
        sregs.ss.selector,
        sregs.ds.selector,
        sregs.tr.selector,
        sregs.gdt.base,
        sregs.gdt.limit,
        sregs.idt.base,
        sregs.idt.limit,
    )
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &[(&str, u64)]) -> fmt::Result {
    f.write_str("\n ")?;
    row.iter()
        .try_for_each(|(name, value)| write!(f, " {name:<4} {value:016x}"))
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.before {
            write!(f, "{byte:02x} ")?;
        }
        let (first, rest) = match self.from_rip.split_first() {
            Some((first, rest)) => (*first, rest),
            None => return Ok(()),
        };
        write!(f, "<{first:02x}>")?;
        rest.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

impl fmt::Display for CrashCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shutdown => f.write_str("the processor shut down (triple fault)"),
            Self::FailEntry { reason } => {
                write!(
                    f,
                    "the hardware refused to enter the guest, reason {reason:#x}"
                )
            }
            Self::Unexpected { exit_reason } => {
                write!(f, "KVM gave the unexpected exit {exit_reason}")
            }
            Self::InternalError { suberror, data } => write_internal(f, *suberror, data),
        }
    }
}

fn write_internal(f: &mut fmt::Formatter<'_>, suberror: u32, data: &[u64]) -> fmt::Result {
    let what = match suberror {
        KVM_INTERNAL_ERROR_EMULATION => "it cannot emulate the instruction at RIP",
        KVM_INTERNAL_ERROR_SIMUL_EX => "exceptions met while it delivered another",
        KVM_INTERNAL_ERROR_DELIVERY_EV => "an exit while it delivered an event",
        KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON => "an exit that it does not know",
        _ => "unknown kind",
    };
    write!(f, "KVM internal error {suberror}: {what}")?;
    if !data.is_empty() {
        f.write_str("; data")?;
    }
    data.iter().try_for_each(|word| write!(f, " {word:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::guest_memory;

    fn crash() -> Crash {
        Crash {
            cause: CrashCause::InternalError {
                suberror: KVM_INTERNAL_ERROR_EMULATION,
                data: vec![0xf],
            },
            vcpu: 1,
            regs: Some(kvm_regs {
                rip: 0x10_0000,
                rax: 0xdead_beef,
                ..Default::default()
            }),
            sregs: Some(kvm_sregs {
                cr2: 0x1234,
                ..Default::default()
            }),
            code: Some(Code {
                before: vec![0x90],
                from_rip: vec![0x0f, 0x0b],
            }),
        }
    }

    #[test]
    fn a_crash_reads_like_an_oops() {
        let text = crash().to_string();
        assert!(text.starts_with(
            "vCPU 1: KVM internal error 1: it cannot emulate the instruction at RIP; data 0xf\n"
        ));
        assert!(text.contains("rip  0000000000100000"), "{text}");
        assert!(text.contains("cr2  0000000000001234"), "{text}");
        assert!(text.ends_with("code 90 <0f> 0b"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn code_that_is_not_mapped_is_said_so() {
        let crash = Crash {
            code: None,
            ..crash()
        };
        assert!(crash.to_string().contains("not mapped"));
    }

    #[test]
    fn code_is_read_across_pages_that_lie_apart() {
        let memory = guest_memory(0x10000).unwrap();
        memory.write_slice(&[1, 2], GuestAddress(0x5ffe)).unwrap();
        memory.write_slice(&[3, 4], GuestAddress(0x9000)).unwrap();
        let pages = |linear: u64| match linear & !0xfff {
            0x1000 => Some(0x5000 + linear % 0x1000),
            0x2000 => Some(0x9000 + linear % 0x1000),
            _ => None,
        };
        let code = Code::read(0x1ffe, &memory, pages).unwrap();
        assert_eq!(code.from_rip[..4], [1, 2, 3, 4]);
        assert_eq!(code.from_rip.len(), BYTES_FROM as usize);
        assert_eq!(code.before.len(), BYTES_BEFORE as usize);
        assert_eq!(Code::read(0x3000, &memory, pages), None);
        assert_eq!(
            Code::read(0x2ffe, &memory, pages).unwrap().from_rip.len(),
            2
        );
        assert_eq!(Code::read(u64::MAX, &memory, |_| None), None);
    }
}
