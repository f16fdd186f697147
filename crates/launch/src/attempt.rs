//! [`Attempt`]: what a keeper passes to the `tare` process that starts the machine once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunDir;
use tare_host::child::take_inherited;

use crate::failure::{Explain, Failure};
use crate::record::ProcessName;
use crate::run_dir_guard::RunDirGuard;

/// First word of an attempt's command line; no verb begins like this.
pub(crate) const ATTEMPT: &str = "--attempt";

/// One start of a machine whose run directory is there and locked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The run directory.
    pub(crate) run_dir: PathBuf,
    /// Its lock, inherited from the keeper.
    pub(crate) lock: RawFd,
    /// Starts before this one.
    pub(crate) restarts: u32,
    /// The keeper.
    pub(crate) keeper: ProcessName,
    /// Where the console goes.
    pub(crate) output: Output,
}

/// Where the console of an attempt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// To the terminal and the log.
    Terminal,
    /// To the log.
    Log,
}

/// The task of an attempt is unreadable.
#[derive(Debug, thiserror::Error)]
#[error("cannot take over the machine's run directory")]
struct TaskError(#[source] io::Error);

impl Explain for TaskError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

impl Attempt {
    /// The machine's name.
    pub(crate) fn name(&self) -> String {
        RunDir::at(&self.run_dir).name().to_owned()
    }

    /// Takes over the run directory, which stays after the end.
    pub(crate) fn claim(&self) -> Result<RunDirGuard, Failure> {
        let lock = take_inherited(self.lock).map_err(TaskError)?;
        Ok(RunDirGuard::keep(
            RunDir::at(&self.run_dir),
            File::from(lock),
        ))
    }
}

/// The attempt that a command line describes, and the user's arguments; `None` for any other
/// command line.
pub fn attempt_from_args(
    mut args: impl Iterator<Item = OsString>,
) -> Option<Result<(Attempt, Vec<OsString>), Failure>> {
    if args.next()? != OsStr::new(ATTEMPT) {
        return None;
    }
    let attempt = read_task(args.next()).map_err(|error| TaskError(error).into());
    Some(attempt.map(|attempt| (attempt, args.collect())))
}

/// Parses an argument of the command line as JSON.
pub(crate) fn read_task<T: for<'de> Deserialize<'de>>(word: Option<OsString>) -> io::Result<T> {
    let document = word
        .and_then(|word| word.into_string().ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    Ok(serde_json::from_str(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_users_are_left_to_the_parser() {
        let args = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        let run = args(&["run", "http"]);
        assert!(attempt_from_args(run.into_iter()).is_none());
        assert!(attempt_from_args(std::iter::empty()).is_none());
        for wrong in [&[ATTEMPT][..], &[ATTEMPT, "{}"], &[ATTEMPT, "run"]] {
            let read = attempt_from_args(args(wrong).into_iter());
            assert!(read.is_some_and(|read| read.is_err()), "{wrong:?}");
        }
    }
}
