//! The result: advice, and rules that do not apply here.

use std::fmt;

use serde::Serialize;

use crate::runs::{Comparison, Figure};

/// One thing to do, or to leave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The rule's name.
    pub rule: &'static str,
    /// What to do, a sentence.
    pub what: String,
    /// Why here: what was measured.
    pub because: String,
    /// The source (by its short name) or kept run that supports the rule.
    pub evidence: &'static str,
    /// The expected gain.
    pub gain: Gain,
    /// The exact command, where there is one.
    pub command: Option<String>,
    /// What `--try` can do.
    pub change: Change,
}

/// What `--try` does for an advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Nothing: it needs a restart, or a decision.
    None,
    /// `tare pin`.
    Pin,
}

/// An expected gain and where it is from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gain {
    /// Of a run of the lab on this machine or one like it.
    Measured(Figure),
    /// Of a published source, on its machine.
    Published(&'static str),
    /// Neither the source nor a kept run gives a figure.
    Unknown,
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(figure) => {
                let comparison = figure.comparison().map_or("", Comparison::text);
                write!(
                    f,
                    "{:.1} % [{:.1}, {:.1}] (measured, {comparison}: {} in {})",
                    figure.value, figure.low, figure.high, figure.name, figure.run
                )
            }
            Self::Published(text) => write!(f, "{text} (published, on another machine)"),
            Self::Unknown => f.write_str("unknown: neither the source nor a kept run has a figure"),
        }
    }
}

/// A rule that cannot be applied here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotApplicable {
    /// The rule's name.
    pub rule: &'static str,
    /// Why not.
    pub why: String,
}

/// Results of all rules for one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// What to do, in the rules' order.
    pub advice: Vec<Advice>,
    /// Rules that do not apply here.
    pub not_applicable: Vec<NotApplicable>,
}
