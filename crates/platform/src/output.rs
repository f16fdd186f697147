//! Reads a step's output with a time limit.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::step::{GRACE, StatusLine, Step, StepError, Validity, status_line};

/// Longest time between two checks of whether to go on.
const SLICE: Duration = Duration::from_millis(50);
/// Longer lines are truncated, bytes.
const MAX_LINE: u64 = 16 << 10;
/// Lines kept for error messages.
const LAST: usize = 8;

/// Callbacks while a step runs.
pub trait Watch {
    /// The run begins.
    fn begin(&mut self);
    /// The run is over.
    fn end(&mut self);
    /// Whether to abort.
    fn stop(&self) -> bool;
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whether the run is valid.
    pub validity: Validity,
    /// How long it ran, by the platform's own clock, us.
    pub wall_us: u64,
    /// What its log said in the end.
    pub log: Vec<String>,
}

/// Lines as they come.
#[derive(Debug)]
pub(crate) struct OutputReader {
    lines: Receiver<String>,
    last: Vec<String>,
    what: String,
}

impl OutputReader {
    /// Reads from `from`; errors name it `what`.
    pub(crate) fn on(from: impl Read + Send + 'static, what: &str) -> Self {
        let (sender, lines) = sync_channel(1024);
        thread::spawn(move || {
            let mut reader = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            lines,
            last: Vec::new(),
            what: what.to_owned(),
        }
    }

    /// The next status line within `limit`.
    pub(crate) fn next(
        &mut self,
        limit: Duration,
        watch: &dyn Watch,
    ) -> Result<StatusLine, StepError> {
        let deadline = Instant::now() + limit;
        loop {
            if watch.stop() {
                return Err(StepError::GivenUp);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(SLICE)) {
                Ok(line) => {
                    let found = status_line(&line);
                    self.keep(line);
                    if let Some(said) = found {
                        return Ok(said);
                    }
                }
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(StepError::Silent {
                        what: self.what.clone(),
                        after: limit,
                    });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    fn keep(&mut self, line: String) {
        if self.last.len() == LAST {
            self.last.remove(0);
        }
        self.last.push(line);
    }

    fn ended(&self) -> StepError {
        StepError::Ended {
            what: self.what.clone(),
            last: self.last.join(" | "),
        }
    }

    /// Follows a step to its verdict.
    pub(crate) fn follow(
        &mut self,
        step: &Step,
        watch: &mut dyn Watch,
    ) -> Result<Report, StepError> {
        let (mut wall_us, mut log) = (0, Vec::new());
        self.last.clear();
        let limit = step.limit + GRACE;
        loop {
            match self.next(limit, watch)? {
                StatusLine::Begin => watch.begin(),
                StatusLine::End(us) => {
                    watch.end();
                    wall_us = us;
                }
                StatusLine::Log(line) => log.push(line),
                StatusLine::Verdict(validity) => {
                    return Ok(Report {
                        validity,
                        wall_us,
                        log,
                    });
                }
                StatusLine::Broken(_) => return Err(self.ended()),
                StatusLine::Over => {
                    self.last.retain(|line| status_line(line).is_none());
                    let last = self.last.join(" | ");
                    return Err(StepError::NoVerdict { last });
                }
                StatusLine::Ready => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Blind;

    impl Watch for Blind {
        fn begin(&mut self) {}
        fn end(&mut self) {}
        fn stop(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_step_without_a_verdict_has_its_last_words_and_the_next_one_counts() {
        let said = "@tare ready\nno such bundle\n@tare over\n\
                    @tare begin\n@tare end 5\n@tare verdict ok 2\n@tare over\n";
        let mut output = OutputReader::on(said.as_bytes(), "the machine");
        let limit = Duration::from_secs(60);
        let step = Step {
            workload: "w".to_owned(),
            variables: BTreeMap::new(),
            limit,
        };
        let failed = output.follow(&step, &mut Blind).unwrap_err().to_string();
        assert_eq!(failed, "the step ended without a verdict: no such bundle");
        let report = output.follow(&step, &mut Blind).unwrap();
        assert_eq!((report.validity, report.wall_us), (Validity::Valid(2.0), 5));
    }
}
