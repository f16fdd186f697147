//! One kind of system call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::durations::Durations;

/// Arguments that a system call has on x86-64.
pub const MAX_ARGUMENTS: usize = 6;

/// Everything seen of one system call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its number on x86-64.
    pub number: u32,
    /// How often it was made.
    pub count: u64,
    /// How often it failed, by error name (`ENOENT`; a number where it has
    /// none).
    pub errors: BTreeMap<String, u64>,
    /// Time in the kernel, waiting included. Calls that had not returned when
    /// the observation ended have none.
    pub time: Durations,
    /// What was seen in each argument, by position; shorter than
    /// [`MAX_ARGUMENTS`] where the call has fewer.
    pub arguments: Vec<Argument>,
    /// Names of the tasks that made it (`comm`), sorted.
    pub tasks: Vec<String>,
}

/// What was seen in one argument: a constant parameter, for which Kernel
/// Tailoring cuts the code for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// The same value each time.
    Constant(u64),
    /// More than one value.
    Varies,
}

impl Argument {
    /// What two observations saw together.
    pub fn merge(self, other: Self) -> Self {
        if self == other { self } else { Self::Varies }
    }
}
