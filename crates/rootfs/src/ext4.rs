//! A tree as an ext4 disk, made by `mke2fs -d` without mounting anything.
//!
//! Owners are kept when root makes the disk; otherwise all is the caller's, since
//! nobody else may give files away.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cpio::{PackError, copy};
use crate::tree::{Kind, Node, Tree};

const PROGRAM: &str = "mke2fs";

/// A disk that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file cannot be copied.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A temporary file or directory cannot be made.
    #[error("cannot lay out the disk's files")]
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
    for (name, node) in tree.entries() {
        lay_out(&dir.path().join(name), node)?;
    }
    // Last, so that a directory without write permission can be filled.
    for (name, node) in tree.entries() {
        settle(&dir.path().join(name), node).map_err(DiskError::Layout)?;
    }
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

fn lay_out(place: &Path, node: &Node) -> Result<(), DiskError> {
    match &node.kind {
        Kind::Directory => fs::create_dir(place).map_err(DiskError::Layout),
        Kind::Link(target) => symlink(target, place).map_err(DiskError::Layout),
        Kind::File(content) => {
            let file = File::create_new(place).map_err(DiskError::Layout)?;
            let mut to = BufWriter::new(file);
            copy(content, &mut to)?;
            to.into_inner()
                .map(drop)
                .map_err(|error| DiskError::Layout(error.into_error()))
        }
    }
}

fn settle(place: &Path, node: &Node) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        lchown(place, Some(node.uid), Some(node.gid))?;
    }
    match node.kind {
        Kind::Link(_) => Ok(()),
        _ => fs::set_permissions(place, fs::Permissions::from_mode(node.permissions)),
    }
}
