//! A tree as an ext4 disk, made by `mke2fs -d` without mounting anything.
//!
//! Owners are those that `directory` can give.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::directory::{self, Owners, WriteError};
use crate::tree::Tree;

const PROGRAM: &str = "mke2fs";

/// A disk that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The files cannot be laid out.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A temporary file or directory cannot be made.
    #[error("cannot make the disk's file")]
    Layout(#[source] io::Error),
    /// The program is missing.
    #[error("{PROGRAM} is not installed; install it (Debian: e2fsprogs)")]
    NoProgram,
    /// The program failed; most often the disk is too small.
    #[error("{PROGRAM} failed: {0}")]
    Failed(String),
}

/// Makes the file `disk`, `bytes` large and sparse, with an ext4 file system that
/// holds `tree`.
pub fn make(tree: &Tree, disk: &Path, bytes: u64) -> Result<(), DiskError> {
    let dir = tempfile::tempdir().map_err(DiskError::Layout)?;
    directory::write(tree, dir.path(), Owners::Kept)?;
    File::create(disk)
        .and_then(|file| file.set_len(bytes))
        .map_err(DiskError::Layout)?;
    let output = Command::new(PROGRAM)
        .args(["-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-d"])
        .arg(dir.path())
        .arg(disk)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(DiskError::Failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DiskError::NoProgram),
        Err(error) => Err(DiskError::Layout(error)),
    }
}

/// The program lies where only root looks.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}
