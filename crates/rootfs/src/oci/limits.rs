//! What unpacking an image may cost: bytes, entries, headers and look-ups are
//! each counted against a limit that follows from the room for the root.

use std::cell::Cell;
use std::io::{self, Read};

use crate::lookups::Lookups;

/// Entries that any image may have.
const MIN_ENTRIES: u64 = 10_000;
/// Entries that no image may exceed: the tree is kept in memory.
const MAX_ENTRIES: u64 = 1_000_000;
/// Room for one entry, besides its content, in a guest's memory.
const BYTES_PER_ENTRY: u64 = 1024;
/// Look-ups that an entry may cost on average, in compared bytes.
const LOOKUPS_PER_ENTRY: u64 = 4096;
/// Headers of one entry: names, links and extended attributes.
pub(super) const MAX_HEADER_BYTES: u64 = 256 << 10;
/// Layers of one image; docker makes 127 at most.
pub(super) const MAX_LAYERS: usize = 512;
/// Indexes that name indexes: one is usual for several platforms.
pub(super) const MAX_NESTING: u32 = 3;

/// Limits for unpacking an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of all files, of all layers' plain streams, of their compressed
    /// bytes, and of the resulting archive, each.
    pub bytes: u64,
    /// Most entries of all layers, and most entries of the root.
    pub entries: u64,
}

impl Limits {
    /// The limits for a root of this size, one entry for each KiB.
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            entries: (bytes / BYTES_PER_ENTRY).clamp(MIN_ENTRIES, MAX_ENTRIES),
        }
    }
}

/// A limit that an image exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Files, streams or the archive.
    #[error("it unpacks to more than {} MiB", limit_bytes >> 20)]
    Bytes {
        /// The limit.
        limit_bytes: u64,
    },
    /// Files, directories, links and whiteouts.
    #[error("it has more than {limit} files, directories and links")]
    Entries {
        /// The limit.
        limit: u64,
    },
    /// A name, a link's target or extended attributes.
    #[error("the headers of a file in it are larger than {} KiB", MAX_HEADER_BYTES >> 10)]
    Header,
    /// Deep directories and chains of symbolic links.
    #[error("its directories and symbolic links are nested too deeply to unpack")]
    Lookups,
    /// Layers on each other.
    #[error("it has more than {MAX_LAYERS} layers")]
    Layers,
}

/// What is left of the limits while an image is unpacked.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    compressed: Cell<u64>,
    stream: Cell<u64>,
    content: Cell<u64>,
    header: Cell<u64>,
    entries: Cell<u64>,
    /// The first limit that was exceeded, which reads report as mere I/O errors.
    exceeded: Cell<Option<LimitError>>,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            compressed: Cell::new(limits.bytes),
            stream: Cell::new(limits.bytes),
            content: Cell::new(limits.bytes),
            header: Cell::new(MAX_HEADER_BYTES),
            entries: Cell::new(limits.entries),
            exceeded: Cell::new(None),
        }
    }

    pub(super) fn lookups(&self) -> Lookups {
        Lookups::new(self.limits.entries.saturating_mul(LOOKUPS_PER_ENTRY))
    }

    pub(super) fn exceeded(&self) -> Option<LimitError> {
        self.exceeded.get()
    }

    /// Accounts for bytes of a file's content, expanded.
    pub(super) fn take_content(&self, bytes: u64) -> Result<(), LimitError> {
        self.take(&self.content, bytes, self.bytes_error())
    }

    /// Accounts for an entry and begins the headers of the next.
    pub(super) fn take_entry(&self) -> Result<(), LimitError> {
        let limit = self.limits.entries;
        self.take(&self.entries, 1, LimitError::Entries { limit })
    }

    /// Begins the headers of the next entry.
    pub(super) fn begin_header(&self) {
        self.header.set(MAX_HEADER_BYTES);
    }

    /// Ends the headers: content is limited by its own sum.
    pub(super) fn end_header(&self) {
        self.header.set(u64::MAX);
    }

    /// Checks a tree and what it packs to.
    pub(super) fn check_tree(&self, entries: u64, bytes: u64) -> Result<(), LimitError> {
        if entries > self.limits.entries {
            let limit = self.limits.entries;
            return Err(LimitError::Entries { limit });
        }
        if bytes > self.limits.bytes {
            return Err(self.bytes_error());
        }
        Ok(())
    }

    fn bytes_error(&self) -> LimitError {
        let limit_bytes = self.limits.bytes;
        LimitError::Bytes { limit_bytes }
    }

    fn take(&self, from: &Cell<u64>, amount: u64, error: LimitError) -> Result<(), LimitError> {
        let left = from.get().checked_sub(amount).ok_or(error);
        left.map(|left| from.set(left)).inspect_err(|error| {
            self.exceeded.set(self.exceeded.get().or(Some(*error)));
        })
    }
}

/// Counts a layer's bytes as the image has them.
pub(super) struct CompressedReader<'a, R> {
    pub(super) from: R,
    pub(super) budget: &'a Budget,
}

impl<R: Read> Read for CompressedReader<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        let Budget { compressed, .. } = self.budget;
        let error = self.budget.bytes_error();
        self.budget
            .take(compressed, n as u64, error)
            .map_err(io::Error::other)?;
        Ok(n)
    }
}

/// Counts a layer's plain bytes and those of each entry's headers.
pub(super) struct StreamReader<'a, R> {
    pub(super) from: R,
    pub(super) budget: &'a Budget,
}

impl<R: Read> Read for StreamReader<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        let Budget { stream, header, .. } = self.budget;
        let bytes = n as u64;
        let error = self.budget.bytes_error();
        self.budget
            .take(stream, bytes, error)
            .and_then(|()| self.budget.take(header, bytes, LimitError::Header))
            .map_err(io::Error::other)?;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_room_for_the_root() {
        assert_eq!(Limits::of_bytes(0).entries, MIN_ENTRIES);
        assert_eq!(Limits::of_bytes(64 << 20).entries, 65_536);
        assert_eq!(Limits::of_bytes(u64::MAX).entries, MAX_ENTRIES);
    }

    #[test]
    fn the_first_limit_exceeded_is_the_one_reported() {
        let budget = Budget::new(Limits {
            bytes: 100,
            entries: 1,
        });
        assert_eq!(budget.take_content(100), Ok(()));
        assert_eq!(budget.take_entry(), Ok(()));
        assert_eq!(budget.exceeded(), None);
        let entries = LimitError::Entries { limit: 1 };
        assert_eq!(budget.take_entry(), Err(entries));
        assert!(budget.take_content(1).is_err());
        assert_eq!(budget.exceeded(), Some(entries));
        assert_eq!(
            entries.to_string(),
            "it has more than 1 files, directories and links"
        );
    }
}
