//! The example applications: data files in `lab/appliances`, in one form.

use std::path::PathBuf;

use serde::Deserialize;
use tare_profile::Profile;

use super::LinuxError;

/// An example application.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct App {
    /// Its name: that of its directory.
    #[serde(skip)]
    pub name: String,
    /// One line about it.
    pub(crate) about: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// The port on which it does.
    pub(crate) port: u16,
    /// Memory of its guest.
    pub(crate) memory_mib: u32,
    /// Debian's packages that hold its programs and all of their libraries.
    pub(crate) packages: Vec<String>,
    /// Programs of the packages, by their places.
    pub(crate) programs: Vec<String>,
    /// Shared objects that the program loads by itself, with their libraries.
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    /// Directories of the packages that it takes whole.
    #[serde(default)]
    pub(crate) trees: Vec<String>,
    /// Directories that it wants.
    #[serde(default)]
    pub(crate) directories: Vec<String>,
    /// A kernel that was tailored to it.
    #[serde(skip)]
    pub kernel: Option<PathBuf>,
    /// The program that is compiled on this computer.
    #[serde(default)]
    pub(crate) compiled: Option<Compiled>,
    /// What it is compiled from: names and texts of files.
    #[serde(skip)]
    pub(crate) sources: &'static [(&'static str, &'static str)],
    /// A database that is made before the guest starts.
    #[serde(default)]
    pub(crate) database: Option<Database>,
    /// What the guest runs.
    pub command: Vec<String>,
    /// Its environment: `NAME=VALUE`.
    #[serde(default)]
    pub(crate) env: Vec<String>,
    /// The directory that has all of its files, where they are the user's.
    #[serde(skip)]
    pub(crate) root: Option<PathBuf>,
    /// Files of the guest: configuration and content.
    #[serde(default, rename = "file")]
    pub files: Vec<File>,
    /// Whether it works.
    pub check: Check,
    /// Requests, by phase.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// What an application speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// The inline form of Redis's protocol.
    Redis,
    /// Memcached's text protocol.
    Memcached,
    /// PostgreSQL's; what is sent is one line of SQL.
    Postgres,
}

/// A static program that a compiler of this computer makes from the files beside the data file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compiled {
    /// Its place in the guest.
    pub(crate) place: String,
    /// What compiles it.
    pub(crate) by: Compiler,
}

/// What compiles a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compiler {
    /// `go build` of `server.go`.
    Go,
    /// `cargo build --release` of a package whose program is `server`.
    Cargo,
}

/// A database of PostgreSQL's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    /// The directory of the server's programs.
    pub(crate) programs: String,
    /// The directory of the files that these read when they make a database.
    pub(crate) share: String,
    /// Where the guest has it.
    pub(crate) directory: String,
    /// Whose it is: the user that runs the server.
    pub(crate) owner: u32,
    /// Statements that fill it, one a line.
    pub(crate) tables: String,
}

/// A file of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its place, with a leading `/`.
    pub path: String,
    /// Its text.
    #[serde(default)]
    pub(crate) text: String,
    /// Or this many bytes of letters.
    #[serde(default)]
    pub(crate) fill_bytes: usize,
}

/// One connection that says whether the application works.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is sent; the application then closes.
    pub send: String,
    /// What the answer contains.
    pub(crate) expect: Vec<String>,
}

/// A way of being used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// `peak` or `browsing`; start-up and shutdown are every guest's.
    pub name: String,
    /// How its requests use connections.
    pub connection: Connection,
    /// Sent once before.
    #[serde(default)]
    pub prepare: String,
    /// One round of requests; each has one answer of always the same length.
    pub requests: Vec<String>,
}

/// How requests use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// One for all.
    Kept,
    /// A new one for each round.
    EachVisit,
}

/// A data file and the profile that was taken of it.
struct Entry {
    name: &'static str,
    text: &'static str,
    profile: &'static [u8],
    sources: &'static [(&'static str, &'static str)],
}

macro_rules! entry {
    ($name:literal) => {
        Entry {
            name: $name,
            text: include_str!(concat!(
                "../../../../lab/appliances/",
                $name,
                "/appliance.toml"
            )),
            profile: include_bytes!(concat!(
                "../../../../lab/appliances/",
                $name,
                "/profile.json"
            )),
            sources: &[],
        }
    };
}

