//! How a profile was taken and what taking it cost.

use serde::{Deserialize, Serialize};

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The user's name for it (`start-up`, `peak`, ...); may be empty.
    pub label: String,
    /// When and where.
    pub taken: Taken,
    /// What it cost.
    pub observer: Observer,
}

/// When and where a profile was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// How the application was named.
    pub way: Way,
    /// Start of the observation, seconds since 1970.
    pub start_unix_s: u64,
    /// Its length, ns.
    pub duration_ns: u64,
    /// Release of the kernel that ran the application (`uname -r`).
    pub kernel_release: String,
    /// Tare's version.
    pub tare_version: String,
}

/// How the application was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Started by the observer: its words.
    Command(Vec<String>),
    /// A process that ran already, with its descendants.
    Pid(u32),
    /// A container, by its cgroup.
    Container(String),
    /// An image that was run in a guest.
    Guest(String),
}

/// What the observer cost the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observer {
    /// Events that the kernel's side handled.
    pub events: u64,
    /// Time spent in them, ns (the kernel's `run_time_ns` of the programs, measured in
    /// samples and scaled to all events).
    pub kernel_ns: u64,
    /// CPU time of the observing process, ns.
    pub user_ns: u64,
    /// Events that found no room.
    pub lost: u64,
}
