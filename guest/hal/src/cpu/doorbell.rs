//! How a CPU that halts and others that leave work for it agree on who wakes it: no wake-up is
//! lost, and whoever finds the CPU running sends no interrupt.
//!
//! The CPU turns interrupts off, announces its halt, looks for work, then halts. Whoever leaves
//! work says so, then looks whether a halt is announced. One of the two sees the other, since
//! both put a full fence between their store and their load (store buffering, as in Dekker's
//! algorithm). Whoever rings takes the announcement back before it interrupts: that interrupt
//! must not be handled between announcement and halt, or the CPU halts unannounced.
//! `tests/lost_wake_ups.rs` runs this file in all interleavings.

use super::atomics::{AtomicBool, Ordering, fence};

/// The flags of one CPU.
#[derive(Debug)]
pub struct Doorbell {
    /// There is work.
    filled: AtomicBool,
    /// The CPU has announced that it halts.
    halted: AtomicBool,
}

impl Doorbell {
    /// From two flags that are false: no work, no halt.
    pub const fn new(filled: AtomicBool, halted: AtomicBool) -> Self {
        Self { filled, halted }
    }

    /// Says that there is work. Whoever fills and whoever empties hold the lock of the work.
    #[inline]
    pub fn fill(&self) {
        self.filled.store(true, Ordering::Relaxed);
    }

    /// Says that there is none; that CPU only.
    #[inline]
    pub fn empty(&self) {
        self.filled.store(false, Ordering::Relaxed);
    }

    /// Whether there is work.
    #[inline]
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// After [`fill`](Self::fill), on another CPU: whether the caller must interrupt that CPU.
    /// Of several callers one must.
    #[inline]
    #[must_use]
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        let (relaxed, announced) = (Ordering::Relaxed, self.halted.load(Ordering::Relaxed));
        // Whoever finds it taken back already writes nothing.
        announced
            && self
                .halted
                .compare_exchange(true, false, relaxed, relaxed)
                .is_ok()
    }

    /// Announces a halt, with interrupts off: work that comes from now on comes with an
    /// interrupt.
    #[inline]
    pub fn announce_halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The halt is over, or was not begun.
    #[inline]
    pub fn end_halt(&self) {
        self.halted.store(false, Ordering::Relaxed);
    }
}
