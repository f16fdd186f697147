//! [`Metadata`], as in `std::fs`.

use core::time::Duration;

use super::cpio::{Entry, EntryKind};

/// What is known about a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) len: u64,
    pub(super) modified_s: u64,
    pub(super) kind: EntryKind,
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
        self.kind == EntryKind::Directory
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }
}
