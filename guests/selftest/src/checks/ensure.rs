//! A condition of a check.

use alloc::string::String;

/// `Err` with the reason if `condition` does not hold.
pub(super) fn ensure(condition: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(reason()) }
}
