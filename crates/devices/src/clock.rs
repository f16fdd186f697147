//! What time it is, for deadlines of held completions and for limits.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that never go back.
pub trait Clock: Send {
    /// Now.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC`, the clock of the I/O loop's timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        // Positive: this clock begins at boot.
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// A clock that a test moves.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct TestClock(pub(crate) std::sync::Arc<std::sync::atomic::AtomicU64>);

#[cfg(test)]
impl Clock for TestClock {
    fn now_ns(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
