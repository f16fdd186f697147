//! [`ReadDir`] and [`DirEntry`], as in `std::fs`.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

use super::attributes::Metadata;
use super::cpio::{Entry, EntryKind};
use super::tree::{Tree, parent};
use crate::io::{ErrorKind, Result};

/// Iterator over a directory.
#[derive(Clone, Debug)]
pub struct ReadDir(Entries);

#[derive(Clone, Debug)]
enum Entries {
    Archived {
        path: &'static str,
        rest: core::slice::Iter<'static, Entry<'static>>,
    },
    Listed(vec::IntoIter<DirEntry>),
}

impl ReadDir {
    pub(super) fn archived(tree: &'static Tree<'static>, path: &str) -> Result<Self> {
        let entry = tree.lookup(path).ok_or(ErrorKind::NotFound)?;
        match entry.kind {
            EntryKind::Directory => Ok(Self(Entries::Archived {
                path: entry.path,
                rest: tree.entries().iter(),
            })),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn listed(entries: Vec<DirEntry>) -> Self {
        Self(Entries::Listed(entries.into_iter()))
    }
}

impl Iterator for ReadDir {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        match &mut self.0 {
            Entries::Listed(entries) => entries.next(),
            Entries::Archived { path, rest } => rest
                .find(|entry| !entry.path.is_empty() && parent(entry.path) == *path)
                .map(|entry| DirEntry {
                    path: Cow::Borrowed(entry.path),
                    metadata: Metadata::of(entry),
                }),
        }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub(super) path: Cow<'static, str>,
    pub(super) metadata: Metadata,
}

impl DirEntry {
    /// Name within the directory.
    pub fn file_name(&self) -> &str {
        let path = self.path();
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// Path from the root, without a leading `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Length, time and kind.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }
}
