//! Measuring: arms, records, figures, goals, reports. What `tare weigh` does with any experiment.
//!
//! | module | what |
//! |---|---|
//! | [`weigh()`] | one run from plan to outcome |
//! | [`kit`] | what an experiment is made of; the lab knows none |
//! | [`results`] | what came out of a run, as types |
//! | `record`, `figure`, `goal`, `summary` | samples, medians with intervals, goals, `summary.json` |
//! | [`compare()`] | two runs, figure by figure |
//! | [`rebuild`], `replay` | a report from raw samples |
//! | [`stored_runs`], [`history()`] | results of earlier runs, and figures over them |
//! | `report`, `table`, `progress` | table, progress, report |
//!
//! Neighbours: `tare-experiments` and `tare-platforms-study` (experiments) above;
//! `tare-machines` (machines under test), `tare-control` (statistics, exit codes),
//! `tare-stats` (intervals), `tare-load` (load generators, what is timed on the host) below.

#![forbid(unsafe_code)]

mod bench;
mod compare;
mod data;
mod depth;
mod error;
mod experiment;
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
pub mod stored_runs;
mod summary;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod weigh;
mod weigh_result;

pub use compare::{Change, CompareError, Compared, KeptRun, Row, compare};
pub use depth::Depth;
pub use error::WeighError;
pub use history::history;
pub use weigh::{Files, WeighRequest, rebuild, weigh};
pub use weigh_result::{WeighEnd, WeighResult};

/// What an experiment is made of.
pub mod kit {
    pub use crate::bench::{Bench, RunError, optional};
    pub use crate::data::Data;
    pub use crate::depth::Depth;
    pub use crate::error::WeighError;
    pub use crate::experiment::{
        Entry, Experiment, IfFails, MOST_PLANNED, Make, Merged, Turn, better, replanned,
        replanned_ms, rounds, times,
    };
    pub use crate::export::csv_field;
    pub use crate::figure::{
        Figure, Samples, Spread, Statistic, exact, find, grouped_quantile, median, needed,
        paired_ratio, rate, value, without_error,
    };
    pub use crate::goal::Goal;
    pub use crate::host::{CROWDED_PCT, HostFacts, sha256_of_text};
    pub use crate::metric::{Direction, Metric, UNITS, of_figure};
    pub use crate::number::number;
    pub use crate::progress::Progress;
    pub use crate::record::Recorder;
    pub use crate::replay::Record;
    pub use crate::report::svg::{
        Band, Bar, Column, Distribution, Mark, Panel, Series, Timeline, bars, course, legend,
        percentiles, reach, scatter,
    };
    pub use crate::report::{ONCE, ReportText, Row, Section, Template, escape, row, table};
    pub use crate::{has_data, metrics};
    pub use tare_load::interrupt::{Interrupt, Interrupted};
}

/// What came out of a run: `summary.json` as a type, verdicts on goals, and two runs beside each
/// other.
pub mod results {
    pub use crate::compare::{Change, of_figures};
    pub use crate::goal::{JudgedGoal, Judgement, judge, verdicts};
    pub use crate::stored_runs::summary;
    pub use crate::summary::{Differs, Digests, Effect, Status, Summary};
}
