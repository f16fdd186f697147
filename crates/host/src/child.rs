//! Child processes that end with this one, also when it is killed and cannot clean up, and
//! child processes that outlive it and its terminal.
//!
//! Both are system calls of the child between fork and exec, for which `std` asks for unsafe
//! code. What needs more than a system call there (confinement) belongs to a program that
//! executes itself first.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpid, getppid, parent_process_death_signal, set_parent_process_death_signal,
    setsid,
};

/// The child gets `signal` when the thread that starts it ends, however that ends
/// (`prctl(2)`, PR_SET_PDEATHSIG). The program that the child becomes keeps this, unless it
/// changes its credentials: see [`ParentDeath`].
pub fn ends_with_us(command: &mut Command, signal: Signal) -> &mut Command {
    let us = getpid();
    before_exec(command, move || {
        let tie = ParentDeath {
            signal: Some(signal),
            parent: Some(us),
        };
        tie.restore()
    })
}

/// The child has a session of its own, without a terminal (`setsid(2)`).
pub fn in_own_session(command: &mut Command) -> &mut Command {
    before_exec(command, || setsid().map(drop))
}

fn before_exec(
    command: &mut Command,
    act: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
) -> &mut Command {
    // SAFETY: in the child of a process with threads only async-signal-safe code may run
    // (`signal-safety(7)`). `act` is one of the two closures above: each makes system calls
    // without libc's wrappers, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(act()?)) }
}

/// The signal that the calling thread gets when its parent ends. The kernel forgets it when
/// credentials change: read before, restored after.
#[derive(Debug)]
pub struct ParentDeath {
    signal: Option<Signal>,
    parent: Option<Pid>,
}

impl ParentDeath {
    /// The present one.
    pub fn read() -> Result<Self, Errno> {
        Ok(Self {
            signal: parent_process_death_signal()?,
            parent: getppid(),
        })
    }

    /// Asks the kernel for the signal again. [`Errno::SRCH`]: the parent has ended meanwhile.
    pub fn restore(&self) -> Result<(), Errno> {
        let Some(signal) = self.signal else {
            return Ok(());
        };
        set_parent_process_death_signal(Some(signal))?;
        if getppid() == self.parent {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::getsid;

    use super::*;

    /// The thread that starts a program is its parent to the kernel.
    #[test]
    fn a_child_is_killed_when_its_starter_ends() {
        let start = || {
            let mut command = Command::new("sleep");
            let child = ends_with_us(&mut command, Signal::KILL).arg("60").spawn();
            child.unwrap()
        };
        let mut sleeper = std::thread::spawn(start).join().unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_child_can_have_a_session_of_its_own() {
        let mut command = Command::new("sleep");
        let mut sleeper = in_own_session(&mut command).arg("60").spawn().unwrap();
        let pid = Pid::from_child(&sleeper);
        assert_eq!(getsid(Some(pid)), Ok(pid));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn a_missing_program_is_an_error_of_the_start() {
        let mut command = Command::new("no-such-program");
        let error = ends_with_us(&mut command, Signal::KILL).spawn();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_parent_that_ended_is_noticed() {
        let body = || {
            let before = ParentDeath {
                signal: Some(Signal::KILL),
                parent: Pid::from_raw(i32::MAX),
            };
            let restored = before.restore();
            set_parent_process_death_signal(None).unwrap();
            restored
        };
        let restored = std::thread::spawn(body).join().unwrap();
        assert_eq!(restored, Err(Errno::SRCH));
    }

    #[test]
    fn the_signal_is_read_and_restored() {
        let body = || {
            set_parent_process_death_signal(Some(Signal::CONT)).unwrap();
            let tie = ParentDeath::read().unwrap();
            set_parent_process_death_signal(None).unwrap();
            tie.restore().unwrap();
            parent_process_death_signal().unwrap()
        };
        let restored = std::thread::spawn(body).join().unwrap();
        assert_eq!(restored, Some(Signal::CONT));
    }
}
