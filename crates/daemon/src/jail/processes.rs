//! A machine's PID namespace: the machine (the monitor, or QEMU) is its first process, and so a child of the process that
//! was started, which stays outside (ADR 73).
//!
//! What stays outside passes signals on, stops where a terminal stops its job, and ends as the
//! machine ended. It is the machine's user by then, without capabilities and descriptors, and does nothing
//! else. Its end, however it comes, ends the machine.
//!
//! Limits: a machine's process ignores signals whose action it has not set (`pid_namespaces(7)`), as
//! SIGQUIT; SIGKILL and SIGSTOP from outside the namespace act.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::exit;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, chdir, getpid, kill_process,
    set_parent_process_death_signal, waitid, waitpid,
};
use rustix::thread::{UnshareFlags, set_name, set_no_new_privs};
use tare_control::config::Jail;
use tare_control::exit::ExitCode;
use tare_host::child::{ParentDeath, close_all_but};
use tare_host::process::OUTSIDE;
use tare_host::signals::{block, end_by, hold_back, requests_to_end, unblock, wait_for};
use tare_host::terminal::SavedInput;

use super::error::{JailError, failed, failed_io, not_restored};
use super::namespaces::{Granted, Loopback, NAMESPACES, make_namespaces};
use super::program::KILL_REQUEST;
use super::user::become_user;

/// Signals that tell the process outside of the machine, or stop a terminal's job.
const TOLD: [i32; 4] = [libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Pause between two attempts to signal a machine that enters its jail.
const PAUSE: Duration = Duration::from_millis(1);

/// A process on its way into its jail: its namespaces are made, or are to be, and its user is as before.
#[derive(Debug)]
pub struct Entering {
    /// What ends it with its parent.
    tie: ParentDeath,
    /// Hung up once the process outside has ended. That one's number, which [`ParentDeath`] compares, is 0 from
    /// another PID namespace.
    parents_end: Option<OwnedFd>,
    /// Whether the kernel granted namespaces, if they are made.
    pub(super) made: Option<Granted>,
}

impl Entering {
    /// In one process, whose namespaces are still to be made.
    pub fn alone(tie: ParentDeath) -> Self {
        Self {
            tie,
            parents_end: None,
            made: None,
        }
    }

    /// Ties the end to the parent's again, after a change of the user.
    pub(super) fn restore_tie(&self) -> Result<(), JailError> {
        self.tie.restore().map_err(not_restored)?;
        match &self.parents_end {
            Some(end) if has_hung_up(end).map_err(failed("tie the end"))? => {
                Err(JailError::ParentEnded)
            }
            _ => Ok(()),
        }
    }
}

/// Makes a jail's namespaces, and forks into that of processes: returns in the machine's process, which is
/// this one where the kernel grants no PID namespace. To be called by a process of one thread, before it
/// makes anything that a fork does not copy (rings, virtual machines), or handles signals. The process
/// outside passes `further` signals on too; they wait until the machine's process unblocks them.
pub fn fork_into_namespaces(jail: &Jail, further: &[i32]) -> Result<Entering, JailError> {
    fork_for(jail, Loopback::Down, tie()?, Passed::These(further))
}

/// What the process outside does with signals.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passed<'a> {
    /// The machine gets requests to end, and these.
    These(&'a [i32]),
    /// The machine gets none of these, and is killed by [`KILL_REQUEST`].
    NoneOf(&'a [i32]),
}

impl Passed<'_> {
    /// What the process outside waits for, besides requests to end.
    fn further(self) -> Vec<i32> {
        match self {
            Self::These(further) => further.to_vec(),
            Self::NoneOf(withheld) => [withheld, &[KILL_REQUEST.as_raw()]].concat(),
        }
    }

    /// What the machine gets for a signal.
    fn becomes(self, signal: i32) -> Option<Signal> {
        match self {
            Self::These(_) => Some(Signal::from_named_raw(signal).unwrap_or(Signal::TERM)),
            Self::NoneOf(_) => (signal == KILL_REQUEST.as_raw()).then_some(Signal::KILL),
        }
    }
}

/// The same for what may listen, and ends with its parent as `tie` says.
pub(super) fn fork_for(
    jail: &Jail,
    loopback: Loopback,
    tie: ParentDeath,
    passed: Passed<'_>,
) -> Result<Entering, JailError> {
    let mut entering = Entering::alone(tie);
    if !jail.namespaces {
        return Ok(entering);
    }
    let all = NAMESPACES | UnshareFlags::NEWPID;
    if make_namespaces(all, loopback)? == Granted::Yes {
        entering.made = Some(Granted::Yes);
        return fork(jail, entering, passed);
    }
    entering.made = Some(make_namespaces(NAMESPACES, loopback)?);
    Ok(entering)
}

fn fork(jail: &Jail, entering: Entering, passed: Passed<'_>) -> Result<Entering, JailError> {
    // None may come between: it would end one process without the other.
    hold_back()
        .and_then(|()| block(&TOLD))
        .and_then(|()| block(&passed.further()))
        .map_err(failed("hold back signals"))?;
    // Otherwise nothing would be left to wait for.
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let input = SavedInput::save();
    let (parents_end, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(failed("make a pipe"))?;
    // SAFETY: this process has one thread, so that the child may do what the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(failed_io("fork into")(std::io::Error::last_os_error())),
        0 => {
            drop(alive);
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("tie the end"))?;
            unblock(&TOLD).map_err(failed("let signals come"))?;
            let inside = Entering {
                tie: tie()?,
                parents_end: Some(parents_end),
                ..entering
            };
            inside.restore_tie()?;
            Ok(inside)
        }
        child => {
            let child = Pid::from_raw(child).ok_or(JailError::ParentEnded)?;
            // An end of the parent that no signal told: the machine ends as it then asks.
            let missed = match give_up_all(jail, &entering.tie) {
                Ok(()) => None,
                Err(JailError::ParentEnded) => entering.tie.signal(),
                Err(error) => {
                    let _ = kill_process(child, Signal::KILL);
                    let _ = waitpid(Some(child), WaitOptions::empty());
                    return Err(error);
                }
            };
            // SAFETY: nothing is used or dropped from here on: `end_with` does not return.
            unsafe { close_all_but(alive.as_fd()) };
            if let Some(signal) = missed {
                send(child, signal);
            }
            end_with(child, &input, passed)
        }
    }
}

