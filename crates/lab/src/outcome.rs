//! Outcome of a run.

use std::fmt;
use std::path::PathBuf;

use tare_control::exit::ExitCode;

/// Results of a weighing, complete or partial. Its `Display` is what belongs on
/// the terminal: the table, what failed, and where the report is.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Directory of `summary.json`, `raw.jsonl`, `command.txt`, `report.html`.
    pub directory: PathBuf,
    /// The table of figures, below 80 columns.
    pub table: String,
    /// Samples and checks that failed, one sentence each; empty if all is well.
    pub failures: Vec<String>,
    /// How it ended.
    pub ending: Ending,
}

/// How a weighing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything planned was done.
    Complete,
    /// A machine or a step failed; what was measured until then is kept.
    Broken(ExitCode),
    /// SIGINT or SIGTERM; what was measured until then is kept.
    Interrupted(ExitCode),
}

impl Outcome {
    /// The exit code of `tare weigh`.
    pub fn exit_code(&self) -> ExitCode {
        match self.ending {
            Ending::Interrupted(code) | Ending::Broken(code) => code,
            Ending::Complete if self.failures.is_empty() => ExitCode::Success,
            Ending::Complete => ExitCode::WeighFailed,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        match self.ending {
            Ending::Complete => {}
            Ending::Broken(_) => writeln!(f, "broken off; partial results are kept")?,
            Ending::Interrupted(_) => writeln!(f, "interrupted; partial results are kept")?,
        }
        writeln!(
            f,
            "report: {}",
            self.directory.join("report.html").display()
        )
    }
}
