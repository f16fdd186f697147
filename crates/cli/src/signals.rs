//! Signals that end a verb, checked between its steps: Ctrl-C, SIGTERM, and a terminal that closes
//! (SIGHUP) unless this program was started to outlive it (`nohup`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use tare_control::exit::ExitCode;
use tare_host::signals::requests_to_end;
use tare_launch::Interrupted;

use crate::failure::{CommandResult, Explain as _, Failure};

/// A flag that they set instead of ending the process.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    for signal in requests_to_end() {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Ctrl-C apart from the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Set by Ctrl-C.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// Set by SIGTERM and SIGHUP.
    pub(crate) terminated: Arc<AtomicBool>,
}

impl Requests {
    /// Catches the signals from now on.
    pub(crate) fn watch() -> io::Result<Self> {
        let requests = Self::default();
        for signal in requests_to_end() {
            let flag = match signal {
                SIGINT => &requests.interrupted,
                _ => &requests.terminated,
            };
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
        Ok(requests)
    }

    /// An error if a signal came.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.terminated.load(Ordering::Relaxed) {
            Err(Interrupted::Terminated)
        } else if self.interrupted.load(Ordering::Relaxed) {
            Err(Interrupted::CtrlC)
        } else {
            Ok(())
        }
    }

    /// The exit code of what came.
    pub(crate) fn came(&self) -> Option<ExitCode> {
        self.check().err().map(|it| it.code())
    }

    /// The outcome of a verb that Ctrl-C ends as planned, unless another request ended it.
    pub(crate) fn unless_terminated(&self, outcome: CommandResult) -> CommandResult {
        match self.check() {
            Err(Interrupted::Terminated) => Ok(ExitCode::Terminated),
            Ok(()) | Err(Interrupted::CtrlC) => outcome,
        }
    }

    /// A failure by which a verb says that it was interrupted, with the exit code of what did that.
    pub(crate) fn attribute(&self, failure: Failure) -> Failure {
        match (failure.code(), self.check()) {
            (ExitCode::Interrupted, Err(Interrupted::Terminated)) => {
                failure.with_code(ExitCode::Terminated)
            }
            _ => failure,
        }
    }

    /// What Ctrl-C was for has ended, and the next step begins.
    pub(crate) fn forget_ctrl_c(&self) {
        self.interrupted.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_that_sigterm_ends_has_its_exit_code() {
        let requests = Requests::default();
        let codes = || {
            let interrupted = Failure::from(Interrupted::CtrlC);
            let other = Failure::new(ExitCode::KernelBuild, "no compiler");
            let failures = [interrupted, other].map(|it| requests.attribute(it).code());
            let done = requests.unless_terminated(Ok(ExitCode::Success));
            (done.ok(), failures)
        };
        let as_they_are = [ExitCode::Interrupted, ExitCode::KernelBuild];
        assert_eq!(codes(), (Some(ExitCode::Success), as_they_are));
        requests.interrupted.store(true, Ordering::Relaxed);
        assert_eq!(codes(), (Some(ExitCode::Success), as_they_are));
        requests.terminated.store(true, Ordering::Relaxed);
        let terminated = [ExitCode::Terminated, ExitCode::KernelBuild];
        assert_eq!(codes(), (Some(ExitCode::Terminated), terminated));
    }

    #[test]
    fn ctrl_c_ends_a_step_and_other_requests_end_all() {
        let requests = Requests::default();
        let code = || requests.check().map_err(|it| it.code());
        assert_eq!(code(), Ok(()));
        requests.interrupted.store(true, Ordering::Relaxed);
        assert_eq!(code(), Err(ExitCode::Interrupted));
        requests.forget_ctrl_c();
        assert_eq!(code(), Ok(()));
        requests.terminated.store(true, Ordering::Relaxed);
        requests.forget_ctrl_c();
        assert_eq!(code(), Err(ExitCode::Terminated));
    }
}
