//! How a verb fails: one sentence, its hint, and the process's exit code. Errors of `tare_launch`
//! have their own; for those of other crates the verbs define them here.

use std::error::Error;

use tare_control::exit::{ExitCode, RunExit};
use tare_control::rundir::RunDirError;
use tare_rootfs::cache::CacheError;
use tare_rootfs::cpio::PackError;
use tare_rootfs::guest::GuestError;
use tare_rootfs::kernel::debian::ObtainError;
use tare_rootfs::modules::ModuleError;
use tare_rootfs::root::ReadRootError;

/// An error with its exit code and a hint for the user. A trait of this crate, unlike
/// [`tare_launch::Explain`], so that any error can implement it.
pub(crate) trait Explain: Error + Send + Sync + 'static {
    /// The exit code for this cause.
    fn code(&self) -> ExitCode;

    /// What to do about it, as a clause that follows the message.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Errors that mean the same as when a machine is started.
macro_rules! as_in_launch {
    ($($error:ty),* $(,)?) => {$(
        impl Explain for $error {
            fn code(&self) -> ExitCode {
                tare_launch::Explain::code(self)
            }

            fn hint(&self) -> Option<String> {
                tare_launch::Explain::hint(self)
            }
        }
    )*};
}

as_in_launch!(
    CacheError,
    GuestError,
    ModuleError,
    ObtainError,
    PackError,
    ReadRootError,
    RunDirError,
    tare_launch::Interrupted,
    tare_launch::RunFileError,
    tare_launch::disk::OpenDiskError,
    tare_launch::site::SiteError,
);

/// Why a verb ended early.
#[derive(Debug)]
pub(crate) struct Failure(tare_launch::Failure);

impl Failure {
    /// The process's exit code.
    pub(crate) fn code(&self) -> ExitCode {
        self.0.code()
    }

    /// The chain of causes and the hint, in one line.
    pub(crate) fn sentence(&self) -> String {
        self.0.sentence()
    }

    /// A failure without its own error type.
    pub(crate) fn new(code: ExitCode, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(tare_launch::Failure::new(code, error))
    }

    /// The same failure with another exit code.
    pub(crate) fn with_code(self, code: ExitCode) -> Self {
        Self(self.0.with_code(code))
    }

    /// Adds a hint: a clause that follows the message.
    pub(crate) fn with_hint(self, hint: String) -> Self {
        Self(self.0.with_hint(Some(hint)))
    }
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        let hint = error.hint();
        Self(tare_launch::Failure::new(error.code(), error).with_hint(hint))
    }
}

impl From<tare_launch::Failure> for Failure {
    fn from(failure: tare_launch::Failure) -> Self {
        Self(failure)
    }
}

/// The result of a run: a code, or the status of a Linux guest's command.
pub(crate) type RunResult = Result<RunExit, Failure>;

/// The result of a verb.
pub(crate) type CommandResult = Result<ExitCode, Failure>;
