//! `summary.json`: the form that every experiment's results have. `docs/summary.schema.json`
//! describes it to other programs.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::goal::Verdict;
use crate::host::HostFacts;
use crate::outcome::Ending;

/// Version of the form; it rises when a field changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 2;

/// The whole of `summary.json`. Scripts rely on its fields. Those with a default are not in
/// runs of version 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Summary {
    /// Version of the form.
    #[serde(default = "first")]
    pub(crate) schema: u32,
    /// Name of the experiment.
    pub(crate) experiment: String,
    /// Start time, RFC 3339, UTC.
    pub(crate) started: String,
    /// How long it took, s.
    #[serde(default)]
    pub(crate) duration_s: f64,
    /// How it ended.
    #[serde(default)]
    pub(crate) status: Status,
    /// Revision of the source that the program was built from, or version.
    pub(crate) revision: String,
    /// What it ran on.
    pub(crate) machine: HostFacts,
    /// What came out.
    pub(crate) figures: Vec<Figure>,
    /// What the figures say of the goals.
    #[serde(default)]
    pub(crate) goals: Vec<Verdict>,
    /// Why the goals have no verdict although they hold here: the host was busy.
    #[serde(default)]
    pub(crate) not_judged: Option<String>,
    /// Samples and checks that failed, one sentence each.
    #[serde(default)]
    pub(crate) failures: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// All that was planned was done.
    #[default]
    Complete,
    /// The same, but samples or checks failed.
    Failed,
    /// A machine or a step failed; what was measured until then counts.
    Broken,
    /// By a signal, or by a kill: the record has no end.
    Interrupted,
}

impl Status {
    /// From how the run ended and what failed.
    pub(crate) fn of(ending: Ending, failures: &[String]) -> Self {
        match ending {
            Ending::Complete if failures.is_empty() => Self::Complete,
            Ending::Complete => Self::Failed,
            Ending::Broken(_) => Self::Broken,
            Ending::Interrupted(_) => Self::Interrupted,
        }
    }
}

const fn first() -> u32 {
    1
}
