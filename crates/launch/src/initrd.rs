//! `--initrd`: an initramfs, passed on unchanged.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use tare_control::exit::ExitCode;

use crate::failure::Explain;
use crate::machine::Files;

/// An initramfs that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitrdError {
    /// The file.
    #[error("cannot open the initramfs {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The initramfs and the image do not fit into memory.
    #[error("the initramfs {} does not fit into {memory_mib} MiB of memory", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Guest memory.
        memory_mib: u32,
    },
}

impl Explain for InitrdError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Open { .. } => ExitCode::ImageUnreadable,
            Self::TooLarge { .. } => ExitCode::ImageTooLarge,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::TooLarge { .. })
            .then(|| "give the guest more memory with --memory".to_owned())
    }
}

/// Opens an initramfs of at most `room` bytes, if one was given.
pub(crate) fn open(
    initrd: Option<PathBuf>,
    memory_mib: u32,
    room: u64,
) -> Result<Files, InitrdError> {
    let Some(path) = initrd else {
        return Ok(Files::None);
    };
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Err(source) => Err(InitrdError::Open { path, source }),
        Ok((metadata, _)) if !metadata.is_file() => Err(InitrdError::Open {
            path,
            source: io::Error::other("it is not a file"),
        }),
        Ok((metadata, _)) if metadata.len() > room => {
            Err(InitrdError::TooLarge { path, memory_mib })
        }
        Ok((_, file)) => Ok(Files::Initrd(file)),
    }
}
