//! The host's clocks, for tests.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the image began.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds since 1970 (UTC).
pub fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// The counter's frequency, Hz: on the host it counts nanoseconds.
pub fn ticks_per_s() -> u64 {
    1_000_000_000
}

/// The counter itself.
pub fn ticks() -> u64 {
    now_ns()
}