macro_rules! source {
    ($name:literal, $file:literal) => {
        (
            $file,
            include_str!(concat!("../../../../lab/appliances/", $name, "/", $file)),
        )
    };
}

/// Every application.
const ALL: &[Entry] = &[
    entry!("lighttpd"),
    entry!("nginx"),
    entry!("redis"),
    entry!("memcached"),
    entry!("apache"),
    entry!("haproxy"),
    entry!("nginx-workers"),
    entry!("python"),
    Entry {
        sources: &[source!("go", "server.go")],
        ..entry!("go")
    },
    Entry {
        sources: &[
            source!("axum", "Cargo.toml"),
            source!("axum", "Cargo.lock"),
            source!("axum", "server.rs"),
        ],
        ..entry!("axum")
    },
    entry!("postgres"),
];

/// Names of the applications.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|entry| entry.name).collect()
}

/// The application of that name.
pub fn find(name: &str) -> Result<App, LinuxError> {
    let entry = entry(name)?;
    let app: App = toml::from_str(entry.text).map_err(|source| LinuxError::Catalog {
        name: entry.name.to_owned(),
        source: Box::new(source),
    })?;
    Ok(App {
        name: entry.name.to_owned(),
        sources: entry.sources,
        ..app
    })
}

fn entry(name: &str) -> Result<&'static Entry, LinuxError> {
    let found = ALL.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| LinuxError::UnknownApp {
        name: name.to_owned(),
        known: names(),
    })
}

impl App {
    /// What was seen of it in all phases, from start-up to shutdown.
    pub fn profile(&self) -> Result<Profile, LinuxError> {
        let entry = entry(&self.name)?;
        Profile::read(entry.profile).map_err(|source| LinuxError::Profile {
            app: self.name.clone(),
            source,
        })
    }

    /// What the check sends, on its own connection.
    pub(crate) fn check_wire(&self) -> Vec<u8> {
        self.protocol.only(&self.check.send)
    }

    /// Whether an answer passes its check.
    pub fn passes(&self, answer: &[u8]) -> bool {
        let answer = String::from_utf8_lossy(answer);
        let mut expected = self.check.expect.iter();
        expected.all(|text| answer.contains(text.as_str()))
    }
}

impl App {
    /// The first line of the request and of an answer by which a user's application refuses it
    /// (HTTP's 4xx): trying again is of no use.
    pub fn refusal(&self, answer: &[u8]) -> Option<[String; 2]> {
        const LONGEST: usize = 80;
        let line = |text: &[u8]| {
            let line = text.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            let shown = line.chars().filter(|c| !c.is_control()).take(LONGEST);
            shown.collect::<String>()
        };
        let answered = line(answer);
        let status = answered.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
        let is_refused = self.root.is_some() && status.len() == 3 && status.starts_with('4');
        is_refused.then(|| [line(self.check.send.as_bytes()), answered])
    }
}

impl File {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.text.clone().into_bytes();
        bytes.extend((0..self.fill_bytes).map(|at| b'a' + (at % 26) as u8));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_appliance_is_well_formed_and_has_a_check_and_both_loads() {
        for name in names() {
            let app = find(name).unwrap();
            assert!(!app.check.expect.is_empty(), "{name}");
            let phases: Vec<&str> = app.phases.iter().map(|phase| phase.name.as_str()).collect();
            assert_eq!(phases, ["peak", "browsing"], "{name}");
            assert!(app.command[0].starts_with('/'), "{name}");
            assert!(app.programs.contains(&app.command[0]), "{name}");
            assert_eq!(app.compiled.is_some(), !app.sources.is_empty(), "{name}");
        }
    }

    #[test]
    fn every_appliance_has_a_profile_that_serves_a_network() {
        for name in names() {
            let profile = find(name).unwrap().profile().unwrap();
            // One thread of tokio's calls few.
            let least = if name == "axum" { 30 } else { 50 };
            assert!(profile.call_count() > least, "{name}");
            for call in ["execve", "socket", "bind"] {
                assert!(profile.calls.contains_key(call), "{name}: {call}");
            }
        }
    }

    #[test]
    fn an_unknown_appliance_lists_those_there_are() {
        let error = find("httpd").unwrap_err().to_string();
        assert!(error.contains("'httpd'; there are: lighttpd, "), "{error}");
    }
}
