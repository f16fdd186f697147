//! [`File`], as in `std::fs`.

use super::attributes::Metadata;
use super::content::Content;
use super::cpio::EntryKind;
use super::mounted;
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
        if let Some(volume) = mounted::source() {
            let (content, metadata) = volume.read(path)?;
            return Ok(Self::new(content, metadata));
        }
        let entry = mounted::tree().lookup(path).ok_or(ErrorKind::NotFound)?;
        entry.kind.check_openable()?;
        Ok(Self::new(entry.data.into(), Metadata::of(entry)))
    }

    pub(super) fn new(content: Content, metadata: Metadata) -> Self {
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

    /// What reads have not given yet.
    pub(crate) fn rest(&self) -> &[u8] {
        self.content.get(self.position..).unwrap_or_default()
    }

    #[cfg(feature = "embedded-io")]
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Reads go on there; behind the end they find nothing.
    #[cfg(feature = "embedded-io")]
    pub(crate) fn set_position(&mut self, position: usize) {
        self.position = position;
    }

    /// Length, time and kind.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = self.rest().read(buf)?;
        self.position += n;
        Ok(n)
    }
}

impl EntryKind {
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
