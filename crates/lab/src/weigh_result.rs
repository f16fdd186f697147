//! Result of a weighing.

use std::fmt;
use std::path::PathBuf;

use tare_control::exit::ExitCode;

/// Results of a weighing, complete or partial. Its `Display` is what belongs on
/// the terminal: the table, what failed, and where the report is.
#[derive(Clone, Debug)]
pub struct WeighResult {
    /// Directory of `summary.json`, `raw.jsonl`, `command.txt`, `report.html`.
    pub directory: PathBuf,
    /// The table of figures, below 80 columns.
    pub table: String,
    /// Samples and checks that failed, one sentence each; empty if all is well.
    pub failures: Vec<String>,
    /// Goals that were missed, a sentence each.
    pub missed: Vec<String>,
    /// Why no goal was judged, if so.
    pub not_judged: Option<String>,
    /// Why none of the goals that were judged is met or missed, if so.
    pub undecided: Option<String>,
    /// Whether a missed goal fails the run.
    pub fail_on_missed: bool,
    /// How it ended.
    pub ending: WeighEnd,
}

/// How a weighing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeighEnd {
    /// Everything planned was done.
    Complete,
    /// A machine or a step failed; what was measured until then is kept.
    Broken(ExitCode),
    /// SIGINT or SIGTERM; what was measured until then is kept.
    Interrupted(ExitCode),
}

impl WeighResult {
    /// The exit code of `tare weigh`.
    pub fn exit_code(&self) -> ExitCode {
        match self.ending {
            WeighEnd::Interrupted(code) | WeighEnd::Broken(code) => code,
            WeighEnd::Complete if !self.failures.is_empty() => ExitCode::WeighFailed,
            WeighEnd::Complete if self.fail_on_missed && !self.missed.is_empty() => {
                ExitCode::GoalMissed
            }
            WeighEnd::Complete if self.fail_on_missed && self.could_not_decide() => {
                ExitCode::WeighFailed
            }
            WeighEnd::Complete => ExitCode::Success,
        }
    }

    /// Whether there are goals and no figure says anything of one: a gate that could not look is
    /// not open.
    fn could_not_decide(&self) -> bool {
        self.not_judged.is_some() || self.undecided.is_some()
    }
}

impl fmt::Display for WeighResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        for missed in self.missed.iter().filter(|_| self.fail_on_missed) {
            writeln!(f, "goal missed: {missed}")?;
        }
        if let Some(why) = &self.not_judged {
            writeln!(f, "goals {why}")?;
        }
        if let Some(why) = self.undecided.as_ref().filter(|_| self.fail_on_missed) {
            writeln!(f, "failed: {why}")?;
        }
        match self.ending {
            WeighEnd::Complete => {}
            WeighEnd::Broken(_) => writeln!(f, "broken off; partial results are kept")?,
            WeighEnd::Interrupted(_) => writeln!(f, "interrupted; partial results are kept")?,
        }
        writeln!(
            f,
            "report: {}",
            self.directory.join("report.html").display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_fails_the_run_only_where_it_was_asked_for() {
        let outcome = |fail_on_missed| WeighResult {
            directory: PathBuf::from("out"),
            table: String::new(),
            failures: Vec::new(),
            missed: vec!["x is 2".to_owned()],
            not_judged: None,
            undecided: None,
            fail_on_missed,
            ending: WeighEnd::Complete,
        };
        assert_eq!(outcome(false).exit_code(), ExitCode::Success);
        assert_eq!(outcome(true).exit_code(), ExitCode::GoalMissed);
        assert!(outcome(true).to_string().contains("goal missed: x is 2"));
        let busy = |fail_on_missed| WeighResult {
            missed: Vec::new(),
            not_judged: Some("not judged: others".to_owned()),
            ..outcome(fail_on_missed)
        };
        assert_eq!(busy(false).exit_code(), ExitCode::Success);
        assert_eq!(busy(true).exit_code(), ExitCode::WeighFailed);
        assert!(busy(false).to_string().contains("goals not judged: others"));
        let undecided = |fail_on_missed| WeighResult {
            missed: Vec::new(),
            undecided: Some("no goal was decided".to_owned()),
            ..outcome(fail_on_missed)
        };
        assert_eq!(undecided(false).exit_code(), ExitCode::Success);
        assert!(!undecided(false).to_string().contains("decided"));
        assert_eq!(undecided(true).exit_code(), ExitCode::WeighFailed);
        let said = undecided(true).to_string();
        assert!(said.contains("failed: no goal was decided"), "{said}");
        let interrupted = WeighResult {
            ending: WeighEnd::Interrupted(ExitCode::Interrupted),
            ..outcome(true)
        };
        assert_eq!(interrupted.exit_code(), ExitCode::Interrupted);
    }
}
