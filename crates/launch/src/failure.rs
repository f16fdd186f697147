//! How a start fails: one sentence, its hint, and the process's exit code. Each fallible module has
//! its own error type; this module adds the exit code.

use std::error::Error;

use tare_control::exit::{ExitCode, RunExit};
use tare_control::sentence::chain;

/// An error that has an exit code and a hint for the user.
pub trait Explain: Error + Send + Sync + 'static {
    /// The exit code for this cause.
    fn code(&self) -> ExitCode;

    /// What to do about it, as a clause that follows the message.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Any error with its exit code and hint.
#[derive(Debug)]
pub struct Failure {
    code: ExitCode,
    hint: Option<String>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// The process's exit code.
    pub fn code(&self) -> ExitCode {
        self.code
    }

    /// The chain of causes and the hint, in one line.
    pub fn sentence(&self) -> String {
        let mut text = chain(self.error.as_ref());
        if let Some(hint) = &self.hint {
            text.push_str(": ");
            text.push_str(hint);
        }
        text
    }

    /// Wraps an error that has no exit code.
    pub fn new(code: ExitCode, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            code,
            hint: None,
            error: error.into(),
        }
    }

    /// The same failure with another exit code.
    pub fn with_code(mut self, code: ExitCode) -> Self {
        self.code = code;
        self
    }

    /// Adds a hint: a clause that follows the message.
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Self {
        let hint = error.hint();
        Self::new(error.code(), error).with_hint(hint)
    }
}

/// The result of a run: a code, or the status of a Linux guest's command.
pub type RunResult = Result<RunExit, Failure>;

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
