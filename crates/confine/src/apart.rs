//! A thread for what is confined: filters and rules are for good.

use std::panic::resume_unwind;
use std::thread;

use super::ConfineError;

/// Does `act` in a thread, which confines itself first and ends then.
pub(super) fn apart<T: Send>(
    act: impl FnOnce() -> Result<T, ConfineError> + Send,
) -> Result<T, ConfineError> {
    thread::scope(|scope| {
        scope
            .spawn(act)
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    })
}
