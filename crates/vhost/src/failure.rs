//! Complaints: a line on standard error.

use std::io::Write as _;

/// One message. A closed standard error is ignored.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "tare blk: {message}");
}
