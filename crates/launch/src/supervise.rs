//! Waits for QEMU: ends with its status, passes signals on to it or to the guest's command, and removes
//! the run directory. In the background a process of `tare` does nothing else.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tare_abi::exit::GuestExit;
use tare_control::config::GuestKind;
use tare_control::console_exit::{self, ConsoleExit};
use tare_control::exit::{ExitCode, RunExit};
use tare_control::rundir::RunDir;
use tare_control::sentence::chain;
use tare_daemon::jail::{JobSignals, KILL_REQUEST};
use tare_host::child::{ended_within, ignores_hangups_with_us, in_own_session};
use tare_host::signals::{OF_PROGRAMS, requests_to_end};
use tare_host::terminal::SavedInput;

use crate::confined::Jailed;
use crate::failure::{Explain, Failure, RunResult};
use crate::guest_signals::{Fate, GuestSignals, Passing, STOP_REQUEST};
use crate::hold::Hold;
use crate::linux::stdio;
use crate::log_bound::LogBound;
use crate::volume_watch::VolumeWatch;
use crate::{Terminal, confined};

/// First argument of a supervisor's command line; no verb begins like this.
const SUPERVISE: &str = "--supervise";
/// QEMU ends within this after SIGTERM, unless it blocks on a reader of its output or on a disk.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Longest task in bytes.
const TASK_MAX: u64 = 1 << 20;

/// What to start and wait for. The descriptors are already inherited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Supervised {
    /// QEMU and its jail.
    pub(crate) qemu: Jailed,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The run directory, removed at the end.
    pub(crate) run_dir: PathBuf,
    /// What the image is.
    pub(crate) guest: GuestKind,
    /// QEMU's sockets to those who serve its shared directories.
    pub(crate) volumes: Vec<RawFd>,
    /// How signals reach the guest's command, if they do.
    pub(crate) signals: Option<GuestSignals>,
}

/// QEMU did not run, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuperviseError {
    /// The task cannot be read.
    #[error("cannot read the supervisor's task")]
    Task(#[source] io::Error),
    /// QEMU cannot be started or waited for.
    #[error("cannot run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// QEMU does not hold its guest, or its root cannot be emptied.
    #[error("cannot finish QEMU's jail")]
    Hold(#[source] io::Error),
    /// QEMU failed, and printed why.
    #[error("QEMU failed ({0})")]
    Failed(ExitStatus),
    /// A server of a shared directory has ended.
    #[error("virtiofsd has ended, and the machine with it: its shared directory was gone")]
    VolumeEnded,
    /// The guest panicked.
    #[error("the guest panicked")]
    Panic,
    /// The guest had an exception that it does not handle.
    #[error("the guest raised a processor exception that it does not handle")]
    Fault,
}

impl Explain for SuperviseError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Panic => ExitCode::GuestPanic,
            Self::Fault => ExitCode::GuestFault,
            Self::VolumeEnded => ExitCode::Virtiofsd,
            Self::Task(_) | Self::Run { .. } | Self::Hold(_) | Self::Failed(_) => {
                ExitCode::Internal
            }
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Panic | Self::Fault).then(|| "see the end of its console".to_owned())
    }
}

/// A process in its own session that will supervise.
pub(crate) fn command(task: &Supervised) -> io::Result<Command> {
    let mut file = File::from(memfd_create("tare-task", MemfdFlags::empty())?);
    file.write_all(&serde_json::to_vec(task)?)?;
    file.rewind()?;
    let mut command = Command::new(env::current_exe()?);
    in_own_session(&mut command)
        .arg(SUPERVISE)
        .arg(file.as_raw_fd().to_string());
    command.stdin(Stdio::null());
    // The descriptor lives until the process that inherits it has started.
    std::mem::forget(file);
    Ok(command)
}

/// Supervises if the command line describes that; `None` for any other.
pub fn from_args(
    mut args: impl Iterator<Item = OsString>,
    terminal: &dyn Terminal,
) -> Option<RunResult> {
    if args.next()? != OsStr::new(SUPERVISE) {
        return None;
    }
    Some(match read_task(args.next()) {
        Ok(task) => {
            let ended = wait_for_end(&task, &[], || Ok(()));
            leave(&task, &ended, terminal);
            ended.outcome
        }
        Err(error) => Err(SuperviseError::Task(error).into()),
    })
}

