//! What an experiment is: its plan, its run, and what it makes of its samples.

use std::time::Duration;

use serde_json::Value;
use tare_control::stats::Kvm;

use crate::bench::{Bench, RunError};
use crate::error::WeighError;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::host::HostFacts;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::record::Recorder;
use crate::replay::{Record, Replay};
use crate::report::ReportText;
use crate::request::{Depth, WeighRequest};

/// One experiment, planned for one depth.
pub trait Experiment {
    /// Takes the experiment's own options from the request; called first.
    fn configure(&mut self, request: &WeighRequest) -> Result<(), WeighError> {
        no_options_of_tailor(request)
    }

    /// Planned duration.
    fn planned(&self) -> Duration;

    /// The plan, for the record.
    fn plan(&self) -> Value;

    /// Takes over the plan of a record that is to be read back.
    fn replan(&mut self, _plan: &Value) {}

    /// Reads a record back. What ran on machines that print runs again on their lines.
    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        let mut replay = Replay::of(record);
        self.run(&mut Bench {
            executor: &mut replay,
            recorder: &mut Recorder::silent(&record.dir),
            progress: &Progress::silent(),
            interrupt: &Interrupt::default(),
        })
    }

    /// Runs it. Samples taken before an error are kept.
    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError>;

    /// The KVM that executed guests, as the machines reported it.
    fn kvm(&self) -> Kvm;

    /// Where the runs are from, if they were read from records instead of measured.
    fn merged(&self) -> Option<&Merged> {
        None
    }

    /// Figures so far.
    fn figures(&self) -> Vec<Figure>;

    /// Goals for the figures.
    fn goals(&self) -> &'static [Goal];

    /// The longest that its own threads were seen to wait for a CPU while a figure was taken,
    /// percent of that time, beside what is seen of the whole run.
    fn waited_pct(&self) -> Option<f64> {
        None
    }

    /// Why a figure does not meet its goal, if the run knows: a sentence.
    fn cause(&self, _figures: &[Figure], _figure: &Figure) -> Option<String> {
        None
    }

    /// Failed samples and checks, one sentence each.
    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    /// The experiment's part of the report.
    fn report(&self, figures: &[Figure]) -> ReportText;
}

/// Where merged runs are from.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The machines' facts; processors of several are listed.
    pub machine: HostFacts,
    /// Revisions of the programs that measured.
    pub revision: String,
    /// When the first began, RFC 3339, UTC.
    pub started: String,
}

/// Refuses the options of `tailor`.
pub fn no_options_of_tailor(request: &WeighRequest) -> Result<(), WeighError> {
    let given = [
        ("--cuts", request.cuts.is_some()),
        ("--config", request.config.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(WeighError::Option(format!("{option} is for tailor"))),
    }
}

/// An experiment in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Which option names what it measures.
    pub subject: Subject,
    /// Makes it; its subject may be given.
    pub make: fn(Depth, Option<String>) -> Box<dyn Experiment>,
}

/// Which option names what an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An image of the library OS: `--image`.
    Image,
    /// An example application: `--app`.
    App,
    /// Options of its own.
    Own,
}