/// What the process outside has no use for. It becomes the user whom it signals.
fn give_up_all(jail: &Jail, tie: &ParentDeath) -> Result<(), JailError> {
    // No directory is in use by it, and `ps` tells the two apart.
    let _ = chdir("/");
    let _ = set_name(OUTSIDE);
    if let Some(user) = &jail.user {
        become_user(user).map_err(|errno| JailError::User {
            uid: user.uid,
            source: errno.into(),
        })?;
    }
    tare_confine::drop_capabilities(&[]).map_err(failed_io("drop the capabilities"))?;
    set_no_new_privs(true).map_err(failed("refuse new privileges"))?;
    tie.restore().map_err(not_restored)
}

/// Waits for the machine's end, and ends like it. A machine that was killed did not restore standard
/// input.
fn end_with(machine: Pid, input: &SavedInput, passed: Passed<'_>) -> ! {
    let further = passed.further();
    let signals: Vec<i32> = requests_to_end().chain(TOLD).chain(further).collect();
    let mut how = WaitOptions::NOHANG;
    loop {
        match waitpid(Some(machine), how) {
            Ok(Some((_, status))) => end_as(status, input),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => exit(ExitCode::Internal as i32),
        }
        match wait_for(&signals) {
            Ok(taken) => match taken.signal {
                libc::SIGCHLD => {}
                signal @ (libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => stop(machine, signal),
                // A key of the terminal: the machine, which is of the same job, has it already.
                _ if taken.is_kernels => {}
                // A signal to the whole job comes to the machine twice.
                signal => {
                    if let Some(signal) = passed.becomes(signal) {
                        send(machine, signal);
                    }
                }
            },
            // Without signals there is the end to wait for.
            Err(_) => how = WaitOptions::empty(),
        }
    }
}

fn end_as(status: WaitStatus, input: &SavedInput) {
    if let Some(code) = status.exit_status() {
        exit(code);
    }
    if let Some(signal) = status.terminating_signal() {
        input.restore();
        end_by(signal);
    }
}

/// Until the machine is the user that this process is already, it may not be signalled.
fn send(machine: Pid, signal: Signal) {
    while kill_process(machine, signal) == Err(Errno::PERM) && !has_ended(machine) {
        thread::sleep(PAUSE);
    }
}

/// Whether a child has ended; its end is left to be collected.
fn has_ended(child: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), look), Ok(None))
}

/// Stops as a job that a terminal stops, with the machine, until both are continued. The machine itself, the
/// first of its namespace, ignores what would stop it.
fn stop(machine: Pid, signal: i32) {
    send(machine, Signal::STOP);
    let stopping = Signal::from_named_raw(signal).unwrap_or(Signal::STOP);
    // Its action is the kernel's own, which knows whether a shell would continue this process.
    let _ = kill_process(getpid(), stopping);
    let _ = unblock(&[signal]);
    let _ = block(&[signal]);
    send(machine, Signal::CONT);
}

/// Whether the other end of a pipe is closed.
pub(super) fn has_hung_up(end: &OwnedFd) -> Result<bool, Errno> {
    let mut polled = [PollFd::new(end, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut polled, Some(&at_once))? > 0)
}

/// What ends this process with its parent now, which a change of the user undoes.
pub(super) fn tie() -> Result<ParentDeath, JailError> {
    ParentDeath::read().map_err(failed("read the end's signal"))
}
