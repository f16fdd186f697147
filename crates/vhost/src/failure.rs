//! Complaints: a line on standard error.

use std::io::Write as _;

/// One message. A closed standard error is no reason to fail.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "tare blk: {message}");
}
