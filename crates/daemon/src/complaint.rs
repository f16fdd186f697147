//! Messages of programs that go on.

use std::fmt::Display;

use tare_host::stderr;

/// Writes a line to standard error. That it is closed, full or busy does not end the program.
pub fn complain(program: &str, message: impl Display) {
    stderr::line(format_args!("{program}: {message}"));
}
