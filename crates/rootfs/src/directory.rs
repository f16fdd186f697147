//! A tree as a directory of this computer.
//!
//! Owners and permissions are kept only when root writes it: no other user may give files away, read
//! a file without permissions, or remove what is in a directory that may not be changed.
//! Capabilities are set by the guest's first process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tare_program::names;

use crate::cpio::{PackError, copy};
use crate::tree::{EntryKind, Node, Tree};

/// A tree that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file of the tree cannot be copied.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// Its place cannot be written.
    #[error("cannot write {}", path.display())]
    Place {
        /// The place.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whose the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Those that the tree has, when root writes it, with its permissions.
    Kept,
    /// The caller, and no other user may change them or become the caller by them.
    Caller,
}

/// Writes every entry below `dir`, where there may be directories of them and nothing else.
pub fn write(tree: &Tree, dir: &Path, owners: Owners) -> Result<(), WriteError> {
    let mut first = HashMap::new();
    for (name, node) in tree.entries() {
        let place = dir.join(path_of(name));
        match node.links.and_then(|group| first.get(&group)) {
            Some(linked) => fs::hard_link(linked, &place).map_err(at(&place))?,
            None => lay_out(&place, node)?,
        }
        if let Some(group) = node.links {
            first.entry(group).or_insert(place);
        }
    }
    // Last, so that a directory without write permission can be filled.
    for (name, node) in tree.entries() {
        let place = dir.join(path_of(name));
        set_attributes(&place, node, owners).map_err(at(&place))?;
    }
    Ok(())
}

/// The path that a text of [`names`] stands for.
fn path_of(text: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(names::bytes(text).into_owned()))
}

fn at(path: &Path) -> impl Fn(io::Error) -> WriteError {
    move |source| WriteError::Place {
        path: path.to_owned(),
        source,
    }
}

fn lay_out(place: &Path, node: &Node) -> Result<(), WriteError> {
    match &node.kind {
        EntryKind::Directory => match fs::create_dir(place) {
            Err(_) if fs::symlink_metadata(place).is_ok_and(|it| it.is_dir()) => Ok(()),
            made => made.map_err(at(place)),
        },
        EntryKind::Link(target) => symlink(path_of(target), place).map_err(at(place)),
        EntryKind::Pipe => mknodat(CWD, place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|errno| at(place)(errno.into())),
        EntryKind::File(content) => {
            let file = File::create_new(place).map_err(at(place))?;
            let mut to = BufWriter::new(file);
            copy(content, &mut to)?;
            to.into_inner()
                .map(drop)
                .map_err(|error| at(place)(error.into_error()))
        }
    }
}

fn set_attributes(place: &Path, node: &Node, owners: Owners) -> io::Result<()> {
    let is_kept = owners == Owners::Kept && rustix::process::geteuid().is_root();
    if is_kept {
        lchown(place, Some(node.uid), Some(node.gid))?;
    }
    let permissions = match &node.kind {
        EntryKind::Link(_) => return Ok(()),
        _ if is_kept => node.permissions,
        EntryKind::Directory => node.permissions & 0o755 | 0o700,
        EntryKind::File(_) | EntryKind::Pipe => node.permissions & 0o755 | 0o600,
    };
    fs::set_permissions(place, fs::Permissions::from_mode(permissions))
}
