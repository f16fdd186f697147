//! `tare kill`: kills machines at once, or sends their programs a signal.

use rustix::io::Errno;
use rustix::process::Signal;
use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_host::signal_number::SignalNumber;
use tare_host::signals::{ENDS, OF_PROGRAMS};
use tare_launch::record::{EngineName, Record};

use super::stop::{each, kill_one};
use crate::args::KillArgs;
use crate::failure::{CommandResult, Explain, Failure};

/// A signal that does not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KillError {
    /// Its guest gets none.
    #[error("{0:?} gets no signals: only programs and commands of Linux guests do, once they run")]
    NoProgram(String),
    /// It does not pass through the machine's process.
    #[error(
        "{name:?} is in QEMU: its program gets HUP, INT, QUIT, TERM, USR1 and USR2, and not {signal}"
    )]
    NotPassed {
        /// The machine.
        name: String,
        /// The signal.
        signal: SignalNumber,
    },
    /// Its process did not take it.
    #[error("cannot signal the process of the machine {name:?}")]
    Process {
        /// The machine.
        name: String,
        /// Why.
        source: Errno,
    },
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
            Self::NoProgram(_) | Self::NotPassed { .. } => ExitCode::Usage,
            Self::Ask { .. } | Self::Process { .. } => ExitCode::ControlFailed,
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
    if let Ok(record) = Record::read(&dir)
        && record.engine != EngineName::Tare
    {
        return send_to_process(&record, name, signal);
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

/// To the process of a machine in QEMU, which passes signals on.
fn send_to_process(record: &Record, name: &str, signal: SignalNumber) -> Result<(), Failure> {
    let process = record.process().filter(|_| record.takes_signals());
    let process = process.ok_or_else(|| KillError::NoProgram(name.to_owned()))?;
    let passed = ENDS.iter().chain(&OF_PROGRAMS);
    let number = Signal::from_named_raw(signal.raw());
    let number = number.filter(|number| passed.clone().any(|it| *it == number.as_raw()));
    let number = number.ok_or_else(|| KillError::NotPassed {
        name: name.to_owned(),
        signal,
    })?;
    let sent = process.signal(number).map_err(|source| KillError::Process {
        name: name.to_owned(),
        source,
    });
    Ok(sent?)
}
