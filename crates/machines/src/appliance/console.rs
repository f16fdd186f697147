//! What a machine says on its console: kept in part, and watched for the line
//! that says that it serves and for lines of figures (JSON objects).

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, PipeReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ApplianceError;
use tare_load::interrupt::{Interrupt, SLICE};

/// Lines that are kept for error messages.
const KEPT: usize = 12;
/// Most lines of figures that wait to be read, and most bytes of one.
const RECORDS: usize = 100_000;
const RECORD_BYTES: usize = 64 << 10;
/// Longest part of a line that is kept, characters.
const WIDTH: usize = 300;
/// Words of which a ready server's line has one.
const READY: [&str; 2] = ["serving", "listening"];

/// A console that a separate thread reads until the machine ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Console {
    shared: Arc<(Mutex<ConsoleState>, Condvar)>,
}

#[derive(Debug, Default)]
struct ConsoleState {
    last: VecDeque<String>,
    records: VecDeque<String>,
    ready: Option<Instant>,
    over: bool,
}

impl Console {
    /// Begins to read `pipe`.
    pub(crate) fn read(pipe: PipeReader) -> std::io::Result<Self> {
        let console = Self::default();
        let writer = console.clone();
        thread::Builder::new()
            .name("console".into())
            .spawn(move || writer.follow(pipe))?;
        Ok(console)
    }

    /// When the machine said that it serves.
    pub(crate) fn ready(&self) -> Option<Instant> {
        self.lock().ready
    }

    /// Waits until the machine says that it serves, for a line, the end, or `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        self.wait_until(timeout, |said| said.ready.is_some());
    }

    /// The machine has ended: why, by what it said last.
    pub(super) fn ended(&self, status: ExitStatus) -> ApplianceError {
        self.drain();
        ApplianceError::Ended {
            code: code(status),
            said: self.last(),
        }
    }

    /// Waits for the next line of figures that is JSON, while `check` finds that the machine runs.
    pub(super) fn next_record(
        &self,
        timeout: Duration,
        interrupt: &Interrupt,
        mut check: impl FnMut() -> Result<(), ApplianceError>,
    ) -> Result<Value, ApplianceError> {
        let deadline = Instant::now() + timeout;
        loop {
            interrupt.check()?;
            while let Some(line) = self.record() {
                if let Ok(value) = serde_json::from_str(&line) {
                    return Ok(value);
                }
            }
            match check() {
                // What came last may have been read meanwhile.
                Err(_) if self.has_records() => continue,
                result => result?,
            }
            if Instant::now() > deadline {
                return Err(ApplianceError::Silent(timeout));
            }
            self.wait_until(SLICE, |said| !said.records.is_empty());
        }
    }

    fn record(&self) -> Option<String> {
        self.lock().records.pop_front()
    }

    fn has_records(&self) -> bool {
        !self.lock().records.is_empty()
    }

    /// Waits for a line, unless `is_there` says that it has come, the end, or `timeout`.
    fn wait_until(&self, timeout: Duration, is_there: impl Fn(&ConsoleState) -> bool) {
        let said = self.lock();
        if !said.over && !is_there(&said) {
            let waited = self.shared.1.wait_timeout(said, timeout);
            drop(waited);
        }
    }

    /// The last lines in one.
    pub(crate) fn last(&self) -> String {
        let said = self.lock();
        let lines: Vec<&str> = said.last.iter().map(String::as_str).collect();
        if lines.is_empty() {
            "it said nothing".to_owned()
        } else {
            lines.join(" | ")
        }
    }

    /// Waits, shortly, until all output has been read.
    pub(crate) fn drain(&self) {
        let deadline = Instant::now() + Duration::from_millis(200);
        while !self.lock().over && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn follow(&self, pipe: PipeReader) {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let now = Instant::now();
            if line.starts_with(b"{") && line.len() <= RECORD_BYTES {
                self.keep_record(&line);
                continue;
            }
            let line: String = String::from_utf8_lossy(&line)
                .trim()
                .chars()
                .take(WIDTH)
                .collect();
            let ready = READY.iter().any(|word| line.contains(word));
            let mut said = self.lock();
            if ready {
                said.ready.get_or_insert(now);
            }
            if said.last.len() == KEPT {
                said.last.pop_front();
            }
            said.last.extend((!line.is_empty()).then_some(line));
            self.shared.1.notify_all();
        }
        self.lock().over = true;
        self.shared.1.notify_all();
    }

    fn keep_record(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).trim().to_owned();
        let mut said = self.lock();
        if said.records.len() < RECORDS {
            said.records.push_back(line);
        }
        self.shared.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ConsoleState> {
        // What is inside is whole after each statement.
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its exit code, or its signal's number below zero.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_serving_line_is_seen_and_the_last_lines_are_kept() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let console = Console::read(reader).unwrap();
        assert_eq!(console.ready(), None);
        for line in 0..40 {
            writeln!(writer, "line {line}").unwrap();
        }
        writeln!(writer, "http: serving port 80\r").unwrap();
        drop(writer);
        console.drain();
        assert!(console.ready().is_some());
        assert!(console.last().ends_with("line 39 | http: serving port 80"));
        assert!(!console.last().contains("line 5 "));
    }

    #[test]
    fn lines_of_figures_are_kept_whole_and_in_order() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let console = Console::read(reader).unwrap();
        let long = format!("{{\"wake\":[{}1]}}", "1,".repeat(1000));
        writeln!(writer, "{long}\r\nbooted\n{{\"done\":true}}").unwrap();
        drop(writer);
        console.drain();
        assert_eq!(console.record(), Some(long));
        assert_eq!(console.record().as_deref(), Some("{\"done\":true}"));
        assert_eq!(console.record(), None);
        assert_eq!(console.last(), "booted");
    }

    #[test]
    fn noise_without_lines_does_not_grow() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let console = Console::read(reader).unwrap();
        writer.write_all(&[0xff; 60_000]).unwrap();
        drop(writer);
        console.drain();
        assert_eq!(console.last().chars().count(), WIDTH);
    }
}
