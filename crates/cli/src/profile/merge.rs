//! `tare profile merge`: several profiles as one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_profile::{MAX_BYTES, Profile, ProfileError};

use super::output::OutFile;
use super::text;
use crate::args::MergeArgs;
use crate::failure::{Explain, Failure, Outcome};

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("cannot read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot use {}", path.display())]
    Profile { path: PathBuf, source: ProfileError },
}

impl Explain for ReadError {
    fn code(&self) -> ExitCode {
        ExitCode::ProfileUnusable
    }
}

/// Merges the profiles and writes the result.
pub(super) fn merge(args: &MergeArgs) -> Outcome {
    let mut merged = Profile::empty();
    for path in &args.files {
        merged.merge(&read(path)?);
    }
    let json = merged
        .to_json()
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    OutFile::open(&args.out)?.write(&json)?;
    crate::print(&text::of(&merged, Some(&args.out)))
}

fn read(path: &Path) -> Result<Profile, ReadError> {
    let failed = |source| ReadError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = io::Read::take(fs::File::open(path).map_err(failed)?, MAX_BYTES as u64 + 1);
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).map_err(failed)?;
    Profile::read(&bytes).map_err(|source| ReadError::Profile {
        path: path.to_owned(),
        source,
    })
}
