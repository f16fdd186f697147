//! `summary.json`: the form that every experiment's results have.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::host::HostFacts;

/// The whole of `summary.json`. Scripts rely on its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Summary {
    /// Name of the experiment.
    pub(crate) experiment: String,
    /// Start time, RFC 3339, UTC.
    pub(crate) started: String,
    /// Revision of the source, or version.
    pub(crate) revision: String,
    /// What it ran on.
    pub(crate) machine: HostFacts,
    /// What came out.
    pub(crate) figures: Vec<Figure>,
}
