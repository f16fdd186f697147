//! The keeper: starts a machine, waits for its end, and starts it again.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tare_control::exit::{ExitCode, RunExit};
use tare_control::rundir::{Recorded, RunDir, RunRoot};
use tare_control::sentence::chain;
use tare_host::child::{ends_with_us, in_own_session, take_inherited};
use tare_host::terminal::SavedInput;

use super::Restart;
use super::attempt_end::{AttemptEnd, attempt_end};
use super::backoff::Backoff;
use super::signals::KeeperSignals;
use crate::attempt::{ATTEMPT, Attempt, Output, read_task};
use crate::engine::Engine;
use crate::failure::{Explain, Failure, RunResult};
use crate::interruption::Interruption;
use crate::log_bound::bound_once;
use crate::machine::{Launched, RunFileError, Starting};
use crate::plan::Plan;
use crate::record::{ProcessName, Record};
use crate::request::JobMode;
use crate::run_dir_guard::RunDirGuard;
use crate::{Terminal, background, launch, monitor, qemu};

/// First argument of a keeper's command line; no verb begins like this.
const KEEP: &str = "--keep";

/// The task of a keeper in the background.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    run_dir: PathBuf,
    lock: RawFd,
    most: Option<u32>,
    record: Record,
}

/// Why a keeper cannot work.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    /// The task cannot be read.
    #[error("cannot read the keeper's task")]
    Task(#[source] io::Error),
    /// An attempt cannot be started or waited for.
    #[error("cannot start the machine")]
    Start(#[source] io::Error),
}

impl Explain for KeepError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

/// Starts the planned machine, and again as `restart` says; `args` are the command line that it
/// was planned from. In the background this returns when the machine answers for the first time.
pub fn keep(
    plan: Plan,
    restart: Restart,
    args: Vec<OsString>,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    let Restart::OnFailure { most } = restart else {
        return launch::launch(plan, terminal);
    };
    let record = launch::record(&plan.machine, &plan.engine, &plan.net);
    let (place, name) = (plan.machine.place, plan.name.clone());
    let is_qemu = matches!(plan.engine, Engine::Qemu { .. });
    // Each attempt opens and claims everything anew.
    drop(plan);
    let program = env::current_exe().map_err(KeepError::Start)?;
    let interruption = Interruption::watch().map_err(|e| Failure::new(ExitCode::Internal, e))?;
    let run_dir = RunDirGuard::take(&RunRoot::open_default()?, &name)?;
    let console_log = launch::console_log(run_dir.dir())?;
    if place == JobMode::Background {
        let starting = Starting {
            run_dir,
            console_log,
            interruption,
        };
        let task = Task::of(record, most);
        return detach(starting, task, program, &args, is_qemu, terminal);
    }
    let keeper = Keeper {
        dir: run_dir.dir().clone(),
        lock: run_dir
            .lock()
            .as_fd()
            .try_clone_to_owned()
            .map_err(KeepError::Start)?,
        program,
        args,
        output: Output::Terminal,
    };
    let signals = KeeperSignals::take().map_err(KeepError::Start)?;
    interruption.check()?;
    let end = keeper.run(record, most, &signals, terminal)?;
    if end.is_removed {
        // Another machine may have taken the name.
        run_dir.hand_over();
    }
    Ok(Launched::Ended(RunExit::Status(end.code)))
}

/// Starts a keeper in the background; its machine answers.
fn detach(
    starting: Starting,
    mut task: Task,
    program: PathBuf,
    args: &[OsString],
    is_qemu: bool,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    let dir = starting.run_dir.dir().clone();
    task.run_dir = dir.path().to_owned();
    task.lock = starting.run_dir.lock().as_raw_fd();
    let keeps = fcntl_setfd(starting.run_dir.lock(), FdFlags::empty());
    keeps.map_err(|errno| KeepError::Start(errno.into()))?;
    let document = serde_json::to_string(&task).map_err(|e| KeepError::Task(e.into()))?;
    let mut command = Command::new(program);
    in_own_session(&mut command)
        .arg(KEEP)
        .arg(document)
        .args(args)
        .stdin(Stdio::null());
    let answers: Box<dyn FnMut() -> bool> = if is_qemu {
        Box::new(qemu::answers(&dir))
    } else {
        Box::new(monitor::answers(&dir))
    };
    background::detach(command, starting, None, terminal, answers)
}

/// Runs a keeper if the command line describes one; `None` for any other.
pub fn keeper_from_args(
    mut args: impl Iterator<Item = OsString>,
    terminal: &dyn Terminal,
) -> Option<RunResult> {
    if args.next()? != OsStr::new(KEEP) {
        return None;
    }
    let task = read_task(args.next());
    Some(match task {
        Ok(task) => in_background(task, args.collect(), terminal),
        Err(error) => Err(KeepError::Task(error).into()),
    })
}

fn in_background(task: Task, args: Vec<OsString>, terminal: &dyn Terminal) -> RunResult {
    let keeper = Keeper {
        dir: RunDir::at(&task.run_dir),
        lock: take_inherited(task.lock).map_err(KeepError::Task)?,
        program: env::current_exe().map_err(KeepError::Start)?,
        args,
        output: Output::Log,
    };
    let signals = KeeperSignals::take().map_err(KeepError::Start)?;
    let ended = keeper.run(task.record, task.most, &signals, terminal);
    keeper.leave(ended, terminal)
}

impl Task {
    fn of(record: Record, most: Option<u32>) -> Self {
        Self {
            run_dir: PathBuf::new(),
            lock: -1,
            most,
            record,
        }
    }
}

/// A machine with its keeper.
struct Keeper {
    dir: RunDir,
    lock: OwnedFd,
    /// The path of `tare` when the keeper started. An upgrade puts a new file there, and the kernel then names
    /// the keeper's own with " (deleted)".
    program: PathBuf,
    args: Vec<OsString>,
    output: Output,
}

/// How the last attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    code: u8,
    /// A user requested it, so nothing stays.
    was_requested: bool,
    /// The directory is gone.
    is_removed: bool,
    /// The lock file records how.
    is_recorded: bool,
}

