//! The software interrupt flag ([`super::flag`]) of the CPU that runs this code.

#![allow(unsafe_code)]

/// Whether interrupts were on, to be put back by `restore_interrupts`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct InterruptState {
    enabled: bool,
}

impl InterruptState {
    /// Whether they were on.
    pub(crate) const fn were_on(self) -> bool {
        self.enabled
    }
}

#[cfg(target_os = "none")]
mod arch {
    use core::arch::asm;
    use core::sync::atomic::Ordering;

    use super::InterruptState;
    use crate::apic::eoi;
    use crate::cpu::flag::{self, Area};
    use crate::percpu;
    use crate::trap::irq;
    use crate::trap::vector;

    /// The area of the CPU that runs this code. The flag is in memory, so that it costs the
    /// same in ring 3; assembly keeps each access one instruction, and their order.
    struct Own;

    impl Area for Own {
        #[inline(always)]
        fn is_on(&self) -> bool {
            let on: u64;
            // SAFETY: 1. GS holds this CPU's area (`percpu`), and the offset is that of a word in
            //    it. 2. Only this CPU and the interrupts upon it use the word; the read is one
            //    instruction.
            unsafe {
                asm!("mov {}, gs:[{flag}]", out(reg) on, flag = const percpu::INTERRUPTS_ON_OFFSET,
                    options(nostack, preserves_flags));
            }
            on != 0
        }

        #[inline(always)]
        fn set(&self, on: bool) {
            if on {
                // SAFETY: 1. GS holds this CPU's area (`percpu`), and the offset is that of a word
                //    in it. 2. The write is one instruction, and 1 is a value that entry code
                //    knows.
                unsafe {
                    asm!("mov qword ptr gs:[{flag}], 1", flag = const percpu::INTERRUPTS_ON_OFFSET,
                        options(nostack, preserves_flags));
                }
            } else {
                // SAFETY: 1. GS holds this CPU's area (`percpu`), and the offset is that of a word
                //    in it. 2. The write is one instruction, and 0 is a value that entry code
                //    knows.
                unsafe {
                    asm!("mov qword ptr gs:[{flag}], 0", flag = const percpu::INTERRUPTS_ON_OFFSET,
                        options(nostack, preserves_flags));
                }
            }
        }

        #[inline(always)]
        fn pending(&self) -> u64 {
            let pending: u64;
            // SAFETY: 1. GS holds this CPU's area (`percpu`), and the offset is that of a word in
            //    it. 2. Only this CPU and the interrupts upon it use the word; the read is one
            //    instruction.
            unsafe {
                asm!("mov {}, gs:[{all}]", out(reg) pending, all = const percpu::PENDING_OFFSET,
                    options(nostack, preserves_flags));
            }
            pending
        }

        #[inline(always)]
        fn take_pending(&self) -> u64 {
            let mut pending: u64 = 0;
            // SAFETY: 1. GS holds this CPU's area (`percpu`), and the offset is that of a word in
            //    it. 2. The exchange is one instruction: an interrupt sets its bit before it or
            //    after it, and none is lost.
            unsafe {
                asm!("xchg {}, gs:[{all}]", inout(reg) pending, all = const percpu::PENDING_OFFSET,
                    options(nostack, preserves_flags));
            }
            pending
        }

        #[inline(always)]
        fn handle(&self, bit: u32) {
            irq::handle(percpu::current(), usize::from(vector::FIRST) + bit as usize);
        }

        #[inline(always)]
        fn end_merged(&self) {
            let cpu = percpu::current();
            if cpu.merged.load(Ordering::Relaxed) != 0 {
                eoi::end_merged(cpu);
            }
        }
    }

    /// Called by the entry code with the software flag off; turns it on again.
    #[unsafe(no_mangle)]
    extern "C" fn tare_interrupt(vector: u64) {
        flag::arrived(&Own, vector as u32 - u32::from(vector::FIRST));
    }

    /// For entry code: handles the interrupts that are pending on this CPU.
    #[unsafe(no_mangle)]
    extern "C" fn tare_handle_pending() {
        flag::handle_pending(&Own);
    }

    /// Keeps interrupt handlers from running on this CPU and says whether they
    /// might. An interrupt that arrives meanwhile is noted, and handled when they
    /// may run again.
    #[inline(always)]
    pub fn disable_interrupts() -> InterruptState {
        InterruptState {
            enabled: flag::disable(&Own),
        }
    }

    /// Whether interrupt handlers may run on this CPU.
    #[inline]
    pub(crate) fn interrupts_are_on() -> bool {
        Own.is_on()
    }

    /// Puts the flag back.
    #[inline(always)]
    pub fn restore_interrupts(state: InterruptState) {
        if state.enabled {
            enable_interrupts();
        }
    }

    /// Lets interrupt handlers run, first those of pending interrupts.
    #[inline(always)]
    pub(crate) fn enable_interrupts() {
        flag::enable(&Own);
    }

    /// Halts by `wait` until an interrupt has been handled ([`flag::halt_if`]).
    #[inline(always)]
    pub(crate) fn wait_if(wait: impl FnOnce(), may_halt: impl FnOnce() -> bool) -> bool {
        flag::halt_if(&Own, wait, may_halt)
    }

    /// Whether an interrupt handler is running on this CPU.
    #[inline]
    pub fn in_interrupt() -> bool {
        percpu::current().interrupt_depth.get() != 0
    }
}

#[cfg(not(target_os = "none"))]
mod arch {
    use super::InterruptState;

    /// Turns interrupts off and says whether they were on.
    pub(crate) fn disable_interrupts() -> InterruptState {
        InterruptState { enabled: false }
    }

    /// Puts the interrupt flag back.
    pub(crate) fn restore_interrupts(state: InterruptState) {
        let InterruptState { enabled: _ } = state;
    }
}

#[cfg(target_os = "none")]
pub use arch::*;
#[cfg(not(target_os = "none"))]
pub(crate) use arch::*;
