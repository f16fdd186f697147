//! Messages of programs that go on.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line to standard error. That it is closed, full or busy does not end the program, as it
/// does with `eprintln!`, which panics.
pub fn complain(program: &str, message: impl Display) {
    let _ = writeln!(std::io::stderr(), "{program}: {message}");
}
