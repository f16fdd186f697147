//! Why a run directory, or the root of all, cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use super::location::{MAX_NAME, ROOT_VARIABLE};

/// Permission bits that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The name does not follow the rule of [`super::valid_name`].
    #[error(
        "invalid machine name {0:?}: use 1 to {MAX_NAME} letters, digits, '.', '_' or '-', beginning with a letter or digit"
    )]
    BadName(String),
    /// A machine of that name runs.
    #[error("a machine named {0:?} is running")]
    InUse(String),
    /// No machine of that name runs.
    #[error("no machine named {0:?} is running")]
    NotRunning(String),
    /// The root is something else, or a link to a directory.
    #[error("the root of run directories, {}, is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The root belongs to another user, who could exchange what is in it.
    #[error("the root of run directories, {}, belongs to another user", .0.display())]
    NotOurs(PathBuf),
    /// Others could exchange what is in the root.
    #[error("the root of run directories, {}, is writable by other users (mode {mode:04o})", path.display())]
    WritableByOthers {
        /// The root.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Tare did not make what stands there, so it does not touch it.
    #[error("{} was not created by tare and is left alone", .0.display())]
    Foreign(PathBuf),
    /// The control socket's path would be longer than the kernel takes.
    #[error("{} is too long for the path of a socket; choose a shorter name or set {ROOT_VARIABLE}", .0.display())]
    PathTooLong(PathBuf),
    /// A file or directory cannot be made, read or removed.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

pub(super) fn at(path: &Path, source: io::Error) -> RunDirError {
    RunDirError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Who can write a file or directory, besides root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    ThisUser,
    AnotherUser,
    Others,
}

pub(super) fn writer(status: &Stat) -> Writer {
    if status.st_uid != rustix::process::geteuid().as_raw() {
        Writer::AnotherUser
    } else if status.st_mode & WRITABLE_BY_OTHERS != 0 {
        Writer::Others
    } else {
        Writer::ThisUser
    }
}
