//! Experiments, load generators, run records, reports: what `tare weigh` does.
//!
//! | module | what |
//! |---|---|
//! | [`weigh()`] | one run from request to outcome |
//! | `experiments` | phases, arms, goals and report of each experiment |
//! | `appliance` | machines under test behind a trait; `tare run` as a process |
//! | `linux` | Linux guests with example applications, their instructions counted |
//! | `observe`, `versions` | CPU time from outside; what was run |
//! | `record`, `figure`, `goal`, `summary` | samples, medians with intervals, goals, `summary.json` |
//! | [`compare()`] | two runs, figure by figure |
//! | [`rebuild`], `replay` | a report from raw samples |
//! | [`stored_runs`], [`history()`] | results of earlier runs, and figures over them |
//! | `report`, `table`, `progress` | table, progress, report |
//!
//! Neighbours: `tare-control` (statistics, exit codes), `tare-stats` (intervals), `tare-load`
//! (load generators, what is timed on the host).
//! Machines are processes here.

#![forbid(unsafe_code)]

mod appliance;
mod bench;
mod compare;
mod data;
mod error;
mod experiment;
mod experiments;
mod export;
mod figure;
mod goal;
mod history;
mod host;
mod linux;
mod metric;
mod number;
mod observe;
#[cfg(test)]
mod planted;
mod progress;
mod record;
mod replay;
mod report;
mod request;
pub mod stored_runs;
mod summary;
mod table;
mod versions;
mod weigh;
mod weigh_result;

/// Example applications by hand: what `tare-appliance` does.
pub mod by_hand {
    pub use crate::linux::by_hand::{ByHandError, answers, check, load, root, words};
}

pub use compare::{Change, CompareError, Compared, KeptRun, Row, compare};
pub use error::WeighError;
pub use history::history;
pub use request::{Depth, WeighRequest};
pub use weigh::{Files, rebuild, weigh, weigh_planned};
pub use weigh_result::{WeighEnd, WeighResult};

/// What an experiment of another crate is made of.
pub mod kit {
    pub use crate::bench::{Bench, RunError};
    pub use crate::error::WeighError;
    pub use crate::experiment::{Entry, Experiment, Merged, Subject};
    pub use crate::export::csv_field;
    pub use crate::figure::{Figure, Spread, Statistic, find, median, value};
    pub use crate::goal::Goal;
    pub use crate::host::{HostFacts, sha256_of_text};
    pub use crate::metric::Metric;
    pub use crate::number::number;
    pub use crate::progress::Progress;
    pub use crate::record::Recorder;
    pub use crate::replay::Record;
    pub use crate::report::svg::{Bar, Column, Series, bars, course, legend, reach};
    pub use crate::report::{ReportText, Row, Section, Template, escape, row, table};
    pub use crate::request::{Depth, WeighRequest};
    pub use tare_load::interrupt::{Interrupt, Interrupted};
}

/// Experiments of this crate.
pub const EXPERIMENTS: &[kit::Entry] = experiments::ALL;