fn read_task(descriptor: Option<OsString>) -> io::Result<Supervised> {
    let number: u32 = descriptor
        .and_then(|word| word.into_string().ok()?.parse().ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    let file = File::open(format!("/proc/self/fd/{number}"))?;
    let mut document = Vec::new();
    file.take(TASK_MAX).read_to_end(&mut document)?;
    Ok(serde_json::from_slice(&document)?)
}

/// Leaves log and exit code of a machine in the background that ended by itself. `tare stop` ends
/// QEMU through its monitor, and removes the directory itself.
fn leave(task: &Supervised, ended: &SupervisedEnd, terminal: &dyn Terminal) {
    let dir = RunDir::at(&task.run_dir);
    let code = match &ended.outcome {
        Ok(ended) => ended.number(),
        Err(failure) => failure.code() as u8,
    };
    let left = match ended.end {
        WhoEnded::User => dir.remove(),
        WhoEnded::Guest => dir.leave_ended(code),
    };
    if let Err(error) = left {
        terminal.warn(&chain(&error));
    }
}

/// How QEMU ended, and whether on request.
struct SupervisedEnd {
    outcome: RunResult,
    end: WhoEnded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhoEnded {
    User,
    Guest,
}

/// What to do with the run directory when QEMU has ended.
#[derive(Clone, Copy)]
pub(crate) enum AtEnd<'t> {
    Remove,
    /// Log and exit code of a machine that ended by itself stay.
    Leave(&'t dyn Terminal),
}

/// Starts QEMU, which writes to `streams` of a pipeline, runs `meanwhile`, and waits for QEMU's
/// end. If a step fails QEMU ends as well.
pub(crate) fn run(
    task: &Supervised,
    streams: &[OwnedFd],
    at_end: AtEnd<'_>,
    meanwhile: impl FnOnce() -> Result<(), Failure>,
) -> RunResult {
    let ended = wait_for_end(task, streams, meanwhile);
    match at_end {
        AtEnd::Remove => drop(RunDir::at(&task.run_dir).remove()),
        AtEnd::Leave(terminal) => leave(task, &ended, terminal),
    }
    ended.outcome
}

fn wait_for_end(
    task: &Supervised,
    streams: &[OwnedFd],
    meanwhile: impl FnOnce() -> Result<(), Failure>,
) -> SupervisedEnd {
    let (status, requests) = match start_and_wait(task, streams, meanwhile) {
        Ok(ended) => ended,
        Err(failure) => {
            return SupervisedEnd {
                end: match failure.code() {
                    ExitCode::Virtiofsd => WhoEnded::Guest,
                    _ => WhoEnded::User,
                },
                outcome: Err(failure),
            };
        }
    };
    SupervisedEnd {
        outcome: outcome(task, status, requests.ended_by()),
        end: if requests.have_come() {
            WhoEnded::User
        } else {
            WhoEnded::Guest
        },
    }
}

fn outcome(task: &Supervised, status: ExitStatus, signal: i32) -> RunResult {
    let said = File::open(RunDir::at(&task.run_dir).console_log())
        .ok()
        .and_then(|log| console_exit::read(&log));
    let is_linux = task.guest == GuestKind::Linux;
    match signal {
        SIGINT | SIGQUIT => Ok(ExitCode::Interrupted.into()),
        _ if signal == STOP_REQUEST.as_raw() => Ok(ExitCode::Success.into()),
        SIGTERM | SIGHUP => Ok(ExitCode::Terminated.into()),
        _ => match (said, meaning(status)?) {
            (Some(ConsoleExit::Status(status)), code) if is_linux || has_ended(code) => {
                Ok(RunExit::Status(status))
            }
            (Some(ConsoleExit::Panic), _) if is_linux => Err(SuperviseError::Panic.into()),
            (_, code) => Ok(code.into()),
        },
    }
}

/// Whether the application returned.
fn has_ended(code: ExitCode) -> bool {
    matches!(code, ExitCode::Success | ExitCode::GuestStatus)
}

/// QEMU's exit status, and the requests to end that came.
fn start_and_wait(
    task: &Supervised,
    streams: &[OwnedFd],
    meanwhile: impl FnOnce() -> Result<(), Failure>,
) -> Result<(ExitStatus, Arc<Requests>), Failure> {
    let failed = |source| SuperviseError::Run {
        program: task.qemu.program.path.clone(),
        source,
    };
    let guest = task.signals.as_ref().map(GuestSignals::open).transpose();
    let guest = guest.map_err(failed)?;
    let further = guest.iter().flat_map(|_| OF_PROGRAMS);
    let further = further.chain(guest.iter().map(|_| STOP_REQUEST.as_raw()));
    let signals = Signals::new(requests_to_end().chain(further)).map_err(failed)?;
    let handle = signals.handle();
    let tare = env::current_exe().map_err(failed)?;
    let input = SavedInput::save();
    let (mut child, hold) = spawn(&tare, task).map_err(failed)?;
    let bound = LogBound::start(RunDir::at(&task.run_dir).console_log());
    let requests = Arc::new(Requests::default());
    let qemu = Uncollected::of(&child, task.qemu.program.job_signals);
    let ended = {
        let qemu = qemu.clone();
        move || qemu.end()
    };
    let watch = VolumeWatch::start(&task.volumes, ended).map_err(failed)?;
    let passing = pass_on(signals, guest, qemu.clone(), Arc::clone(&requests));
    let done = meanwhile().and_then(|()| {
        let released = hold.release(|| {
            stdio::make_blocking(streams)?;
            confined::empty_root_of(&tare, &task.qemu, child.id()).map(drop)
        });
        released.map_err(|source| SuperviseError::Hold(source).into())
    });
    if done.is_ok() {
        // The wait below reports an error as well.
        let _ = await_end(&child);
    }
    qemu.forget();
    let status = if done.is_ok() {
        child.wait()
    } else {
        end_held(&mut child, task.qemu.program.job_signals)
    };
    // QEMU restores it unless it was killed.
    input.restore();
    stop(&handle, passing);
    drop(bound);
    let signal = requests.ended_by();
    if watch.is_some_and(VolumeWatch::stop) && signal == 0 {
        return Err(SuperviseError::VolumeEnded.into());
    }
    // A signal from a terminal also ends the process that empties QEMU's root.
    if signal == 0 {
        done?;
    }
    Ok((status.map_err(failed)?, requests))
}

/// Starts QEMU with its guest held.
fn spawn(tare: &Path, task: &Supervised) -> io::Result<(Child, Hold)> {
    let mut command = confined::command(tare, &task.qemu)?;
    command.args(&task.arguments);
    ignores_hangups_with_us(&mut command);
    let (hold, _qemus_end) = Hold::of(&mut command)?;
    Ok((command.spawn()?, hold))
}

/// QEMU until its exit status is reaped: until then no other process gets its number (`wait(2)`),
/// so that a signal reaches QEMU or nothing, even without a pidfd.
#[derive(Clone, Debug)]
struct Uncollected {
    pid: Arc<Mutex<Option<Pid>>>,
    job_signals: JobSignals,
}

impl Uncollected {
    fn of(child: &Child, job_signals: JobSignals) -> Self {
        Self {
            pid: Arc::new(Mutex::new(Some(Pid::from_child(child)))),
            job_signals,
        }
    }

    /// Requests QEMU to end, and kills it if it does not.
    fn end(&self) {
        self.signal(request_to_end(self.job_signals));
        let qemu = self.clone();
        thread::spawn(move || {
            thread::sleep(END_LIMIT);
            qemu.signal(Signal::KILL);
        });
    }

    /// Sends a signal, unless QEMU was reaped.
    fn signal(&self, signal: Signal) {
        // Held until the signal is sent, so that QEMU is not reaped in between.
        if let Some(pid) = *self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// From now on no signal is sent, and the status may be reaped.
    fn forget(&self) {
        *self.pid() = None;
    }

    fn pid(&self) -> MutexGuard<'_, Option<Pid>> {
        self.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the end, without reaping the status.
fn await_end(child: &Child) -> io::Result<()> {
    let id = WaitId::Pid(Pid::from_child(child));
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(id.clone(), options))?;
    Ok(())
}

/// What users requested by signals.
#[derive(Debug, Default)]
struct Requests {
    /// The first signal that ended QEMU, or 0.
    ended_by: AtomicI32,
    /// Whether the guest's command got a request to end.
    is_asked: AtomicBool,
}

impl Requests {
    fn ended_by(&self) -> i32 {
        self.ended_by.load(Ordering::SeqCst)
    }

    fn have_come(&self) -> bool {
        self.ended_by() != 0 || self.is_asked.load(Ordering::SeqCst)
    }
}

fn pass_on(
    mut signals: Signals,
    mut guest: Option<Passing>,
    qemu: Uncollected,
    requests: Arc<Requests>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for signal in signals.forever() {
            let fate = guest
                .as_mut()
                .map(|guest| guest.take(signal, Instant::now()));
            match fate {
                Some(Fate::Passed) => continue,
                Some(Fate::Asked) => {
                    requests.is_asked.store(true, Ordering::SeqCst);
                    continue;
                }
                Some(Fate::Ends) | None => {}
            }
            let order = Ordering::SeqCst;
            match requests.ended_by.compare_exchange(0, signal, order, order) {
                Ok(_) => qemu.end(),
                Err(_) => qemu.signal(request_to_end(qemu.job_signals)),
            }
        }
    })
}

/// By SIGTERM QEMU ends itself, and restores the terminal.
fn request_to_end(job_signals: JobSignals) -> Signal {
    match job_signals {
        JobSignals::Everyones => Signal::TERM,
        JobSignals::Starters => KILL_REQUEST,
    }
}

/// Ends a QEMU whose guest is held and will not run. Until it is reaped, no other process has its
/// number, so no handle is needed; the kernel may not give one.
fn end_held(child: &mut Child, job_signals: JobSignals) -> io::Result<ExitStatus> {
    let _ = kill_process(Pid::from_child(child), request_to_end(job_signals));
    if let Some(status) = ended_within(child, END_LIMIT) {
        return Ok(status);
    }
    child.kill()?;
    child.wait()
}

fn stop(handle: &Handle, passing: JoinHandle<()>) {
    handle.close();
    let _ = passing.join();
}

fn meaning(status: ExitStatus) -> Result<ExitCode, SuperviseError> {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        Some(0) => Ok(ExitCode::Success),
        Some(code) => match GuestExit::from_qemu_status(code) {
            Some(GuestExit::Status(0)) => Ok(ExitCode::Success),
            // At least; its console may say more.
            Some(GuestExit::Status(_)) => Ok(ExitCode::GuestStatus),
            Some(GuestExit::Panic) => Err(SuperviseError::Panic),
            Some(GuestExit::Fault) => Err(SuperviseError::Fault),
            None => Err(SuperviseError::Failed(status)),
        },
        None if status.signal() == Some(SIGTERM) => Ok(ExitCode::Terminated),
        None => Err(SuperviseError::Failed(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: u8) -> ExitStatus {
        ExitStatus::from_raw(i32::from(code) << 8)
    }

    fn qemu_status(exit: GuestExit) -> u8 {
        ((exit.to_value() << 1) | 1) as u8
    }

    #[test]
    fn qemus_statuses_mean_the_guests_ends() {
        let ok = |code| meaning(exited(code)).ok();
        assert_eq!(ok(0), Some(ExitCode::Success));
        assert_eq!(
            ok(qemu_status(GuestExit::Status(0))),
            Some(ExitCode::Success)
        );
        let code = |code| meaning(exited(code)).expect_err("a failure").code();
        assert_eq!(code(qemu_status(GuestExit::Panic)), ExitCode::GuestPanic);
        assert_eq!(code(qemu_status(GuestExit::Fault)), ExitCode::GuestFault);
        assert_eq!(code(1), ExitCode::Internal);
    }

    /// A program that ignores SIGTERM.
    fn deaf() -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"]);
        let mut deaf = shell.stdout(Stdio::piped()).spawn().expect("a shell");
        // By its first line the signal is ignored.
        let mut line = [0; 1];
        let said = deaf.stdout.as_mut().expect("a pipe").read_exact(&mut line);
        said.expect("a line");
        deaf
    }

    #[test]
    fn a_qemu_that_does_not_heed_the_request_to_end_is_killed() {
        let mut deaf = deaf();
        Uncollected::of(&deaf, JobSignals::Everyones).end();
        assert_eq!(deaf.wait().expect("its end").signal(), Some(9));
    }

    #[test]
    fn a_signal_reaches_qemu_until_its_end_is_collected() {
        let sleeper = || Command::new("sleep").arg("60").spawn().expect("a sleeper");
        let mut child = sleeper();
        let qemu = Uncollected::of(&child, JobSignals::Everyones);
        qemu.signal(Signal::TERM);
        await_end(&child).expect("its end");
        // The number is still taken.
        assert!(tare_host::process::start_time(child.id()).is_some());
        qemu.signal(Signal::KILL);
        qemu.forget();
        assert_eq!(child.wait().expect("its end").signal(), Some(15));
        // As if another process had the number by now.
        let mut other = sleeper();
        let qemu = Uncollected::of(&other, JobSignals::Everyones);
        qemu.forget();
        qemu.signal(Signal::TERM);
        other.kill().expect("a sleeper");
        // A fatal signal determines how a process ends when it is sent.
        assert_eq!(other.wait().expect("its end").signal(), Some(9));
    }

    #[test]
    fn a_held_qemu_ends_without_a_handle_of_its_process() {
        let ended = end_held(&mut deaf(), JobSignals::Everyones).expect("its end");
        assert_eq!(ended.signal(), Some(9));
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("a sleeper");
        let ended = end_held(&mut sleeper, JobSignals::Everyones).expect("its end");
        assert_eq!(ended.signal(), Some(15), "it may end by itself");
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("a sleeper");
        let ended = end_held(&mut sleeper, JobSignals::Starters).expect("its end");
        assert_eq!(ended.signal(), Some(12), "it gets no other");
    }

    struct Silent;

    impl Terminal for Silent {
        fn warn(&self, _: &str) {}
        fn console(&self, _: &[u8]) {}
    }

    #[test]
    fn other_words_are_left_to_the_parser() {
        let args = [OsString::from("run")].into_iter();
        assert!(from_args(args, &Silent).is_none());
    }
}
