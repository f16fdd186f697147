//! Progress of a tailoring: on a terminal one line that is overwritten, else a line for each step.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use tare_tailor::tailoring::Step;

use crate::output::warn;

/// Approximate number of files of a small kernel.
const FILES: usize = 1100;
/// Interval between updates on a terminal.
const INTERVAL: Duration = Duration::from_millis(200);
/// Interval between lines in a file.
const SLOW: Duration = Duration::from_secs(60);
/// Width of the bar.
const BAR: usize = 20;

/// Progress on standard error.
pub(super) struct Progress {
    /// Names of the applications, for more than one.
    applications: Vec<String>,
    terminal: bool,
    files: usize,
    last: Option<Instant>,
}

impl Progress {
    /// Starts the clock of a tailoring.
    pub(super) fn new(applications: Vec<String>) -> Self {
        Self {
            applications,
            terminal: std::io::stderr().is_terminal(),
            files: 0,
            last: None,
        }
    }

    /// Shows a step.
    pub(super) fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Made(file) => self.made(file),
            Step::Proving => self.say("booting the kernel and checking the application"),
            Step::Failed(why) => self.say(&format!("not proven: {why}")),
            Step::Control => self.say("checking the application on Debian's kernel"),
            Step::Trying(count, why) => {
                self.say(&format!("trying {count} options: {why}"));
            }
            Step::Application(at) => {
                let name = self.applications.get(*at).cloned();
                self.say(&format!("application {}", name.unwrap_or_default()));
            }
        }
    }

    fn made(&mut self, file: &str) {
        self.files += 1;
        let interval = if self.terminal { INTERVAL } else { SLOW };
        if self.last.is_some_and(|last| last.elapsed() < interval) {
            return;
        }
        self.last = Some(Instant::now());
        let done = (self.files * BAR / FILES).min(BAR);
        let bar = format!("{:<BAR$}", "=".repeat(done));
        let name: String = file
            .chars()
            .filter(|c| c.is_ascii_graphic())
            .take(40)
            .collect();
        let line = format!("[{bar}] {:>4} files  {name}", self.files);
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else {
            warn(&line)
        }
    }

    /// Prints a line that stays.
    pub(super) fn say(&mut self, line: &str) {
        if self.terminal && self.files > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.files = 0;
        warn(line);
    }
}
