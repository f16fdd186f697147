//! One run of a workload, as what is asked and what is said back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::workload::{Form, Source, Workload};

/// The program that runs a step, in the root.
pub const PROGRAM: &str = include_str!("step.sh");
/// What takes requests within a virtual machine.
pub const AGENT: &str = include_str!("agent.sh");
/// Ports that workloads may use.
const PORT: &str = "24680";
/// How much longer than a workload's limit anything around it may take.
pub const GRACE: Duration = Duration::from_secs(45);

/// Where programs are looked for until a step says otherwise.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What is asked.
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
    /// A run in `form` on so many CPUs; `None` where the file leaves the form out.
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
        let escaped = bytes.iter().map(|byte| match plain(byte) {
            true => char::from(*byte).to_string(),
            false => format!("\\x{byte:02x}"),
        });
        escaped.collect()
    }
}

/// What a step says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The run begins now.
    Begin,
    /// It is over, after so many microseconds by the platform's own clock.
    End(u64),
    /// Whether it counts.
    Verdict(Verdict),
    /// A line of its log.
    Log(String),
    /// The machine takes requests.
    Ready,
    /// The machine is done with a request.
    Over,
    /// The machine cannot be used.
    Broken(String),
}

/// Whether a run counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It does, with this value.
    Counts(f64),
    /// It does not, and why.
    Not(String),
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
    #[error("{what} said nothing for {} s and was ended", after.as_secs())]
    Silent {
        /// Which platform.
        what: String,
        /// The limit.
        after: Duration,
    },
    /// The platform ended before the step did.
    #[error("{what} ended without a verdict: {last}")]
    Ended {
        /// Which platform.
        what: String,
        /// Its last words.
        last: String,
    },
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

/// Reads a line; `None` for what is not a step's.
pub fn said(line: &str) -> Option<Said> {
    // A console may put its own noise before ours.
    let (_, rest) = line.split_once("@tare ")?;
    let rest = rest.trim_end();
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match word {
        "begin" => Some(Said::Begin),
        "end" => rest.parse().ok().map(Said::End),
        "log" => Some(Said::Log(rest.to_owned())),
        "ready" => Some(Said::Ready),
        "over" => Some(Said::Over),
        "broken" => Some(Said::Broken(rest.to_owned())),
        "verdict" => Some(Said::Verdict(verdict(rest))),
        _ => None,
    }
}

fn verdict(text: &str) -> Verdict {
    let number = |value: &str| {
        value
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite() && *v > 0.0)
    };
    match text.split_once(' ') {
        Some(("ok", value)) => match number(value) {
            Some(value) => Verdict::Counts(value),
            None => Verdict::Not(format!("its metric is no number above 0: '{value}'")),
        },
        Some(("bad", why)) => Verdict::Not(why.to_owned()),
        _ => Verdict::Not("its metric is missing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_behind_a_consoles_noise() {
        assert_eq!(said("[ 1.2] x@tare begin\r"), Some(Said::Begin));
        assert_eq!(said("@tare end 12"), Some(Said::End(12)));
        let counts = Said::Verdict(Verdict::Counts(1.5));
        assert_eq!(said("@tare verdict ok 1.5"), Some(counts));
        assert_eq!(said("begin"), None);
        assert_eq!(said("@tare end x"), None);
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
    fn a_metric_that_is_no_number_does_not_count() {
        for line in ["ok ", "ok x", "ok inf", "ok -1", "ok 0", "", "ok"] {
            let verdict = verdict(line);
            assert!(matches!(verdict, Verdict::Not(_)), "{line}: {verdict:?}");
        }
    }
}
