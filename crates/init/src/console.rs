//! Messages of the first process.

use std::fmt::Display;

/// One line on the console.
pub(crate) fn say(what: &impl Display) {
    eprintln!("tare-init: {what}");
}