impl End {
    /// Of a keeper that could not go on.
    fn failed(code: u8) -> Self {
        Self {
            code,
            was_requested: false,
            is_removed: false,
            is_recorded: false,
        }
    }
}

impl Keeper {
    /// Makes attempts until the last one.
    fn run(
        &self,
        mut record: Record,
        most: Option<u32>,
        signals: &KeeperSignals,
        terminal: &dyn Terminal,
    ) -> Result<End, Failure> {
        let mut backoff = Backoff::new(most);
        let input = SavedInput::save();
        loop {
            record.restarts = backoff.total();
            record.waits_after = None;
            self.begin(&mut record, terminal)?;
            let began = Instant::now();
            let status = self.attempt(record.restarts, signals);
            // A machine that was killed did not restore it.
            input.restore();
            let status = status?;
            let recorded = self.dir.recorded()?;
            let ended = attempt_end(&recorded, status);
            let end = |code: u8, was_requested| End {
                code,
                was_requested,
                is_removed: recorded == Recorded::Removed,
                is_recorded: matches!(recorded, Recorded::End(_)),
            };
            if signals.received().is_some() {
                return Ok(end(ended_code(ended), true));
            }
            let code = match ended {
                AttemptEnd::Over(code) => return Ok(end(code, recorded == Recorded::Removed)),
                // A machine that never started would fail again.
                AttemptEnd::NotStarted(code) if backoff.total() == 0 => {
                    return Ok(end(code, false));
                }
                AttemptEnd::Failed(code) | AttemptEnd::NotStarted(code) => code,
            };
            let Some(delay) = backoff.next(began.elapsed()) else {
                terminal.warn(&gives_up(self.dir.name(), code, backoff.total()));
                return Ok(end(code, false));
            };
            terminal.warn(&starts_again(self.dir.name(), code, backoff.total(), delay));
            record.restarts = backoff.total();
            record.waits_after = Some(code);
            self.write(&record, terminal);
            signals.wait(delay);
            if let Some(signal) = signals.received() {
                return Ok(end(128 + u8::try_from(signal).unwrap_or_default(), true));
            }
        }
    }

    /// Prepares the directory for a start, with this process as the machine's.
    fn begin(&self, record: &mut Record, terminal: &dyn Terminal) -> Result<(), Failure> {
        self.dir.begin_again()?;
        let bounded = bound_once(&self.dir.console_log());
        bounded.map_err(RunFileError::of("the console's log", &self.dir))?;
        record.keeper = ProcessName::own();
        record.set_process(std::process::id());
        self.write(record, terminal);
        Ok(())
    }

    /// Updates what `tare ps` shows. A full run root is not a reason to end: the attempt reports
    /// what it cannot do without.
    fn write(&self, record: &Record, terminal: &dyn Terminal) {
        let written = record.write(&self.dir);
        if let Err(error) = written.map_err(RunFileError::of("run.json", &self.dir)) {
            terminal.warn(&chain(&error));
        }
    }

