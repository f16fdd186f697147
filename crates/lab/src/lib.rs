//! Experiments, load generators, run records, reports.

mod error;
mod outcome;
mod request;

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
