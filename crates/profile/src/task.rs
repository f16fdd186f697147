//! One task of the application.

use serde::{Deserialize, Serialize};

/// A thread that was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Process ID (thread group), as the observer's namespace has it.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Its name (`comm`), at most 15 bytes.
    pub name: String,
    /// Path of its program; empty where it could not be read.
    pub program: String,
    /// System calls that it made.
    pub calls: u64,
}
