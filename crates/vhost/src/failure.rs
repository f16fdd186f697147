//! Errors for people: a chain in one line, a line on standard error.

use std::error::Error;
use std::io::Write as _;

/// `error` and its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // An error that wraps another one unchanged says the same.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// One message. A closed standard error is no reason to fail.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "tare blk: {message}");
}
