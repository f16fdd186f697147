//! What an experiment works with, and how it fails.

use std::io;

use tare_control::exit::ExitCode;
use tare_load::interrupt::{Interrupt, Interrupted};
use tare_load::requests::LoadError;
use tare_machines::appliance::{ApplianceError, Executor};
use tare_machines::linux::LinuxError;

use crate::error::WeighError;
use crate::progress::Progress;
use crate::record::Recorder;

/// The tools of one weighing.
pub struct Bench<'a> {
    /// Starts machines.
    pub executor: &'a mut dyn Executor,
    /// Keeps samples.
    pub recorder: &'a mut Recorder,
    /// Says how far it is.
    pub progress: &'a Progress,
    /// Says whether to stop.
    pub interrupt: &'a Interrupt,
}

/// Why an experiment broke off.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A machine failed.
    #[error(transparent)]
    Appliance(ApplianceError),
    /// The load generator failed.
    #[error(transparent)]
    Load(LoadError),
    /// What an experiment of another crate needs is not there.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A Linux guest failed.
    #[error(transparent)]
    Linux(LinuxError),
    /// A sample could not be kept.
    #[error(transparent)]
    Record(#[from] WeighError),
    /// The files to be served could not be made.
    #[error("cannot make the files to be served")]
    Root(#[source] io::Error),
    /// The machine says that it serves and does not answer.
    #[error("the machine did not answer its first request")]
    NoAnswer,
}

impl RunError {
    /// The exit code that fits.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Interrupted(interrupted) => interrupted.exit_code(),
            Self::Appliance(error) => error.exit_code(),
            Self::Linux(error) => error.exit_code(),
            Self::Record(error) => error.exit_code(),
            Self::Root(_) => ExitCode::Output,
            Self::Load(_) | Self::Other(_) | Self::NoAnswer => ExitCode::WeighFailed,
        }
    }
}

impl From<ApplianceError> for RunError {
    fn from(error: ApplianceError) -> Self {
        match error {
            ApplianceError::Interrupted(interrupted) => Self::Interrupted(interrupted),
            other => Self::Appliance(other),
        }
    }
}

impl From<LoadError> for RunError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Interrupted(interrupted) => Self::Interrupted(interrupted),
            other => Self::Load(other),
        }
    }
}

impl From<LinuxError> for RunError {
    fn from(error: LinuxError) -> Self {
        match error {
            LinuxError::Interrupted(interrupted) => Self::Interrupted(interrupted),
            other => Self::Linux(other),
        }
    }
}

/// Turns the unavailability of an optional arm into its reason; other errors stay errors.
pub fn optional<T>(result: Result<T, RunError>) -> Result<Option<String>, RunError> {
    match result {
        Ok(_) => Ok(None),
        Err(RunError::Appliance(error)) => Ok(Some(error.to_string())),
        Err(RunError::Other(error)) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
