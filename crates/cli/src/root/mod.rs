//! `--root DIR`: a directory as the guest's files.
//!
//! [`walk()`] lists what there is and how large it becomes, before anything is
//! started; [`pack()`] streams it into a memory file as a newc cpio archive
//! (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Regular files and directories, in the order of their names' bytes, with
//! modification times, so that the same directory gives the same archive. A
//! symbolic link is packed as what it points to, if that lies inside the root;
//! links that lead out of it or into themselves, devices, sockets, pipes and
//! names that are not UTF-8 are passed over with a warning.

mod pack;
mod walk;

use std::io;
use std::path::PathBuf;

use tare_control::exit::ExitCode;

use crate::failure::Explain;

pub(crate) use pack::pack;
pub(crate) use walk::{Tree, walk};

/// A root directory that cannot be given to a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    /// It is not there.
    #[error("the root directory {} does not exist", .0.display())]
    Missing(PathBuf),
    /// It is something else.
    #[error("the root {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// Something in it cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file became shorter or longer while it was read.
    #[error("{} changed while it was packed", .0.display())]
    Changed(PathBuf),
    /// It does not fit.
    #[error(
        "the root directory {} packs to more than the {} KiB that fit beside the image",
        root.display(),
        limit_bytes / 1024
    )]
    TooLarge {
        /// The directory.
        root: PathBuf,
        /// Most bytes of the archive.
        limit_bytes: u64,
    },
    /// The archive cannot be written.
    #[error("cannot write the packed root directory")]
    Write(#[source] io::Error),
}

impl Explain for RootError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Missing(_) | Self::NotDirectory(_) | Self::Read { .. } | Self::Changed(_) => {
                ExitCode::RootMissing
            }
            Self::TooLarge { .. } => ExitCode::RootTooLarge,
            Self::Write(_) => ExitCode::Memory,
        }
    }

    fn way_out(&self) -> Option<String> {
        match self {
            Self::TooLarge { .. } => Some("give the guest more memory with --memory".to_owned()),
            Self::Changed(_) => Some("try again".to_owned()),
            _ => None,
        }
    }
}
