//! Why a process cannot enter its jail.

use std::io;

use rustix::io::Errno;

/// Why a process cannot enter its jail.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// Namespaces were made, and a later step failed.
    #[error("the kernel refused to {step} of the machine's namespaces")]
    Namespace {
        /// What was being done.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The user ID cannot be changed.
    #[error("the kernel refused to become user {uid}: use --user self")]
    User {
        /// Who.
        uid: u32,
        /// Why.
        source: io::Error,
    },
    /// The parent has ended meanwhile, and this process was to end with it.
    #[error("the process that started the machine has ended")]
    ParentEnded,
}

pub(super) fn failed(step: &'static str) -> impl FnOnce(Errno) -> JailError {
    move |errno| failed_io(step)(errno.into())
}

pub(super) fn failed_io(step: &'static str) -> impl FnOnce(io::Error) -> JailError {
    move |source| JailError::Namespace { step, source }
}

/// Maps an error of restoring that the parent's end ends this process.
pub(super) fn not_restored(errno: Errno) -> JailError {
    match errno {
        Errno::SRCH => JailError::ParentEnded,
        errno => failed("restore the end's signal")(errno),
    }
}
