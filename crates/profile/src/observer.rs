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
    /// A root that was run in a guest.
    Guest(GuestRun),
}

impl Way {
    /// The command that was started, where the observer knows it.
    pub fn command(&self) -> Option<&[String]> {
        match self {
            Self::Command(words) | Self::Guest(GuestRun { command: words, .. }) => {
                (!words.is_empty()).then_some(words)
            }
            Self::Pid(_) | Self::Container(_) => None,
        }
    }
}

/// What was run in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenGuestRun")]
pub struct GuestRun {
    /// Its files: a directory or an image.
    pub root: String,
    /// Its command; empty in profiles from before it was recorded.
    pub command: Vec<String>,
}

/// As profiles have it: at first they had the root alone.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum WrittenGuestRun {
    Root(String),
    Whole { root: String, command: Vec<String> },
}

impl From<WrittenGuestRun> for GuestRun {
    fn from(written: WrittenGuestRun) -> Self {
        let (root, command) = match written {
            WrittenGuestRun::Root(root) => (root, Vec::new()),
            WrittenGuestRun::Whole { root, command } => (root, command),
        };
        Self { root, command }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_before_names_the_root_alone() {
        let read = |text: &str| serde_json::from_str::<Way>(text).unwrap();
        let was = read(r#"{"guest":"/srv/a"}"#);
        assert_eq!(was.command(), None);
        let command = vec!["httpd".to_owned(), "-f".to_owned()];
        let root = "/srv/a".to_owned();
        let is = Way::Guest(GuestRun { root, command });
        assert_eq!(read(&serde_json::to_string(&is).unwrap()), is);
        assert_eq!(is.command().map(<[String]>::len), Some(2));
        let more = r#"{"guest":{"root":"/","command":[],"more":1}}"#;
        assert!(serde_json::from_str::<Way>(more).is_err());
    }
}
