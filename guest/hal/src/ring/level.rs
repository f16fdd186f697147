//! The ring that runs: going on in it, and what differs between the two where interrupts
//! come in.

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{gate, service};
use crate::memory::layout::has_programs;

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

/// Whether programs have ring 3 to themselves: the library OS is in ring 0, and its memory is not
/// theirs. Known when the image is linked for those without programs.
#[inline(always)]
pub(crate) fn isolates() -> bool {
    has_programs() && !is_user()
}

/// Continues in `ring` on the same stack, with hardware interrupts off. Each CPU
/// calls it once, after its descriptor tables are loaded.
#[inline(always)]
pub(crate) fn enter(ring: Ring) {
    if ring == Ring::Zero {
        return;
    }
    IS_USER.store(true, Ordering::Relaxed);
    // SAFETY: 1. The selectors are those of the GDT that `trap::init` has loaded. 2. The frame goes
    //    on at the next instruction with the same stack pointer, and ring 3 may use that stack: all
    //    memory is its but ring 0's. 3. The words below the stack pointer are free: the image has
    //    no red zone. 4. Flags are 2: hardware interrupts stay off until `open_interrupts`.
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
        // SAFETY: 1. In ring 0 (checked above). 2. The IDT is loaded (`trap::init`), and its entry
        //    code runs handlers only while the software flag is set. 3. The 8259s are masked
        //    (`apic::init`).
        unsafe { asm!("sti") };
    }
}

/// Sleeps until an interrupt is pending; returns at once if one is. The software
/// flag is off: the interrupt is noted and not handled yet.
#[inline]
pub(crate) fn wait_for_interrupt() {
    if is_user() {
        // SAFETY: 1. In ring 3 vector 3 is the halt gate (`trap::descriptors`). 2. The gate changes
        //    no register, and IRETQ puts the flags back.
        unsafe { asm!("int3") };
        return;
    }
    // SAFETY: 1. In ring 0 (checked above). 2. Hardware takes an interrupt only after the
    //    instruction that follows `sti`, so that none is lost between the look at what is pending
    //    and the halt. 3. GS holds this CPU's area (`percpu`). 4. The code changes no register but
    //    the flags, which assembly may.
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
