//! The course of an observation: until its subject ends, its time is over, or
//! a signal ends it.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_host::process::signal_members;

use super::Recorder;

/// Between two drainings.
const TURN: Duration = Duration::from_millis(20);
/// Turns between two looks around.
const LOOK: u32 = 10;
/// How long what was started may go on after Ctrl-C, which it usually got too.
const AFTER_INTERRUPT: Duration = Duration::from_secs(1);
/// How long it may take to end when asked to.
const AFTER_TERMINATE: Duration = Duration::from_secs(5);

/// Limits of an observation.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Its length; without, until its subject ends.
    pub length: Option<Duration>,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    /// Set by SIGTERM.
    pub terminated: Arc<AtomicBool>,
}

/// Why an observation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// No process is left to observe.
    Ended,
    /// Its time was over.
    Time,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

/// How an observation ended.
#[derive(Clone, Copy, Debug)]
pub struct ObservationEnd {
    /// Why.
    pub because: Because,
    /// Status of the command, if one was started.
    pub status: Option<ExitStatus>,
}

impl Recorder {
    /// Observes until a command has ended and all that descend from it, or until
    /// the limits; then what the command started is ended too, with its calls
    /// counted to the last. `left_behind` is called once if the command ends before
    /// its descendants.
    pub fn until_command_ends(
        &mut self,
        child: &mut Child,
        limits: &Limits,
        left_behind: impl FnOnce(usize),
    ) -> io::Result<ObservationEnd> {
        let mut left_behind = Some(left_behind);
        let because = self.turns(limits, |recorder| {
            if child.try_wait()?.is_none() {
                return Ok(false);
            }
            let living = recorder.living();
            if let Some(report) = left_behind.take_if(|_| !living.is_empty()) {
                report(living.len());
            }
            Ok(living.is_empty())
        })?;
        if because != Because::Ended {
            self.end_all(child, because)?;
        }
        Ok(ObservationEnd {
            because,
            status: Some(child.wait()?),
        })
    }

    /// Observes until all who are followed have ended, or until the limits.
    pub fn until_all_end(&mut self, limits: &Limits) -> io::Result<ObservationEnd> {
        let because = self.turns(limits, |recorder| Ok(recorder.living().is_empty()))?;
        Ok(ObservationEnd {
            because,
            status: None,
        })
    }

    fn turns(
        &mut self,
        limits: &Limits,
        mut ended: impl FnMut(&Self) -> io::Result<bool>,
    ) -> io::Result<Because> {
        let begin = Instant::now();
        for turn in 0_u32.. {
            self.drain();
            if turn % LOOK == 0 {
                self.look_around();
            }
            if ended(self)? {
                return Ok(Because::Ended);
            }
            if limits.terminated.load(Ordering::Relaxed) {
                return Ok(Because::Terminated);
            }
            if limits.interrupted.load(Ordering::Relaxed) {
                return Ok(Because::Interrupted);
            }
            let left = limits.length.map(|all| all.saturating_sub(begin.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Because::Time);
            }
            thread::sleep(left.unwrap_or(TURN).min(TURN));
        }
        Ok(Because::Time)
    }

    fn end_all(&mut self, child: &mut Child, because: Because) -> io::Result<()> {
        if because == Because::Interrupted && self.wait_for_end(child, AFTER_INTERRUPT)? {
            return Ok(());
        }
        self.signal_all(child, Signal::TERM);
        if !self.wait_for_end(child, AFTER_TERMINATE)? {
            self.signal_all(child, Signal::KILL);
            self.wait_for_end(child, AFTER_TERMINATE)?;
        }
        Ok(())
    }

    fn wait_for_end(&mut self, child: &mut Child, limit: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            self.drain();
            if child.try_wait()?.is_some() && self.living().is_empty() {
                return Ok(true);
            }
            thread::sleep(TURN);
        }
        Ok(false)
    }

    fn signal_all(&self, child: &mut Child, signal: Signal) {
        let id = child.id();
        // Each once: a server may take the second for more than the first.
        let others = || self.living().into_iter().filter(|pid| *pid != id).collect();
        signal_members(others, signal);
        signal_child(child, signal);
    }
}

/// Whether the child took the signal: one whose end was collected has no number any more.
fn signal_child(child: &mut Child, signal: Signal) -> bool {
    let is_there = matches!(child.try_wait(), Ok(None));
    is_there && kill_process(Pid::from_child(child), signal).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_gets_a_signal_until_its_end_is_collected() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(signal_child(&mut child, Signal::TERM));
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(!signal_child(&mut child, Signal::KILL));
    }
}
