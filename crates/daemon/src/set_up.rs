//! Why a daemon's threads or its control socket cannot be set up.

use std::io;

use crate::confine::ConfineError;

/// Why a daemon cannot start to serve.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// The system refused something.
    #[error("cannot {act}")]
    Io {
        /// What.
        act: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A thread cannot be confined.
    #[error("cannot confine a thread")]
    Confine(#[from] ConfineError),
}

/// An error of the system while the daemon was about to `act`.
pub fn failed_to(act: &'static str) -> impl FnOnce(io::Error) -> SetUpError {
    move |source| SetUpError::Io { act, source }
}
