//! What an application asks of its kernel: the profile's schema, reading,
//! merging; pure.
//!
//! `tare profile` writes a [`Profile`] as one JSON file, `tare tailor` reads one
//! or more. Profiles of start-up, peak, browsing and shutdown are merged
//! ([`Profile::merge`]) so that nothing which one phase needs is lost and each
//! figure is what one long observation would have given: times are kept as
//! histograms and the fastest samples themselves, never as means of means.
//!
//! [`table`], [`names`] and [`paths`] are its vocabulary: what numbers and paths of
//! system calls are called in it.
//!
//! A profile is a file, so it is hostile: [`Profile::read`] bounds it, refuses
//! other versions by name, and checks that its figures agree with each other.

#![forbid(unsafe_code)]

mod call;
mod durations;
mod error;
mod features;
mod lookups;
mod merge;
pub mod names;
mod observer;
mod older;
pub mod paths;
mod read;
pub mod table;
mod task;

pub use call::{Argument, Call, MAX_ARGUMENTS};
pub use durations::{BUCKETS, Durations, FASTEST};
pub use error::ProfileError;
pub use features::{
    CloneUse, Features, FileUse, FlagsUse, IoctlUse, MountUse, OptionUse, PrctlUse, SocketUse,
};
pub use lookups::{Asked, Lookups};
pub use observer::{GuestRun, Observer, Phase, Taken, Way};
pub use read::MAX_BYTES;
pub use task::Task;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "tare-profile/2";

/// Everything seen of one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The observations that this profile is made of, in the order of merging.
    pub phases: Vec<Phase>,
    /// Every task seen, by process and thread in order of appearance.
    pub tasks: Vec<Task>,
    /// System calls by name (x86-64's), such as `openat`.
    pub calls: BTreeMap<String, Call>,
    /// Arguments that select kernel features.
    pub features: Features,
    /// Paths that were found, but those below `/proc`, `/sys` and `/dev`.
    pub paths: Lookups,
    /// Kernel modules that were loaded or in use, by name.
    pub modules: Vec<String>,
    /// Device nodes opened, by path.
    pub devices: Vec<String>,
    /// What was not seen, and why: one sentence for each source that was
    /// unavailable.
    pub unavailable: Vec<String>,
}

impl Profile {
    /// The command of the first observation that started one.
    pub fn command(&self) -> Option<&[String]> {
        let mut phases = self.phases.iter();
        phases.find_map(|phase| phase.taken.way.command())
    }

    /// A profile of nothing, to merge into.
    pub fn empty() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            phases: Vec::new(),
            tasks: Vec::new(),
            calls: BTreeMap::new(),
            features: Features::default(),
            paths: Lookups::new(),
            modules: Vec::new(),
            devices: Vec::new(),
            unavailable: Vec::new(),
        }
    }

    /// All system calls, of every kind.
    pub fn call_count(&self) -> u64 {
        self.calls
            .values()
            .fold(0, |sum, call| sum.saturating_add(call.count))
    }
}
