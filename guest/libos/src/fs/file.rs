//! [`File`], [`Metadata`] and [`ReadDir`], as in `std::fs`.

use core::time::Duration;

use super::cpio::{Entry, Kind};
use super::tree::{Tree, parent};
use crate::io::{Error, ErrorKind, Read, Result};

/// An open file: a view of its bytes and a position.
#[derive(Clone, Debug)]
pub struct File {
    entry: &'static Entry<'static>,
    position: usize,
}

impl File {
    /// Opens the file at `path`.
    pub fn open(path: &str) -> Result<Self> {
        let entry = super::tree().lookup(path).ok_or(ErrorKind::NotFound)?;
        match entry.kind {
            Kind::File => Ok(Self { entry, position: 0 }),
            Kind::Directory => Err(ErrorKind::IsADirectory.into()),
            Kind::Other => Err(Error::new(ErrorKind::Unsupported, "not a regular file")),
        }
    }

    /// The whole content, wherever the position is.
    pub fn bytes(&self) -> &'static [u8] {
        self.entry.data
    }

    /// Length, time and kind.
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.entry)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut rest = &self.entry.data[self.position..];
        let n = rest.read(buf)?;
        self.position += n;
        Ok(n)
    }
}

/// What is known about a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    len: u64,
    modified_s: u32,
    kind: Kind,
}

impl Metadata {
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        Self {
            len: entry.data.len() as u64,
            modified_s: entry.modified_s,
            kind: entry.kind,
        }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // as in std
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Time of the last modification, since 1970 (UTC), in whole seconds.
    pub fn modified(&self) -> Duration {
        Duration::from_secs(self.modified_s.into())
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }
}

/// Iterator over a directory.
#[derive(Clone, Debug)]
pub struct ReadDir {
    path: &'static str,
    rest: core::slice::Iter<'static, Entry<'static>>,
}

impl ReadDir {
    pub(super) fn open(tree: &'static Tree<'static>, path: &str) -> Result<Self> {
        let entry = tree.lookup(path).ok_or(ErrorKind::NotFound)?;
        match entry.kind {
            Kind::Directory => Ok(Self {
                path: entry.path,
                rest: tree.entries().iter(),
            }),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }
}

impl Iterator for ReadDir {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        let path = self.path;
        self.rest
            .find(|entry| !entry.path.is_empty() && parent(entry.path) == path)
            .map(|entry| DirEntry { entry })
    }
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry {
    entry: &'static Entry<'static>,
}

impl DirEntry {
    /// Name within the directory.
    pub fn file_name(&self) -> &'static str {
        let path = self.entry.path;
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// Path from the root, without a leading `/`.
    pub fn path(&self) -> &'static str {
        self.entry.path
    }

    /// Length, time and kind.
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.entry)
    }
}
