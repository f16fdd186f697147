//! The ring that runs: going on in it, and what differs between the two where interrupts
//! come in.

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{gate, service};

/// A privilege level of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// The image executes privileged instructions itself.
    Zero,
    /// The image executes none: gates do.
    Three,
}

impl Ring {
    /// Its number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Zero => 0,
            Self::Three => 3,
        }
    }
}

static IS_USER: AtomicBool = AtomicBool::new(false);

/// The ring that the image runs in. Exceptions are reported in ring 0.
pub fn current() -> Ring {
    if is_user() { Ring::Three } else { Ring::Zero }
}

/// Whether the image runs in ring 3.
#[inline(always)]
pub(crate) fn is_user() -> bool {
    IS_USER.load(Ordering::Relaxed)
}

/// Continues in `ring` on the same stack, with hardware interrupts off. Each CPU
/// calls it once, after its descriptor tables are loaded.
#[inline(always)]
pub(crate) fn enter(ring: Ring) {
    if ring == Ring::Zero {
        return;
    }
    IS_USER.store(true, Ordering::Relaxed);
    // SAFETY: the selectors are those of the loaded GDT; the frame continues at
    // the next instruction on the same stack, which ring 3 may use like all
    // memory but ring 0's.
    unsafe {
        asm!(
            "mov {scratch:e}, {data}",
            "mov ds, {scratch:e}",
            "mov es, {scratch:e}",
            "mov {scratch}, rsp",
            "push {data}",
            "push {scratch}",
            "push 2",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "iretq",
            "2:",
            scratch = out(reg) _,
            data = const gate::USER_DATA,
            code = const gate::USER_CODE,
        );
    }
}

/// Lets hardware interrupts in on this CPU, for good: from here on the software
/// flag decides. The 8259s must be masked.
pub(crate) fn open_interrupts() {
    if is_user() {
        service::call(service::OPEN, [0; 3]);
    } else {
        // SAFETY: the IDT is loaded; handlers run only while the flag is set.
        unsafe { asm!("sti") };
    }
}

/// Sleeps until an interrupt is pending; returns at once if one is. The software
/// flag is off: the interrupt is noted and not handled yet.
#[inline]
pub(crate) fn wait_for_interrupt() {
    if is_user() {
        // SAFETY: the halt gate changes no register.
        unsafe { asm!("int3") };
        return;
    }
    // SAFETY: hardware takes interrupts only after the instruction that follows
    // `sti`, so none is lost between the look at the pending ones and the halt.
    unsafe {
        asm!(
            "cli",
            "cmp qword ptr gs:[{pending}], 0",
            "jne 2f",
            "sti",
            "hlt",
            "2:",
            "sti",
            pending = const crate::percpu::PENDING_OFFSET,
        );
    }
}
