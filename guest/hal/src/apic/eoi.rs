//! Ends of interrupts. Each costs an exit; with KVM's paravirtual flag most of them are
//! saved (kernel `Documentation/virt/kvm/x86/msr.rst`, MSR_KVM_PV_EOI_EN).

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::registers::{EOI, write};
use crate::cpuid;
use crate::percpu::{self, Cpu};
use crate::ring::kvm_register;

const MSR_KVM_PV_EOI_EN: u32 = 0x4b56_4d04;

/// KVM's registers that this module writes, and the bytes that KVM writes behind
/// them (`crate::ring::serve`).
pub(crate) const SHARED_REGISTERS: [(u32, u64); 1] = [(MSR_KVM_PV_EOI_EN, 4)];

/// Whether KVM ends interrupts when it delivers them, as one that emulates ring 0
/// does.
static ENDS_BY_ITSELF: AtomicBool = AtomicBool::new(false);

pub(super) fn set_ends_by_itself(ends: bool) {
    ENDS_BY_ITSELF.store(ends, Ordering::Relaxed);
}

/// Gives KVM this CPU's flag, where it takes one.
pub(super) fn share_flag() {
    if cpuid::has_pv_eoi() {
        let flag = core::ptr::from_ref(&percpu::current().pv_eoi).addr() as u64;
        // SAFETY: 1. CPUID offers the register (checked above). 2. KVM writes four bytes there, the
        //    flag, an atomic. 3. The area lives forever at its physical address (`percpu`).
        unsafe { kvm_register::write(MSR_KVM_PV_EOI_EN, flag | 1) };
    }
}

/// Whether KVM has this CPU's flag for ends of interrupts.
pub(crate) fn pv_eoi_is_enabled() -> bool {
    // SAFETY: 1. CPUID offers the register (the left side). 2. A read has no effect.
    cpuid::has_pv_eoi() && unsafe { kvm_register::read(MSR_KVM_PV_EOI_EN) } & 1 != 0
}

/// Takes KVM's flag; whether it was set. One instruction: between a read and a write KVM may take
/// the flag back at an exit, and then waits for an end that is written (msr.rst: "using a single
/// CPU instruction").
#[inline]
fn take(flag: &AtomicU32) -> bool {
    let taken: u8;
    // SAFETY: 1. The address is that of an atomic that is borrowed here. 2. Only this CPU writes the
    //    word, and KVM while this CPU is stopped, so that no lock prefix is needed. 3. The
    //    instructions use no stack.
    unsafe {
        asm!(
            "btr dword ptr [{flag}], 0",
            "setc {taken}",
            flag = in(reg) flag.as_ptr(),
            taken = out(reg_byte) taken,
            options(nostack),
        );
    }
    taken != 0
}

/// Ends the interrupt that is being handled.
#[inline]
pub(crate) fn end_of_interrupt(cpu: &Cpu) {
    if ENDS_BY_ITSELF.load(Ordering::Relaxed) || take(&cpu.pv_eoi) {
        cpu.ends_saved.set(cpu.ends_saved.get() + 1);
    } else {
        write(EOI, 0);
        cpu.ends_written.set(cpu.ends_written.get() + 1);
    }
}

/// Ends the deliveries of vectors that had been noted already: they are handled with the first, and
/// each is in service by itself. An end is always of the highest vector in service, so one of a
/// higher class may have been ended, and delivered again, by the end of another.
#[cold]
pub(crate) fn end_merged(cpu: &Cpu) {
    let merged = cpu.merged.swap(0, Ordering::Relaxed);
    if !ENDS_BY_ITSELF.load(Ordering::Relaxed) {
        (0..merged).for_each(|_| end_of_interrupt(cpu));
    }
}
