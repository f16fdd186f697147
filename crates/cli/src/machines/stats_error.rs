//! Why there are no statistics.

use tare_control::client::ClientError;
use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// Statistics are unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatsError {
    /// QEMU has no such counters.
    #[error(
        "tare stats works with Tare's own monitor only, and {0:?} runs in QEMU: start it with --engine tare"
    )]
    Qemu(String),
    /// The machine did not answer.
    #[error("cannot query the machine {name:?}")]
    Ask {
        /// The machine.
        name: String,
        /// Why.
        source: ClientError,
    },
    /// The machine has no disk to watch.
    #[error("{0:?} has no disk to watch; `tare run --disk FILE` adds one")]
    NoDisk(String),
}

impl Explain for StatsError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Qemu(_) | Self::Ask { .. } => ExitCode::ControlFailed,
            Self::NoDisk(_) => ExitCode::Usage,
        }
    }
}
