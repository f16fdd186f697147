//! Reads profiles from files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_daemon::confine::{self, ConfineError};
use tare_profile::{MAX_BYTES, Profile, ProfileError};

use crate::failure::Explain;

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// No such file.
    #[error("cannot read the profile {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a profile.
    #[error("cannot use the profile {}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ParseError,
    },
}

/// Bytes that are not a profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    /// They are invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The reading thread cannot be confined.
    #[error("cannot confine the thread that reads it")]
    Confine(#[from] ConfineError),
}

/// Parses a profile, which another user or a guest may have written, on a thread that can open,
/// start and connect nothing.
pub(crate) fn parse(bytes: &[u8]) -> Result<Profile, ParseError> {
    Ok(confine::read_confined(None, || Profile::read(bytes))??)
}

impl Explain for ReadError {
    fn code(&self) -> ExitCode {
        ExitCode::ProfileUnusable
    }
}

/// All profiles as one.
pub(crate) fn merged(paths: &[PathBuf]) -> Result<Profile, ReadError> {
    let mut all = Profile::empty();
    for profile in each(paths)? {
        all.merge(&profile);
    }
    Ok(all)
}

/// All profiles, in their order.
pub(crate) fn each(paths: &[PathBuf]) -> Result<Vec<Profile>, ReadError> {
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a file; of one that is too long, only as much as shows that.
fn read(path: &Path) -> Result<Profile, ReadError> {
    let failed = |source| ReadError::File {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    parse(&bytes).map_err(|source| ReadError::Profile {
        path: path.to_owned(),
        source,
    })
}
