//! Why a run could not start.

use std::io;
use std::path::PathBuf;

use tare_control::exit::ExitCode;

/// A weighing that did not begin, or whose results could not be kept. What goes
/// wrong with a machine or a sample later on is part of the [`crate::WeighResult`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeighError {
    /// No such experiment.
    #[error("there is no experiment '{name}'; there are: {}", .known.join(", "))]
    UnknownExperiment {
        /// Requested.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The output directory has something in it.
    #[error("{} is not empty; give --out a new directory", .0.display())]
    OutNotEmpty(PathBuf),
    /// A result could not be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record could not be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the experiment's own options name is not available.
    #[error(transparent)]
    NotAvailable(Box<dyn std::error::Error + Send + Sync>),
    /// An option that does not fit: a sentence.
    #[error("{0}")]
    Option(String),
    /// The path of this executable is unknown.
    #[error("cannot find the tare executable")]
    Executable(#[source] io::Error),
    /// Signals could not be watched.
    #[error("cannot watch for Ctrl-C")]
    Signals(#[source] io::Error),
}

impl WeighError {
    /// The exit code of `tare weigh`.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::UnknownExperiment { .. }
            | Self::Read { .. }
            | Self::NotAvailable(_)
            | Self::Option(_) => ExitCode::Usage,
            Self::OutNotEmpty(_) | Self::Write { .. } => ExitCode::Output,
            Self::Executable(_) | Self::Signals(_) => ExitCode::Internal,
        }
    }
}
