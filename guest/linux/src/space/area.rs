//! A mapping, and what is behind its pages.

use crate::files::Bytes;
use crate::memory::Rights;

/// The name of anonymous memory that is shared: as a file in memory it keeps its contents until it is
/// unmapped.
pub(crate) const SHARED: &str = "[shared]";

/// What is behind an area's pages.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// Zeros.
    Anonymous,
    /// A file's bytes from `offset` at the area's begin; zeros after `end` of the file.
    File { bytes: Bytes, offset: u64, end: u64 },
}

impl Backing {
    pub(super) fn advanced(&self, by: u64) -> Self {
        match self {
            Self::Anonymous => Self::Anonymous,
            Self::File { bytes, offset, end } => Self::File {
                bytes: bytes.clone(),
                offset: offset + by,
                end: *end,
            },
        }
    }
}

/// A mapping.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) end: u64,
    pub(crate) rights: Rights,
    pub(crate) backing: Backing,
    pub(crate) name: &'static str,
}

impl Area {
    /// Whether `other` at `next` is this area at `start` continued.
    pub(super) fn continues(&self, start: u64, next: u64, other: &Self) -> bool {
        self.end == next
            && self.rights == other.rights
            && self.name == other.name
            && match (&self.backing, &other.backing) {
                (Backing::Anonymous, Backing::Anonymous) => true,
                (
                    Backing::File { bytes, offset, end },
                    Backing::File {
                        bytes: other_bytes,
                        offset: other_offset,
                        end: other_end,
                    },
                ) => {
                    bytes.is(other_bytes)
                        && end == other_end
                        && offset + (next - start) == *other_offset
                }
                _ => false,
            }
    }
}
