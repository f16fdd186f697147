//! Protocol of one workload run: request and status lines.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::workload::{Form, Source, Workload};

/// The program that runs a step, in the root.
pub const PROGRAM: &str = include_str!("step.sh");
/// The agent that takes requests within a virtual machine.
pub(crate) const AGENT: &str = include_str!("agent.sh");
/// Ports that workloads may use.
const PORT: &str = "24680";
/// How much longer than a workload's limit anything around it may take.
pub const GRACE: Duration = Duration::from_secs(45);

/// Where programs are looked for until a step says otherwise.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A request to run a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The workload's name.
    pub workload: String,
    /// Its variables.
    pub variables: BTreeMap<String, String>,
    /// The longest time of the run itself.
    pub limit: Duration,
}

impl Step {
    /// A run in `form` on a number of CPUs; `None` where the file leaves the form out.
    pub fn new(workload: &Workload, form: Form, cpus: u32) -> Option<Self> {
        let mut variables = workload.parameters(form)?.clone();
        let source = match workload.metric.source {
            Source::Wall => "wall",
            Source::Output => "output",
        };
        let limit = Duration::from_secs(workload.timeout_s.into());
        let ours = [
            ("CPUS", cpus.to_string()),
            ("FORM", form.name().to_owned()),
            ("PORT", PORT.to_owned()),
            ("SOURCE", source.to_owned()),
        ];
        variables.extend(ours.map(|(name, value)| (name.to_owned(), value)));
        Some(Self {
            workload: workload.name.clone(),
            variables,
            limit,
        })
        .map(|step| step.within(limit))
    }

    /// The same with a limit of at most `most`, in whole seconds.
    pub fn within(mut self, most: Duration) -> Self {
        self.limit = self.limit.min(Duration::from_secs(most.as_secs().max(1)));
        let seconds = self.limit.as_secs().to_string();
        self.variables.insert("TIMEOUT".to_owned(), seconds);
        self
    }

    /// The request's file.
    pub fn document(&self) -> String {
        let mut text = format!("{}\n", self.workload);
        for (name, value) in &self.variables {
            text.push_str(&format!("{name}={}\n", value.replace('\n', " ")));
        }
        text
    }

    /// The request as one word that `printf %b` undoes.
    pub fn word(&self) -> String {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"=_-./".contains(byte);
        let bytes = self.document().into_bytes();
        let escaped = bytes.iter().map(|byte| {
            if plain(byte) {
                char::from(*byte).to_string()
            } else {
                format!("\\x{byte:02x}")
            }
        });
        escaped.collect()
    }
}

/// A status line of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StatusLine {
    /// The run begins now.
    Begin,
    /// The run has ended, after this many microseconds by the platform's own clock.
    End(u64),
    /// Whether the run is valid.
    Verdict(Validity),
    /// A line of its log.
    Log(String),
    /// The machine takes requests.
    Ready,
    /// The machine has finished a request.
    Over,
    /// The machine cannot be used.
    Broken(String),
}

/// Whether a run counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Validity {
    /// Valid, with this value.
    Valid(f64),
    /// Invalid, and why.
    Invalid(String),
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Something did not start.
    #[error("cannot start {what}")]
    Start {
        /// The program.
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing was heard within the limit; it was ended.
    #[error("{what} printed nothing for {} s and was killed", after.as_secs())]
    Silent {
        /// Which platform.
        what: String,
        /// The limit.
        after: Duration,
    },
    /// The platform ended before the step did.
    #[error("{what} ended without a result: {last}")]
    Ended {
        /// Which platform.
        what: String,
        /// The last lines of its output.
        last: String,
    },
    /// A machine is over with the step, which gave no verdict; it takes further ones.
    #[error("the step ended without a verdict: {last}")]
    NoVerdict {
        /// The last lines of its output.
        last: String,
    },
    /// An earlier step lost the machine.
    #[error("its virtual machine ended in an earlier run")]
    MachineLost,
    /// Something about it cannot be set.
    #[error(transparent)]
    Cgroup(#[from] crate::cgroup::CgroupError),
    /// What is changed cannot be journalled.
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
    /// The host refused a placement.
    #[error(transparent)]
    Pin(#[from] crate::pin::PlacementError),
    /// A program around it did not do its work.
    #[error(transparent)]
    Program(#[from] crate::program::ProgramError),
    /// Whoever waited gave up.
    #[error("given up")]
    GivenUp,
}

/// Parses a line; `None` if it is not a status line.
pub(crate) fn status_line(line: &str) -> Option<StatusLine> {
    // A console may put its own noise before ours.
    let (_, rest) = line.split_once("@tare ")?;
    let rest = rest.trim_end();
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match word {
        "begin" => Some(StatusLine::Begin),
        "end" => rest.parse().ok().map(StatusLine::End),
        "log" => Some(StatusLine::Log(rest.to_owned())),
        "ready" => Some(StatusLine::Ready),
        "over" => Some(StatusLine::Over),
        "broken" => Some(StatusLine::Broken(rest.to_owned())),
        "verdict" => Some(StatusLine::Verdict(validity(rest))),
        _ => None,
    }
}

fn validity(text: &str) -> Validity {
    let number = |value: &str| {
        value
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite() && *v > 0.0)
    };
    match text.split_once(' ') {
        Some(("ok", value)) => match number(value) {
            Some(value) => Validity::Valid(value),
            None => Validity::Invalid(format!("its metric is not a number above 0: '{value}'")),
        },
        Some(("bad", why)) => Validity::Invalid(why.to_owned()),
        _ => Validity::Invalid("its metric is missing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_behind_a_consoles_noise() {
        assert_eq!(
            status_line("[ 1.2] x@tare begin\r"),
            Some(StatusLine::Begin)
        );
        assert_eq!(status_line("@tare end 12"), Some(StatusLine::End(12)));
        let counts = StatusLine::Verdict(Validity::Valid(1.5));
        assert_eq!(status_line("@tare verdict ok 1.5"), Some(counts));
        assert_eq!(status_line("begin"), None);
        assert_eq!(status_line("@tare end x"), None);
    }

    #[test]
    fn a_request_is_one_word() {
        let step = Step {
            workload: "x".into(),
            variables: [("A".to_owned(), "b c".to_owned())].into(),
            limit: Duration::ZERO,
        };
        assert_eq!(step.word(), "x\\x0aA=b\\x20c\\x0a");
    }

    #[test]
    fn a_metric_that_is_not_a_number_does_not_count() {
        for line in ["ok ", "ok x", "ok inf", "ok -1", "ok 0", "", "ok"] {
            let validity = validity(line);
            assert!(
                matches!(validity, Validity::Invalid(_)),
                "{line}: {validity:?}"
            );
        }
    }
}
