//! Messages on standard error. That it is closed, full or a terminal that has gone ends no program,
//! as it does with `eprintln!`, which panics.

use std::fmt::Display;
use std::io::Write as _;

/// Writes text as it is, at once.
pub fn text(text: impl Display) {
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes one line.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}
