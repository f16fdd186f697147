//! What comes out: advice, and what cannot be told.

use std::fmt;

use serde::Serialize;

use crate::runs::Figure;

/// One thing to do, or to leave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The rule's name.
    pub rule: &'static str,
    /// What to do, a sentence.
    pub what: String,
    /// Why here: what was measured.
    pub because: String,
    /// The slide, paper or run that supports the rule.
    pub evidence: &'static str,
    /// What it is expected to bring.
    pub gain: Gain,
    /// The exact command, where there is one.
    pub command: Option<String>,
    /// What `--try` can do.
    pub change: Change,
}

/// What `--try` does about an advice.
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
    /// Of a talk or a paper, on its machine.
    Published(&'static str),
    /// The source says that it helps and not how much; no run says it either.
    Unknown,
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(figure) => write!(
                f,
                "{:.1} % [{:.1}, {:.1}] (measured: {} in {})",
                figure.value, figure.low, figure.high, figure.name, figure.run
            ),
            Self::Published(text) => write!(f, "{text} (published, another machine)"),
            Self::Unknown => f.write_str("not known: the source gives no figure, and no run does"),
        }
    }
}

/// A rule that cannot be applied here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Untold {
    /// The rule's name.
    pub rule: &'static str,
    /// Why not.
    pub why: String,
}

/// All that rules say of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// What to do, in the rules' order.
    pub advice: Vec<Advice>,
    /// What cannot be told.
    pub untold: Vec<Untold>,
}
