//! `tare stop`: requests the end, waits, and kills a machine that does not end in time.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tare_control::api::Stop;
use tare_control::client::Client;
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, RunDirError, RunRoot};
use tare_launch::guest_signals::STOP_REQUEST;
use tare_launch::record::{EngineName, Record};
use tare_launch::{limits, user};
use tare_qemu::qmp::Qmp;

use crate::args::StopArgs;
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::warn;

/// How often to check whether a machine has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How long to wait before the next request.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long the kernel may take to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A machine that did not end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopError {
    /// It was killed and still exists.
    #[error("the machine {0:?} is still running after SIGKILL")]
    Immortal(String),
    /// It did not take the request, and its process is unknown.
    #[error("the machine {0:?} does not answer, and its process is unknown")]
    NoProcess(String),
}

impl Explain for StopError {
    fn code(&self) -> ExitCode {
        ExitCode::ControlFailed
    }
}

/// Stops each machine.
pub(crate) fn stop(args: &StopArgs) -> CommandResult {
    let limit = Duration::from_secs(args.time.into());
    each(&args.names, |root, name| stop_one(root, name, limit))
}

/// Does this to each machine. Continues after a failure; the first one decides the exit code.
pub(super) fn each(
    names: &[String],
    act: impl Fn(&RunRoot, &str) -> Result<(), Failure>,
) -> CommandResult {
    let root = RunRoot::open_default()?;
    let mut first = None;
    for name in names {
        if let Err(failure) = act(&root, name) {
            match first {
                None => first = Some(failure),
                Some(_) => warn(&failure.sentence()),
            }
        }
    }
    limits::sweep();
    user::sweep();
    first.map_or(Ok(ExitCode::Success), Err)
}

fn stop_one(root: &RunRoot, name: &str, limit: Duration) -> Result<(), Failure> {
    let dir = root.find(name)?;
    if !ends_when_asked(&dir, limit) {
        kill(&dir, name, || {
            warn(&format!(
                "{name} did not end within {} s: killed",
                limit.as_secs()
            ));
        })?;
    }
    clean(root, name)
}

/// Kills a machine, without asking it.
pub(super) fn kill_one(root: &RunRoot, name: &str) -> Result<(), Failure> {
    let dir = root.find(name)?;
    kill(&dir, name, || ())?;
    clean(root, name)
}

fn kill(dir: &RunDir, name: &str, say: impl FnOnce()) -> Result<(), Failure> {
    let record = Record::read(dir).ok();
    // The keeper would start the machine again.
    let keeper = record.as_ref().and_then(|record| record.keeper?.open());
    if let Some(keeper) = keeper {
        let _ = keeper.signal(Signal::TERM);
    }
    let process = record
        .and_then(|record| record.process())
        .ok_or_else(|| StopError::NoProcess(name.to_owned()))?;
    say();
    let _ = process.signal(Signal::KILL);
    if !ends_within(dir, KILL_LIMIT) {
        return Err(StopError::Immortal(name.to_owned()).into());
    }
    Ok(())
}

/// Requests the end, and again each second: a booting guest does not receive it yet, and a failing
/// one may be started again. Returns whether the machine ends in time.
fn ends_when_asked(dir: &RunDir, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        ask(dir, Record::read(dir).ok().as_ref(), rest);
        let rest = end.saturating_duration_since(Instant::now());
        if ends_within(dir, rest.min(ASK_AGAIN)) {
            return true;
        }
        if rest <= ASK_AGAIN {
            return false;
        }
    }
}

/// Sends the request in the engine's protocol. Only the machine's end shows whether it arrived.
fn ask(dir: &RunDir, record: Option<&Record>, limit: Duration) {
    let limit = limit.max(LOOK);
    let engine = record.map_or(EngineName::Tare, |record| record.engine);
    let asked = match engine {
        EngineName::Tare | EngineName::Blk => Client::new(dir.control_socket())
            .with_timeout(limit)
            .stop(Stop::PowerOff)
            .is_ok(),
        _ if record.is_some_and(Record::takes_signals) => {
            let process = record.and_then(Record::process);
            process.is_some_and(|process| process.signal(STOP_REQUEST).is_ok())
        }
        EngineName::Qemu | EngineName::QemuKvm => quit(&dir.control_socket(), limit).is_ok(),
    };
    if asked {
        return;
    }
    if let Some(process) = record.and_then(Record::process) {
        let _ = process.signal(Signal::TERM);
    }
}

/// QEMU drops a command whose client has gone, so this waits for its answer.
fn quit(socket: &Path, limit: Duration) -> io::Result<()> {
    let mut qmp = Qmp::connect(socket, limit)?;
    if !qmp.begin()? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    qmp.execute("quit", &json!({})).map(drop)
}

fn ends_within(dir: &RunDir, limit: Duration) -> bool {
    let begin = Instant::now();
    loop {
        if !dir.is_alive() {
            return true;
        }
        if begin.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Removes what a killed machine left. A new machine may have the name by now.
fn clean(root: &RunRoot, name: &str) -> Result<(), Failure> {
    match root.remove(name) {
        Ok(()) | Err(RunDirError::NotRunning(_) | RunDirError::InUse(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
