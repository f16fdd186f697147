//! Waiting for what another process or thread does.

use std::time::{Duration, Instant};

/// Longest wait: far beyond what anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `holds`.
///
/// # Panics
/// If it does not within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}
