//! How a verb fails: one sentence, the hint of it, and the process's exit
//! code. Each fallible module has its own error; this puts a code to it.

use std::error::Error;

use tare_control::exit::{Ended, ExitCode};

/// An error that knows which exit code it means and what the user can do.
pub(crate) trait Explain: Error + Send + Sync + 'static {
    /// The exit code for this cause.
    fn code(&self) -> ExitCode;

    /// What to do about it, as a clause that follows the message.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Why a verb ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ExitCode,
    hint: Option<String>,
    error: anyhow::Error,
}

impl Failure {
    /// The process's exit code.
    pub(crate) fn code(&self) -> ExitCode {
        self.code
    }

    /// The chain of causes and the hint, in one line.
    pub(crate) fn sentence(&self) -> String {
        let mut text = format!("{:#}", self.error);
        if let Some(hint) = &self.hint {
            text.push_str(": ");
            text.push_str(hint);
        }
        text
    }

    /// A failure that has no error type of its own.
    pub(crate) fn new(code: ExitCode, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            hint: None,
            error: error.into(),
        }
    }
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: error.code(),
            hint: error.hint(),
            error: error.into(),
        }
    }
}

/// What has no type of its own went wrong inside Tare.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(ExitCode::Internal, error)
    }
}

/// The outcome of a run: a code, or the status of a Linux guest's command.
pub(crate) type RunOutcome = Result<Ended, Failure>;

/// The outcome of a verb.
pub(crate) type Outcome = Result<ExitCode, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the port is in use")]
    struct Busy(#[source] std::io::Error);

    impl Explain for Busy {
        fn code(&self) -> ExitCode {
            ExitCode::PortInUse
        }

        fn hint(&self) -> Option<String> {
            Some("choose another".to_owned())
        }
    }

    #[test]
    fn a_failure_says_its_chain_and_the_way_out_once() {
        let failure = Failure::from(Busy(std::io::Error::other("taken")));
        assert_eq!(
            failure.sentence(),
            "the port is in use: taken: choose another"
        );
        assert_eq!(failure.code(), ExitCode::PortInUse);
    }
}
