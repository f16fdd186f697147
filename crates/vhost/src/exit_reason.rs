//! Why serving ended, and the exit code of each reason.

use tare_control::api::Stop;
use tare_control::exit::ExitCode;
use tare_daemon::signals;

/// Why serving ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal.
    Signal(signals::Request),
    /// A request on the control socket.
    Stopped(Stop),
    /// The I/O thread failed; a sentence.
    Failed(String),
}

impl ExitReason {
    /// The process's exit code.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Signal(signals::Request::Interrupt) => ExitCode::Interrupted,
            Self::Signal(signals::Request::Terminate) | Self::Stopped(Stop::Kill) => {
                ExitCode::Terminated
            }
            Self::Stopped(Stop::PowerOff) => ExitCode::Success,
            Self::Failed(_) => ExitCode::Internal,
        }
    }
}
