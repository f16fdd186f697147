//! [`MountError`], and what the crate's errors are for those who ask.

use alloc::string::String;

use ext4_view::Ext4Error;

use super::superblock::SuperblockError;
use crate::block::BlockError;
use crate::io::{Error, ErrorKind};
use crate::thread::SpawnError;

/// Why a disk's files are not available.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no disk of the name that the command line gives, or of the default one.
    #[error("no disk {0} to serve from: give the machine one (--disk), or name it with root=")]
    NoDisk(&'static str),
    /// The superblock could not be read.
    #[error("the disk {disk} cannot be read")]
    Read {
        /// The disk.
        disk: String,
        /// Why.
        source: BlockError,
    },
    /// The superblock makes no sense.
    #[error("the disk {disk}: {problem}")]
    Superblock {
        /// The disk.
        disk: String,
        /// What is wrong with it.
        problem: SuperblockError,
    },
    /// The rest makes no sense, or uses what is not known.
    #[error("the file system on {disk} cannot be mounted: {reason}")]
    FileSystem {
        /// The disk.
        disk: String,
        /// Why.
        reason: String,
    },
    /// No thread could be made for it.
    #[error("cannot start the thread that reads the disk")]
    Spawn(#[from] SpawnError),
    /// The thread ended.
    #[error("the thread that reads the disk has ended")]
    Ended,
}

/// The crate's error in this system's words.
pub(super) fn of(error: &Ext4Error) -> Error {
    match error {
        Ext4Error::NotFound | Ext4Error::MalformedPath | Ext4Error::PathTooLong => {
            ErrorKind::NotFound.into()
        }
        Ext4Error::IsADirectory => ErrorKind::IsADirectory.into(),
        Ext4Error::NotADirectory => ErrorKind::NotADirectory.into(),
        Ext4Error::IsASpecialFile => Error::new(ErrorKind::Unsupported, "not a regular file"),
        Ext4Error::Encrypted => Error::new(ErrorKind::Unsupported, "the file is encrypted"),
        Ext4Error::Incompatible(_) => {
            Error::new(ErrorKind::Unsupported, "an unknown file system feature")
        }
        Ext4Error::TooManySymlinks => Error::new(ErrorKind::InvalidData, "too many symbolic links"),
        Ext4Error::Corrupt(_) => Error::new(ErrorKind::InvalidData, "the file system is damaged"),
        Ext4Error::Io(_) => Error::new(ErrorKind::Other, "the disk cannot be read"),
        _ => Error::new(ErrorKind::Other, "the file cannot be read"),
    }
}
