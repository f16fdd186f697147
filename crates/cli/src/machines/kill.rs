//! `tare kill`: kills machines at once, or sends their programs a signal.

use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_host::signal_number::SignalNumber;
use tare_launch::record::{EngineName, Record};

use super::stop::{each, kill_one};
use crate::args::KillArgs;
use crate::failure::{CommandResult, Explain, Failure};

/// A signal that does not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KillError {
    /// Its guest gets none.
    #[error("{0:?} gets no signals: only programs in Tare's own monitor do")]
    NoProgram(String),
    /// It did not answer.
    #[error("cannot signal the machine {name:?}")]
    Ask {
        /// The machine.
        name: String,
        /// Why.
        source: ClientError,
    },
}

impl Explain for KillError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoProgram(_) => ExitCode::Usage,
            Self::Ask { .. } => ExitCode::ControlFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::NoProgram(_))
            .then(|| "`tare kill NAME` without --signal ends it".to_owned())
    }
}

/// Kills each machine, or signals its program.
pub(crate) fn kill(args: &KillArgs) -> CommandResult {
    each(&args.names, |root, name| match args.signal {
        SignalNumber::KILL => kill_one(root, name),
        signal => send(root, name, signal),
    })
}

fn send(root: &RunRoot, name: &str, signal: SignalNumber) -> Result<(), Failure> {
    let dir = root.find(name)?;
    let engine = Record::read(&dir).map(|record| record.engine);
    if let Ok(EngineName::Qemu | EngineName::QemuKvm | EngineName::Blk) = engine {
        return Err(KillError::NoProgram(name.to_owned()).into());
    }
    let sent = Client::new(dir.control_socket()).send_signal(signal);
    sent.map_err(|source| match source {
        ClientError::Refused { status: 400, .. } => KillError::NoProgram(name.to_owned()),
        source => KillError::Ask {
            name: name.to_owned(),
            source,
        },
    })?;
    Ok(())
}
