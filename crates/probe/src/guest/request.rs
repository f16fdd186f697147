//! What the observer in a guest is told, as one word of its command line.

use serde::{Deserialize, Serialize};

/// What to observe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Who runs it, as images say it; root when empty.
    pub user: String,
    /// End after so many milliseconds.
    pub length_ms: Option<u64>,
    /// Calls whose graphs are wanted, instead of a profile.
    pub graphs: Vec<String>,
}

impl Order {
    /// Reads an order.
    pub fn parse(word: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(word)
    }

    /// The word that [`Self::parse`] reads.
    pub fn word(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}
