//! What goes wrong with a machine under test, and the exit code that fits.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tare_control::client::ClientError;
use tare_control::exit::ExitCode;
use tare_platform::journal::JournalError;

use crate::linux::LinuxError;
use tare_load::interrupt::Interrupted;

/// What went wrong with a machine.
#[derive(Debug, thiserror::Error)]
pub enum ApplianceError {
    /// `tare run` could not be executed.
    #[error("cannot execute {}", .path.display())]
    Execute {
        /// The executable.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No port, pipe or thread for it.
    #[error("cannot prepare a machine")]
    Prepare(#[source] io::Error),
    /// What it leaves if this process is killed cannot be written down.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A Linux guest.
    #[error(transparent)]
    Qemu(Box<LinuxError>),
    /// An application's files.
    #[error("the application's files are not available")]
    Files(#[source] Box<LinuxError>),
    /// It ended by itself.
    #[error("the machine ended with exit code {code}: {said}")]
    Ended {
        /// Exit code of `tare run`; -1 for a signal.
        code: i32,
        /// The last lines that it said.
        said: String,
    },
    /// It did not come to serve.
    #[error("the machine did not serve within {0:?}")]
    NotServing(Duration),
    /// It serves, but does not have what the request names.
    #[error("the application answers {answer} to {asked}")]
    Answers {
        /// The first line of its answer.
        answer: String,
        /// The first line of the request.
        asked: String,
    },
    /// It printed nothing more.
    #[error("the machine printed no figures for {0:?}")]
    Silent(Duration),
    /// Its control socket failed.
    #[error("the machine's statistics are not available")]
    Control(#[from] ClientError),
    /// Its threads could not be read.
    #[error("the machine's CPU time cannot be read")]
    Cpu(#[source] io::Error),
    /// A signal came meanwhile.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl ApplianceError {
    /// The program that is not installed, if that is why.
    pub fn not_installed(&self) -> Option<String> {
        match self {
            Self::Execute { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(path.display().to_string())
            }
            _ => None,
        }
    }

    /// The exit code that fits.
    pub fn exit_code(&self) -> ExitCode {
        let known = |code: i32| {
            let all = ExitCode::ALL.iter().map(|(known, _)| *known);
            all.filter(|known| *known != ExitCode::Success)
                .find(|known| i32::from(*known as u8) == code)
        };
        match self {
            Self::Execute { .. } | Self::Prepare(_) | Self::Cpu(_) => ExitCode::Internal,
            Self::Journal(_) => ExitCode::Output,
            Self::Ended { code, .. } => known(*code).unwrap_or(ExitCode::WeighFailed),
            Self::Files(error) | Self::Qemu(error) => error.exit_code(),
            Self::NotServing(_) | Self::Answers { .. } | Self::Silent(_) => ExitCode::WeighFailed,
            Self::Control(_) => ExitCode::ControlFailed,
            Self::Interrupted(interrupted) => interrupted.exit_code(),
        }
    }
}
