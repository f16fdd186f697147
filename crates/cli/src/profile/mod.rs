//! `tare profile`: what an application uses of its kernel.
//!
//! The observation is in `tare_probe::syscalls`; this module chooses the target and the output, and
//! prints. Everything that can be checked is checked before a command starts.

mod guest;
mod lacks;
mod merge;
mod output;
mod plan;
pub(crate) mod read;
mod text;
mod units;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use tare_control::exit::{ExitCode, RunExit};
use tare_host::printable::printable_lines;
use tare_host::stderr;
use tare_launch::ending;
use tare_probe::Unavailable;
use tare_probe::syscalls::{
    Because, FollowError, Limits, LogEnd, LogError, ObservationEnd, Recorder, StartError,
};
use tare_profile::{Profile, Way};

use crate::args::{ProfileArgs, ProfileVerb};
use crate::failure::{Explain, Failure, RunResult};
use crate::output::{print, warn};
use crate::signals::Requests;
use output::OutFile;
use plan::{Plan, Subject};

impl Explain for FollowError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NotPermitted(_) => ExitCode::ObservePermission,
            _ => ExitCode::NoSuchProcess,
        }
    }
}

impl Explain for StartError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Follow(_) => ExitCode::Internal,
            Self::Spawn(_) => ExitCode::CannotRun,
        }
    }
}

/// BPF is unavailable.
#[derive(Debug, thiserror::Error)]
#[error("system calls cannot be observed here: {0}")]
struct NoObserver(Unavailable);

impl Explain for NoObserver {
    fn code(&self) -> ExitCode {
        ExitCode::NoObserver
    }

    fn hint(&self) -> Option<String> {
        Some("become root, or profile the application in a guest with --in-guest".to_owned())
    }
}

impl Explain for LogError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// Watching failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch the command")]
struct WatchError(#[from] std::io::Error);

impl Explain for WatchError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

/// Profiles an application, or merges profiles.
pub(crate) fn profile(args: ProfileArgs) -> RunResult {
    if let Some(ProfileVerb::Merge(args)) = &args.verb {
        return merge::merge(args).map(RunExit::from);
    }
    let plan = plan::plan(args)?;
    // Before the first temporary file: what is unfinished is removed.
    let requests = Requests::watch().map_err(|error| Failure::new(ExitCode::Internal, error))?;
    match &plan.subject {
        Subject::Guest { root, command } => guest::profile(&plan, root, command, &requests),
        subject => here(&plan, subject, requests),
    }
}

/// Profiles on this kernel.
fn here(plan: &Plan, subject: &Subject, requests: Requests) -> RunResult {
    let out = plan.out.as_deref().map(OutFile::open).transpose()?;
    let log = plan.log.as_deref().map(OutFile::open).transpose()?;
    let log_file = log.as_ref().map(OutFile::file).transpose()?;
    let mut recorder = Recorder::start(log_file).map_err(NoObserver)?;
    // One that came while the observer was loaded starts no command.
    requests.check()?;
    let limits = Limits {
        length: plan.length,
        interrupted: requests.interrupted,
        terminated: requests.terminated,
    };
    let (end, way) = observe(&mut recorder, plan, subject, &limits)?;
    let (profile, log_end) = recorder.finish(&plan.label, way);
    keep(plan, &profile, out)?;
    if let (Some(file), Some(end)) = (log, log_end) {
        tell_log(&file, end?);
        file.commit()?;
    }
    Ok(ended(&end))
}

/// Writes the profile to its file, and prints a summary.
fn keep(plan: &Plan, profile: &Profile, out: Option<OutFile>) -> Result<(), Failure> {
    let json = profile
        .to_json()
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    if let Some(out) = out {
        out.write(&json)?;
    }
    if plan.json {
        print(&String::from_utf8_lossy(&json))?;
        return Ok(());
    }
    let text = text::of(profile, plan.out.as_deref());
    match &plan.subject {
        // Standard output belongs to the command.
        Subject::Command(_) => stderr::text(text),
        Subject::Program(words) => {
            let lacks = lacks::of(profile).text(&words.name, profile.calls.len());
            stderr::text(format_args!("{text}{}", printable_lines(&lacks)));
        }
        _ => drop(print(&text)?),
    }
    Ok(())
}

fn tell_log(file: &OutFile, end: LogEnd) {
    let calls = end.written;
    match end.missing {
        0 => warn(&format!("{calls} calls are in {}", file.shown())),
        missing => warn(&format!(
            "{calls} calls are in {}; {missing} are missing there, and counted",
            file.shown()
        )),
    }
}

fn observe(
    recorder: &mut Recorder,
    plan: &Plan,
    subject: &Subject,
    limits: &Limits,
) -> Result<(ObservationEnd, Way), Failure> {
    match subject {
        Subject::Command(words) | Subject::Program(words) => {
            let mut command = Command::new(&words.program);
            command.arg0(&words.name).args(&words.arguments);
            if plan.json {
                // Standard output belongs to the profile.
                command.stdout(Stdio::from(std::io::stderr()));
            }
            let mut child = recorder.spawn(&mut command)?;
            let end = recorder.until_command_ends(&mut child, limits, |processes| {
                warn(&format!(
                    "the command has ended; processes that it left behind: {processes}, \
                     observed until they end, or Ctrl-C ends them"
                ));
            });
            Ok((end.map_err(WatchError)?, Way::Command(words.all())))
        }
        Subject::Pid(pid) => {
            recorder.follow(*pid)?;
            let end = recorder.until_all_end(limits).map_err(WatchError)?;
            Ok((end, Way::Pid(*pid)))
        }
        Subject::Container(container) => {
            let name = container.cgroup.display().to_string();
            recorder.follow_container(container.clone())?;
            let end = recorder.until_all_end(limits).map_err(WatchError)?;
            Ok((end, Way::Container(name)))
        }
        Subject::Guest { .. } => unreachable!("a guest is observed from within"),
    }
}

/// Passes the command's status on, unless we ended the command.
fn ended(end: &ObservationEnd) -> RunExit {
    match (end.because, end.status) {
        (Because::Ended, Some(status)) => RunExit::Status(ending::status(status)),
        (Because::Ended | Because::Time, _) => ExitCode::Success.into(),
        // Ending it is the normal way to observe a running process for a chosen time.
        (Because::Interrupted, None) => ExitCode::Success.into(),
        (Because::Interrupted, Some(_)) => ExitCode::Interrupted.into(),
        (Because::Terminated, _) => ExitCode::Terminated.into(),
    }
}
