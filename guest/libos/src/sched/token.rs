//! Whether a thread is parked or was notified. `tests/park_token.rs` runs this file in all
//! interleavings, with loom's atomics.

use super::atomics::{AtomicU8, Ordering};

/// Neither parked nor notified.
const RUNNING: u8 = 0;
/// Notified while it was not parked: the next park returns at once.
const NOTIFIED: u8 = 1;
/// Blocked; whoever moves it to `NOTIFIED` must make it ready.
const PARKED: u8 = 2;

#[derive(Debug)]
pub(super) struct Token(AtomicU8);

impl Token {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(RUNNING))
    }

    /// Notifies the thread; says whether it was parked, so that the caller must make it ready.
    #[inline]
    pub(super) fn notify(&self) -> bool {
        self.0.swap(NOTIFIED, Ordering::AcqRel) == PARKED
    }

    /// Before blocking: false if there was a notification, which is taken.
    #[inline]
    pub(super) fn prepare(&self) -> bool {
        let parked = self
            .0
            .compare_exchange(RUNNING, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_err() {
            // Not a store: it could pass what the thread reads next, and erase a notification of
            // what it has not seen.
            self.0.swap(RUNNING, Ordering::AcqRel);
        }
        parked.is_ok()
    }

    /// After blocking: takes the notification that ended it.
    #[inline]
    pub(super) fn finish(&self) {
        self.0.swap(RUNNING, Ordering::AcqRel);
    }
}
