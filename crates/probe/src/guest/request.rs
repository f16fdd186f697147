//! What the observer in a guest is to observe, as one argument of its command line.

use serde::{Deserialize, Serialize};

/// What to observe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveRequest {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// User that runs it, as in an image; root when empty.
    pub user: String,
    /// End after this time, ms.
    pub length_ms: Option<u64>,
    /// Calls whose graphs are wanted, instead of a profile.
    pub graphs: Vec<String>,
}

impl ObserveRequest {
    /// Reads an request.
    pub fn parse(argument: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(argument)
    }

    /// The argument that [`Self::parse`] reads.
    pub fn to_argument(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}
