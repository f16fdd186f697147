//! Ctrl-C, SIGTERM, a terminal that closes (SIGHUP) and `tare stop` while a machine is being started: checked
//! between two steps, so that everything made so far is removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::SIGINT;
use tare_control::exit::ExitCode;
use tare_host::signals::{ENDS, is_ignored};

use crate::failure::{Explain, Failure};
use crate::guest_signals::STOP_REQUEST;

/// The start was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// By SIGINT.
    #[error("interrupted")]
    CtrlC,
    /// By SIGTERM, SIGHUP or `tare stop`.
    #[error("terminated")]
    Terminated,
}

impl Explain for Interrupted {
    fn code(&self) -> ExitCode {
        match self {
            Self::CtrlC => ExitCode::Interrupted,
            Self::Terminated => ExitCode::Terminated,
        }
    }
}

/// Holds the first signal, if any. The program that this process becomes has the default actions
/// again (`execve(2)`).
#[derive(Debug)]
pub(crate) struct Interruption {
    signal: Arc<AtomicUsize>,
}

impl Interruption {
    /// Catches the signals from now on. One that this process ignores (`nohup`, a shell's
    /// background job) stays ignored.
    pub(crate) fn watch() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let ends = ENDS.into_iter().filter(|number| !is_ignored(*number));
        for number in ends.chain([STOP_REQUEST.as_raw()]) {
            let value = usize::try_from(number).unwrap_or_default();
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        Ok(Self { signal })
    }

    /// Signals cannot be caught.
    pub(crate) fn failed(error: io::Error) -> Failure {
        Failure::new(ExitCode::Internal, error)
    }

    /// An error if a signal came.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        match i32::try_from(self.signal.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Err(Interrupted::CtrlC),
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => Err(Interrupted::Terminated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_during_a_start_is_its_exit_code() {
        let interruption = Interruption {
            signal: Arc::default(),
        };
        assert_eq!(interruption.check(), Ok(()));
        for (signal, code) in [
            (2, ExitCode::Interrupted),
            (15, ExitCode::Terminated),
            (1, ExitCode::Terminated),
        ] {
            interruption.signal.store(signal, Ordering::SeqCst);
            assert_eq!(interruption.check().map_err(|it| it.code()), Err(code));
        }
    }
}
