//! The software interrupt flag of the CPU that runs this code.

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

    use super::InterruptState;
    use crate::percpu;
    use crate::trap::irq;

    /// Keeps interrupt handlers from running on this CPU and says whether they
    /// might. An interrupt that arrives meanwhile is noted, and handled when they
    /// may run again: the flag is in memory, so that it costs the same in ring 3.
    #[inline(always)]
    pub fn disable_interrupts() -> InterruptState {
        let on: u64;
        // SAFETY: this CPU's own flag. A handler between the two instructions
        // leaves the flag as it was.
        unsafe {
            asm!(
                "mov {on}, gs:[{flag}]",
                "mov qword ptr gs:[{flag}], 0",
                on = out(reg) on,
                flag = const percpu::INTERRUPTS_ON_OFFSET,
                options(nostack, preserves_flags),
            );
        }
        InterruptState { enabled: on != 0 }
    }

    /// Whether interrupt handlers may run on this CPU.
    #[inline]
    pub(crate) fn interrupts_are_on() -> bool {
        percpu::current()
            .interrupts_on
            .load(core::sync::atomic::Ordering::Relaxed)
            != 0
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
        let pending: u64;
        // SAFETY: this CPU's own flag and pending interrupts. One that arrives
        // after the first instruction is handled at once.
        unsafe {
            asm!(
                "mov qword ptr gs:[{flag}], 1",
                "mov {pending}, gs:[{all}]",
                pending = out(reg) pending,
                flag = const percpu::INTERRUPTS_ON_OFFSET,
                all = const percpu::PENDING_OFFSET,
                options(nostack, preserves_flags),
            );
        }
        if pending != 0 {
            irq::handle_pending();
        }
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
