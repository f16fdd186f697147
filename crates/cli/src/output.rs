//! Output of verbs: the result to standard output, warnings to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use tare_control::exit::ExitCode;
use tare_host::printable::{ConsoleFilter, printable_lines};
use tare_host::stderr;
use tare_launch::Terminal;

use crate::failure::{CommandResult, Explain, Failure};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
struct StdoutError(#[source] io::Error);

impl Explain for StdoutError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// Whether standard output has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Open,
    Closed,
}

/// Writes to standard output; a closed reader is not a failure.
pub(crate) fn print(text: &str) -> CommandResult {
    print_while_read(text).map(|_| ExitCode::Success)
}

/// The same for what goes on until its reader closes.
pub(crate) fn print_while_read(text: &str) -> Result<Reader, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(Reader::Open),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Closed),
        Err(error) => Err(StdoutError(error).into()),
    }
}

/// Messages go to standard error.
pub(crate) struct Stderr;

impl Terminal for Stderr {
    fn warn(&self, text: &str) {
        warn(text);
    }

    fn console(&self, log: &[u8]) {
        stderr::text(format_args!("{}", console_text(log)));
    }
}

/// Text widths, whatever the terminal's width.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=100;
/// Width where standard output is not a terminal.
const DEFAULT_WIDTH: usize = 79;

/// The terminal's width, within those limits.
pub(crate) fn width() -> usize {
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(|| ratatui::crossterm::terminal::size().ok());
    width_of(size.flatten().map(|(columns, _)| columns))
}

/// Leaves one column free: some terminals wrap a full line.
fn width_of(columns: Option<u16>) -> usize {
    columns.map_or(DEFAULT_WIDTH, |columns| {
        let columns = usize::from(columns).saturating_sub(1);
        columns.clamp(*WIDTHS.start(), *WIDTHS.end())
    })
}

/// A guest's output without what a terminal could act on.
fn console_text(log: &[u8]) -> String {
    let mut filter = ConsoleFilter::default();
    filter.clean(log) + &filter.finish()
}

/// Prints a warning: one line to the user.
pub(crate) fn warn(text: &str) {
    stderr::line(format_args!("tare: {}", printable_lines(text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_wide_as_the_terminal_within_reason() {
        let widths = [None, Some(0), Some(20), Some(60), Some(80), Some(300)];
        assert_eq!(widths.map(width_of), [79, 40, 40, 59, 79, 100]);
    }

    #[test]
    fn the_console_of_a_machine_that_did_not_start_does_not_steer_the_terminal() {
        let log = b"boot\x1b]0;title\x07ing\r\n\x1b[2Jtare-monitor: no\x9b memory\n\xc3";
        let text = console_text(log);
        assert!(text.starts_with("booting\ntare-monitor: no"), "{text:?}");
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}