    /// Starts the machine and waits for its end.
    fn attempt(&self, restarts: u32, signals: &KeeperSignals) -> Result<ExitStatus, Failure> {
        let failed = KeepError::Start;
        fcntl_setfd(&self.lock, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let attempt = Attempt {
            run_dir: self.dir.path().to_owned(),
            lock: self.lock.as_raw_fd(),
            restarts,
            keeper: ProcessName::own().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?,
            output: self.output,
        };
        let document = serde_json::to_string(&attempt).map_err(|e| failed(e.into()))?;
        let mut command = Command::new(&self.program);
        // A machine without its keeper would run on, and not be started again. The calling thread
        // lives as long as the keeper.
        ends_with_us(&mut command, Signal::KILL)
            .arg(ATTEMPT)
            .arg(document)
            .args(&self.args);
        let mut child = command.spawn().map_err(failed)?;
        signals.pass_to(&child);
        let status = child.wait();
        signals.pass_to_none();
        Ok(status.map_err(failed)?)
    }

    /// Leaves nothing after a request; otherwise log and exit code, also of a keeper that failed.
    fn leave(&self, ended: Result<End, Failure>, terminal: &dyn Terminal) -> RunResult {
        let end = match &ended {
            Ok(end) => *end,
            Err(failure) => End::failed(failure.code() as u8),
        };
        let left = match end {
            End {
                is_removed: true, ..
            } => Ok(()),
            End {
                was_requested: true,
                ..
            } => self.dir.remove(),
            End {
                is_recorded: true, ..
            } => Ok(()),
            End { code, .. } => self.dir.leave_ended(code),
        };
        if let Err(error) = left {
            terminal.warn(&chain(&error));
        }
        ended.map(|end| RunExit::Status(end.code))
    }
}

fn ended_code(ended: AttemptEnd) -> u8 {
    match ended {
        AttemptEnd::Over(code) | AttemptEnd::Failed(code) | AttemptEnd::NotStarted(code) => code,
    }
}

fn starts_again(name: &str, code: u8, restarts: u32, delay: Duration) -> String {
    let delay = delay.as_secs_f64();
    format!("{name} ended with exit code {code}: restart {restarts} follows in {delay} s")
}

fn gives_up(name: &str, code: u8, restarts: u32) -> String {
    format!(
        "{name} ended with exit code {code} after {restarts} restarts: no further one (--restart)"
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::record::{EngineName, now_s};

    /// Keeps the warnings.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Heard {
        fn count(&self, text: &str) -> usize {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter(|line| line.contains(text)).count()
        }
    }

    impl Terminal for Heard {
        fn warn(&self, text: &str) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(text.to_owned());
        }

        fn console(&self, _: &[u8]) {}
    }

    /// A keeper of the machine `web` in this root, whose attempts execute `program`.
    fn keeper(root: &Path, program: &Path) -> Keeper {
        let root = RunRoot::open(root).unwrap();
        let (dir, lock) = root.create("web").unwrap();
        File::create(dir.console_log()).unwrap();
        Keeper {
            dir,
            lock: lock.into(),
            program: program.to_owned(),
            args: Vec::new(),
            output: Output::Log,
        }
    }

    /// The exit code that it left.
    fn recorded(keeper: &Keeper) -> Option<u8> {
        match keeper.dir.recorded() {
            Ok(Recorded::End(end)) => Some(end.code),
            _ => None,
        }
    }

    fn record() -> Record {
        Record {
            engine: EngineName::Tare,
            pid: 0,
            start_time: None,
            image: "web".to_owned(),
            cpus: 1,
            memory_mib: 64,
            ports: Vec::new(),
            user: None,
            started_s: now_s(),
            restarts: 0,
            keeper: None,
            waits_after: None,
            reload: None,
            passes_signals: false,
        }
    }

    /// A program that kills itself. Another process writes it: one that a thread of this process starts
    /// meanwhile would have it open for writing, and it could not be executed.
    fn killed(directory: &Path) -> PathBuf {
        let path = directory.join("killed");
        let script = r#"printf '#!/bin/sh\nkill -KILL $$\n' > "$1" && chmod 700 "$1""#;
        let mut sh = Command::new("sh");
        let written = sh.args(["-c", script, "sh"]).arg(&path).status();
        assert!(written.unwrap().success());
        path
    }

    #[test]
    fn a_status_that_cannot_be_written_does_not_end_the_keeper() {
        let keep = tempfile::tempdir().unwrap();
        let keeper = keeper(&keep.path().join("tare"), &killed(keep.path()));
        // As on a full file system, although root may write everything.
        fs::create_dir(keeper.dir.run_json()).unwrap();
        let (heard, signals) = (Heard::default(), KeeperSignals::take().unwrap());
        let ended = keeper.run(record(), Some(2), &signals, &heard);
        assert_eq!(ended.as_ref().map(|end| end.code).ok(), Some(137));
        assert_eq!(heard.count("follows in"), 2);
        assert_eq!(heard.count("run.json"), 5);
        let outcome = keeper.leave(ended, &heard);
        assert!(matches!(outcome, Ok(RunExit::Status(137))));
        assert_eq!(recorded(&keeper), Some(137));
    }

    #[test]
    fn a_keeper_that_fails_leaves_an_exit_code() {
        let keep = tempfile::tempdir().unwrap();
        let keeper = keeper(&keep.path().join("tare"), &keep.path().join("missing"));
        let (heard, signals) = (Heard::default(), KeeperSignals::take().unwrap());
        let ended = keeper.run(record(), None, &signals, &heard);
        let outcome = keeper.leave(ended, &heard);
        assert_eq!(outcome.unwrap_err().code(), ExitCode::Internal);
        assert_eq!(recorded(&keeper), Some(ExitCode::Internal as u8));
    }
}
