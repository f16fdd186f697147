//! Experiments, load generators, run records, reports: what `tare weigh` does.
//!
//! | module | what |
//! |---|---|
//! | [`weigh()`] | one run from request to outcome |
//! | `experiments` | phases, arms, goals and report of each experiment |
//! | `record`, `figure`, `goal`, `summary` | samples, medians with intervals, goals, `summary.json` |
//! | [`compare()`] | two runs, figure by figure |
//! | [`rebuild`], `replay` | a report from raw samples |
//! | [`stored_runs`], [`history()`] | results of earlier runs, and figures over them |
//! | `report`, `table`, `progress` | table, progress, report |
//!
//! Neighbours: `tare-machines` (machines under test), `tare-control` (statistics, exit codes),
//! `tare-stats` (intervals), `tare-load` (load generators, what is timed on the host).

#![forbid(unsafe_code)]

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
mod metric;
mod number;
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
mod weigh;
mod weigh_result;

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
