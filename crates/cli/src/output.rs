//! What verbs write: their result to standard output, warnings to standard error.

use std::io::{self, Write as _};

use tare_control::exit::ExitCode;
use tare_host::printable::printable_lines;
use tare_launch::Terminal;

use crate::failure::{Explain, Outcome};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
struct StdoutError(#[source] io::Error);

impl Explain for StdoutError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// Writes to standard output; a reader that went away is not a failure.
pub(crate) fn print(text: &str) -> Outcome {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(StdoutError(error).into()),
        _ => Ok(ExitCode::Success),
    }
}

/// Messages go to standard error.
pub(crate) struct Stderr;

impl Terminal for Stderr {
    fn warn(&self, text: &str) {
        warn(text);
    }

    fn console(&self, log: &[u8]) {
        eprint!("{}", String::from_utf8_lossy(log));
    }
}

/// Prints a warning: one line to the user.
pub(crate) fn warn(text: &str) {
    eprintln!("tare: {}", printable_lines(text));
}
