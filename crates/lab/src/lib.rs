//! Experiments, load generators, run records, reports.

mod appliance;
mod error;
mod figure;
mod goal;
mod host;
mod interrupt;
mod load;
mod observe;
mod outcome;
mod progress;
mod record;
mod request;
mod summary;
mod table;

pub use error::WeighError;
pub use outcome::{Ending, Outcome};
pub use request::{Depth, WeighRequest};

/// Names of the experiments that there are, with a line about each.
pub fn experiments() -> Vec<(&'static str, &'static str)> {
    vec![(
        "http-bursts",
        "a web server under bursts and breaks: CPU, exits and latency of three ways to wait",
    )]
}

/// Runs an experiment and writes its results. Progress goes to standard error.
/// Blocks; SIGINT and SIGTERM end it early with partial results.
pub fn weigh(request: WeighRequest) -> Result<Outcome, WeighError> {
    Err(WeighError::UnknownExperiment {
        name: request.experiment,
        known: experiments().into_iter().map(|(name, _)| name).collect(),
    })
}
