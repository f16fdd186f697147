//! The CPU that runs this code: its index, its interrupt flag, `pause`.

#![allow(unsafe_code)]

/// Most CPUs that an image uses; further ones stay off.
pub const MAX: usize = tare_abi::layout::MAX_CPUS as usize;

/// Whether interrupts were on, to be put back by [`restore_interrupts`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct InterruptState {
    enabled: bool,
}

/// Tells the CPU (and the hypervisor) that this is a wait loop.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

#[cfg(not(target_os = "none"))]
mod arch {
    use super::InterruptState;

    /// Index of this CPU, from 0.
    pub fn index() -> usize {
        0
    }

    /// Turns interrupts off and says whether they were on.
    pub fn disable_interrupts() -> InterruptState {
        InterruptState { enabled: false }
    }

    /// Puts the interrupt flag back.
    pub fn restore_interrupts(state: InterruptState) {
        let InterruptState { enabled: _ } = state;
    }
}

pub use arch::*;
