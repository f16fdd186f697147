//! Ctrl-C, SIGTERM and a terminal that closes (SIGHUP) as a question that long steps ask.
//!
//! The first signal only sets a flag: whoever waits notices within
//! `SLICE`, unwinds, and the guards on the way down end their machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use tare_control::exit::ExitCode;
use tare_host::signals::requests_to_end;

/// Longest time between two looks at the flag.
pub const SLICE: Duration = Duration::from_millis(50);

/// A signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// SIGINT.
    #[error("interrupted")]
    Interrupt,
    /// SIGTERM or SIGHUP.
    #[error("terminated")]
    Terminate,
    /// No signal: whoever waited for this step has given up (`Interrupt::branch`).
    #[error("given up")]
    Abandoned,
}

impl Interrupted {
    /// The exit code that says so.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Interrupt => ExitCode::Interrupted,
            Self::Terminate => ExitCode::Terminated,
            Self::Abandoned => ExitCode::Internal,
        }
    }
}

/// Whether a signal came. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    abandoned: Arc<AtomicBool>,
}

/// Keeps the signals watched; dropping it restores their default handling.
#[derive(Debug)]
pub struct Watch(Vec<SigId>);

impl Interrupt {
    /// Watches SIGINT, SIGTERM and SIGHUP of this process. A SIGHUP that it was started to ignore
    /// (`nohup`) stays ignored.
    pub fn watch() -> std::io::Result<(Self, Watch)> {
        let this = Self::default();
        let mut watch = Watch(Vec::new());
        for signal in requests_to_end() {
            let flag = match signal {
                SIGINT => &this.interrupt,
                _ => &this.terminate,
            };
            watch
                .0
                .push(signal_hook::flag::register(signal, Arc::clone(flag))?);
        }
        Ok((this, watch))
    }

    /// The same signals for a step that can also be abandoned alone.
    pub fn branch(&self) -> Self {
        Self {
            abandoned: Arc::default(),
            ..self.clone()
        }
    }

    /// Ends the steps that ask this branch.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// As if SIGINT had come, for tests.
    pub fn trip(&self) {
        self.interrupt.store(true, Ordering::Relaxed);
    }

    /// `Err` once a signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Interrupted::Interrupt);
        }
        if self.terminate.load(Ordering::Relaxed) {
            return Err(Interrupted::Terminate);
        }
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Interrupted::Abandoned);
        }
        Ok(())
    }

    /// Sleeps until `deadline`, or until a signal comes.
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), Interrupted> {
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(SLICE));
        }
    }

    /// Sleeps for `time`, or until a signal comes.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        self.sleep_until(Instant::now() + time)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGHUP;

    use super::*;

    #[test]
    fn a_sleep_ends_soon_after_the_signal() {
        let interrupt = Interrupt::default();
        let other = interrupt.clone();
        let begin = Instant::now();
        let sleeper = thread::spawn(move || other.sleep(Duration::from_secs(3600)));
        interrupt.trip();
        assert_eq!(sleeper.join().unwrap(), Err(Interrupted::Interrupt));
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    /// As the kernel sends it to the job of a terminal that closes.
    #[test]
    fn a_terminal_that_closes_terminates() {
        if tare_host::signals::is_ignored(SIGHUP) {
            return tare_vmtest::lacks("started to outlive its terminal");
        }
        let (interrupt, _watch) = Interrupt::watch().unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert_eq!(interrupt.check(), Err(Interrupted::Terminate));
        assert_eq!(Interrupted::Terminate.exit_code(), ExitCode::Terminated);
    }

    #[test]
    fn an_abandoned_branch_leaves_the_rest_alone() {
        let interrupt = Interrupt::default();
        let branch = interrupt.branch();
        branch.abandon();
        assert_eq!(branch.check(), Err(Interrupted::Abandoned));
        assert_eq!(interrupt.check(), Ok(()));
        let branch = interrupt.branch();
        interrupt.trip();
        assert_eq!(branch.check(), Err(Interrupted::Interrupt));
    }

    #[test]
    fn without_a_signal_a_sleep_takes_its_time() {
        let begin = Instant::now();
        Interrupt::default()
            .sleep(Duration::from_millis(60))
            .unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(60));
    }
}
