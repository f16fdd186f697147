//! Messages of the first process.

use std::fmt::Display;
use std::io::Write as _;

/// One line on the console. The kernel panics when the first process does, so that a console that
/// cannot be written is not an error.
pub(crate) fn say(what: &impl Display) {
    let _ = std::io::stderr().write_all(format!("tare-init: {what}\n").as_bytes());
}
