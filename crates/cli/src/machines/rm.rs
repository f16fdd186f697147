//! `tare rm`: removes what ended machines left.

use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDirError, RunRoot};
use tare_launch::{limits, user};

use crate::args::RmArgs;
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::warn;

/// A machine that cannot be removed.
#[derive(Debug, thiserror::Error)]
#[error("the machine {0:?} is running")]
struct StillRunning(String);

impl Explain for StillRunning {
    fn code(&self) -> ExitCode {
        ExitCode::NameInUse
    }

    fn hint(&self) -> Option<String> {
        Some(format!("stop it first (tare stop {})", self.0))
    }
}

/// Removes each machine. Continues after a failure; the first one decides the exit code.
pub(crate) fn rm(args: &RmArgs) -> CommandResult {
    let root = RunRoot::open_default()?;
    let mut first = None;
    for name in &args.names {
        let removed = root.remove(name).map_err(|error| match error {
            RunDirError::InUse(name) => Failure::from(StillRunning(name)),
            other => other.into(),
        });
        match (removed, &first) {
            (Ok(()), _) => {}
            (Err(failure), None) => first = Some(failure),
            (Err(failure), Some(_)) => warn(&failure.sentence()),
        }
    }
    limits::sweep();
    user::sweep();
    first.map_or(Ok(ExitCode::Success), Err)
}
