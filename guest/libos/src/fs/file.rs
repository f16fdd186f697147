//! [`File`] and [`Metadata`], as in `std::fs`.

use core::time::Duration;

use super::content::Content;
use super::cpio::{Entry, Kind};
use crate::io::{Error, ErrorKind, Read, Result};

/// An open file: a view of its bytes and a position.
#[derive(Clone, Debug)]
pub struct File {
    content: Content,
    metadata: Metadata,
    position: usize,
}

impl File {
    /// Opens the file at `path`.
    pub fn open(path: &str) -> Result<Self> {
        if let Some(volume) = super::MOUNTED.get() {
            let (content, metadata) = volume.read(path)?;
            return Ok(Self::new(content, metadata));
        }
        let entry = super::tree().lookup(path).ok_or(ErrorKind::NotFound)?;
        entry.kind.check_openable()?;
        Ok(Self::new(entry.data.into(), Metadata::of(entry)))
    }

    fn new(content: Content, metadata: Metadata) -> Self {
        Self {
            content,
            metadata,
            position: 0,
        }
    }

    /// The whole content, wherever the position is.
    pub fn bytes(&self) -> &[u8] {
        &self.content
    }

    /// The whole content, as a handle that outlives the file.
    pub fn content(&self) -> Content {
        self.content.clone()
    }

    /// Length, time and kind.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut rest = &self.content[self.position..];
        let n = rest.read(buf)?;
        self.position += n;
        Ok(n)
    }
}

impl Kind {
    /// Only regular files have content.
    pub(super) fn check_openable(self) -> Result<()> {
        match self {
            Self::File => Ok(()),
            Self::Directory => Err(ErrorKind::IsADirectory.into()),
            Self::Link | Self::Other => {
                Err(Error::new(ErrorKind::Unsupported, "not a regular file"))
            }
        }
    }
}

/// What is known about a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) len: u64,
    pub(super) modified_s: u64,
    pub(super) kind: Kind,
}

impl Metadata {
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        Self {
            len: entry.data.len() as u64,
            modified_s: entry.modified_s.into(),
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
        Duration::from_secs(self.modified_s)
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
