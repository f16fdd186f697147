//! A workload: a TOML file that says what to install, prepare, run and check, and
//! what is measured. Whoever adds a file adds a workload.

mod find;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use find::{FindError, find, known};
pub use parse::{ParseError, parse};

/// What a workload waits for, as its author says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// It computes.
    Cpu,
    /// It computes, and waits for devices, peers or locks.
    Io,
    /// It waits for them nearly all the time, as a database that writes much does.
    HeavyIo,
}

/// What a workload measures for the model of larger hosts instead of standing for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// The time of a context switch, ns.
    Switch,
    /// The time, ns, of what a migration makes slower; without migrations on one CPU.
    Migration,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Times.
    Lower,
    /// Rates.
    Higher,
}

/// Where the metric's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The time that `run` takes, in seconds.
    Wall,
    /// The number that `run` writes into the file `metric`.
    Output,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Unit, as printed.
    pub unit: String,
    /// Which way is better.
    pub direction: Direction,
    /// Where it comes from.
    pub source: Source,
}

/// Variables that scripts get from Tare: a parameter of such a name would be replaced.
pub(crate) const GIVEN: [&str; 12] = [
    "APPLIANCE",
    "APPLIANCE_ROOT",
    "CPUS",
    "DATA",
    "FORM",
    "MACHINE",
    "MAVEN_SETTINGS",
    "PIN",
    "PORT",
    "SOURCE",
    "TARE_RUN_ROOT",
    "TIMEOUT",
];

/// Parameters of one form: environment of every script.
pub type Parameters = BTreeMap<String, String>;

/// A workload, as its file says it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The file's name without its end.
    #[serde(skip)]
    pub name: String,
    /// The file itself, for records.
    #[serde(skip)]
    pub text: String,
    /// One line about it.
    pub about: String,
    /// What it waits for.
    pub kind: WorkloadKind,
    /// What it measures for the model of larger hosts; nothing for an application.
    pub cost: Option<Cost>,
    /// The workload whose work this one does in many processes at once.
    pub many_of: Option<String>,
    /// The program that `run` starts by `app`, and that also runs alone on the library OS.
    pub appliance: Option<String>,
    /// Debian packages.
    #[serde(default)]
    pub install: Vec<String>,
    /// Longest time of a run, s.
    pub timeout_s: u32,
    /// The least form in which it runs without being asked for by name.
    #[serde(default)]
    pub unasked_from: Form,
    /// Parameters of the quick form; without them it is left out there.
    pub quick: Option<Parameters>,
    /// Parameters of the form in between; the full one's when missing.
    pub standard: Option<Parameters>,
    /// Parameters of the full form.
    pub full: Parameters,
    /// Files that are laid beside the scripts.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Script that makes what every run reads, in `$DATA`; once, before all.
    #[serde(default)]
    pub prepare: String,
    /// Script that is measured, in an empty directory.
    pub run: String,
    /// Script that must succeed afterwards for the run to count.
    pub check: String,
    /// What is measured.
    pub metric: Metric,
}

/// The extent of a weighing, which chooses the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Does it work, roughly.
    #[default]
    Quick,
    /// In between.
    Standard,
    /// As CPU-Pinning 2020 did it.
    Full,
}

impl Form {
    /// The name, as in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

impl Workload {
    /// The parameters of a form; `None` where the file leaves the form out.
    pub fn parameters(&self, form: Form) -> Option<&Parameters> {
        match form {
            Form::Quick => self.quick.as_ref(),
            Form::Standard => Some(self.standard.as_ref().unwrap_or(&self.full)),
            Form::Full => Some(&self.full),
        }
    }

    /// Time for which a value stands: a rate becomes the time of one operation,
    /// so that more is always worse.
    pub fn time_of(&self, value: f64) -> f64 {
        match self.metric.direction {
            Direction::Lower => value,
            Direction::Higher => 1.0 / value,
        }
    }
}
