//! Single calls as lines of text.
//!
//! ```text
//! 0.001234567 4711 cat openat(0xffffff9c, 0x7f..., 0x80000, 0x0) = 3 <5.120 us>
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use tare_profile::{names, table};

use super::calls;
use super::record::LogRecord;

/// Longest log, bytes; what is beyond is counted.
const MAX_BYTES: u64 = 1 << 30;
/// Results from here to -1 are errors.
const LAST_ERROR: i64 = -4095;

/// The log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the log")]
pub struct LogError(#[from] io::Error);

/// What became of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Calls written.
    pub written: u64,
    /// Calls that are not in it: beyond its bound, or faster than it was written.
    pub missing: u64,
}

/// A log that is being written.
#[derive(Debug)]
pub(super) struct CallLog {
    file: BufWriter<File>,
    start_ns: u64,
    bytes: u64,
    end: LogEnd,
}

impl CallLog {
    /// A log into `file`; times count from `start_ns` of the monotonic clock.
    pub(super) fn new(file: File, start_ns: u64) -> Self {
        Self {
            file: BufWriter::with_capacity(1 << 18, file),
            start_ns,
            bytes: 0,
            end: LogEnd::default(),
        }
    }

    /// Writes a line.
    pub(super) fn write(&mut self, record: &LogRecord) -> Result<(), LogError> {
        let text = line(record, self.start_ns);
        if self.bytes + text.len() as u64 > MAX_BYTES {
            self.end.missing += 1;
            return Ok(());
        }
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        self.end.written += 1;
        Ok(())
    }

    /// Ends the log, with a last line where calls are missing.
    pub(super) fn finish(mut self, lost: u64) -> Result<LogEnd, LogError> {
        self.end.missing += lost;
        if self.end.missing > 0 {
            writeln!(self.file, "# {} calls are missing", self.end.missing)?;
        }
        self.file.flush()?;
        Ok(self.end)
    }
}

fn line(record: &LogRecord, start_ns: u64) -> String {
    let since = record.enter_ns.saturating_sub(start_ns);
    let many = table::row(record.number).map_or(6, |row| row.arguments);
    let arguments: Vec<String> = record.arguments[..many]
        .iter()
        .map(|argument| format!("{argument:#x}"))
        .collect();
    // A task names itself: no line ends or blanks from its name.
    let shown = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let comm: String = record.comm.chars().map(shown).collect();
    format!(
        "{}.{:09} {} {comm} {}({}) = {} <{}.{:03} us>\n",
        since / 1_000_000_000,
        since % 1_000_000_000,
        record.tid,
        calls::name(record.number),
        arguments.join(", "),
        result(record.result),
        record.ns / 1000,
        record.ns % 1000,
    )
}

fn result(value: i64) -> String {
    match value {
        LAST_ERROR..0 => names::errno(value.unsigned_abs()),
        0..0x1_0000_0000 => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_task_call_result_and_length() {
        let record = LogRecord {
            enter_ns: 3_000_000_007,
            ns: 5_120,
            tid: 12,
            number: 0,
            result: -11,
            arguments: [3, 0x7f00, 16, 0, 0, 0],
            comm: "a b\n".to_owned(),
        };
        assert_eq!(
            line(&record, 1_000_000_000),
            "2.000000007 12 a_b_ read(0x3, 0x7f00, 0x10) = EAGAIN <5.120 us>\n"
        );
    }
}
