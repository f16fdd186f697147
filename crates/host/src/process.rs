//! A process that cannot be mistaken for another one: its number and the time
//! at which it started. Numbers are used again; the pair is not.

use std::fs;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Field of `/proc/PID/stat` with the start time (`proc_pid_stat(5)`).
const START_TIME: usize = 22;
/// The first field after the name, which may hold spaces and parentheses.
const FIRST_AFTER_NAME: usize = 3;

/// When process `pid` started, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace();
    fields.nth(START_TIME - FIRST_AFTER_NAME)?.parse().ok()
}

/// A process that existed when this was opened. A signal reaches that process or
/// none.
#[derive(Debug)]
pub struct ProcessHandle {
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// The process `pid` if it started at `start_time`; `None` if it has ended.
    pub fn open(pid: u32, start_time: u64) -> Option<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        let descriptor = pidfd_open(number, PidfdFlags::empty()).ok()?;
        // The descriptor holds one process: if that is the one asked for now, the
        // number cannot have been another's in between.
        (self::start_time(pid) == Some(start_time)).then_some(Self { descriptor })
    }

    /// Sends a signal. A process that has ended takes none.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_signal_reaches_the_process_that_started_then() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        let handle = ProcessHandle::open(child.id(), start).unwrap();
        handle.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(handle.signal(Signal::TERM).is_ok());
    }

    #[test]
    fn a_number_that_belongs_to_another_process_now_is_not_opened() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        assert!(ProcessHandle::open(child.id(), start + 1).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ProcessHandle::open(child.id(), start).is_none());
        assert_eq!(start_time(0), None);
    }
}
