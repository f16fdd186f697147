//! `--detach`: starts a machine in its own session and waits until it answers.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_control::exit::ExitCode;
use tare_host::child::ended_within;

use crate::Terminal;
use crate::ending;
use crate::failure::{Explain, Failure};
use crate::interruption::Interruption;
use crate::machine::{Launched, RunFileError, Starting};
use crate::record::Record;

/// How long a machine in the background may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a machine that does not answer may take to end after a request.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two requests to a machine that does not answer yet.
const PAUSE: Duration = Duration::from_millis(2);
/// Most bytes of the log shown when a machine did not start.
const LOG_SHOWN: i64 = 16 * 1024;

/// A machine that runs and does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the machine did not answer within {} s", ANSWER_LIMIT.as_secs())]
struct Silent;

impl Explain for Silent {
    fn code(&self) -> ExitCode {
        ExitCode::ControlFailed
    }
}

/// The machine's program cannot be executed.
#[derive(Debug, thiserror::Error)]
#[error("cannot execute {}", program.display())]
struct NotStarted {
    program: PathBuf,
    source: io::Error,
}

/// Starts `command`, which becomes the machine, and gives the machine's name
/// as soon as it `answers`. Standard input is the command's own choice. A keeper and a monitor
/// write their records themselves.
pub(crate) fn detach(
    mut command: Command,
    starting: Starting,
    record: Option<Record>,
    terminal: &dyn Terminal,
    answers: impl FnMut() -> bool,
) -> Result<Launched, Failure> {
    let Starting {
        run_dir,
        console_log,
        interruption,
    } = starting;
    let failed = |error| Failure::new(ExitCode::Internal, error);
    // Opened separately: the monitor writes the guest's output at its own offsets, and messages
    // through a copy of its descriptor would overwrite that.
    let path = run_dir.dir().console_log();
    let log = || {
        let messages = File::options().append(true).open(&path);
        messages.map(Stdio::from).map_err(failed)
    };
    let mut child = command
        .stdout(log()?)
        .stderr(log()?)
        .spawn()
        .map_err(|source| {
            let program = command.get_program().into();
            Failure::new(ExitCode::Internal, NotStarted { program, source })
        })?;
    let written = record.map_or(Ok(()), |mut record| {
        record.set_process(child.id());
        record.write(run_dir.dir())
    });
    let started = match written {
        // A machine that ended at once has removed its directory already; its
        // exit code says why.
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(RunFileError::of("run.json", run_dir.dir())(error).into())
        }
        _ => wait(&mut child, &interruption, answers),
    };
    match started {
        Ok(None) => Ok(Launched::Background(run_dir.hand_over().name().to_owned())),
        Ok(Some(code)) => {
            show(console_log, terminal);
            Ok(Launched::Ended(code.into()))
        }
        Err(failure) => {
            end(&mut child);
            show(console_log, terminal);
            Err(failure)
        }
    }
}

/// Requests the end first: a keeper passes the request on to its machine.
fn end(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    if ended_within(child, END_LIMIT).is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// `None` when the machine answers; its exit code if it ended before.
fn wait(
    child: &mut Child,
    interruption: &Interruption,
    mut answers: impl FnMut() -> bool,
) -> Result<Option<ExitCode>, Failure> {
    let begin = Instant::now();
    while begin.elapsed() < ANSWER_LIMIT {
        let answers = answers();
        // A user who has interrupted the start expects no machine.
        interruption.check()?;
        if answers {
            return Ok(None);
        }
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(|error| Failure::new(ExitCode::Internal, error))? {
            return Ok(Some(ending::code(status)));
        }
        std::thread::sleep(PAUSE);
    }
    Err(Silent.into())
}

/// Shows the end of the log of a machine that did not start: the guest's last lines and the
/// monitor's message.
fn show(mut log: File, terminal: &dyn Terminal) {
    let length = log.metadata().map_or(0, |metadata| metadata.len());
    let shown = i64::try_from(length).unwrap_or(LOG_SHOWN).min(LOG_SHOWN);
    let mut bytes = Vec::new();
    let read = log
        .seek(SeekFrom::End(-shown))
        .and_then(|_| log.read_to_end(&mut bytes));
    if read.is_ok() {
        terminal.console(&bytes);
    }
}
