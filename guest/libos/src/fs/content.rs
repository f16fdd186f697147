//! [`Content`]: the bytes of a file, wherever they are.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};

use super::region::Region;

/// The bytes of a file. A clone is another handle of the same bytes; those of a file
/// on a disk, and those of a [`Region`], are freed with the last handle.
#[derive(Clone)]
pub struct Content(Bytes);

#[derive(Clone)]
enum Bytes {
    Archived(&'static [u8]),
    Counted(Arc<Counted>),
}

enum Counted {
    Loaded(Vec<u8>),
    Part(Region, Range<usize>),
}

impl Content {
    /// Bytes that stay for as long as the appliance runs.
    pub const fn archived(bytes: &'static [u8]) -> Self {
        Self(Bytes::Archived(bytes))
    }

    /// Bytes read from a disk.
    pub fn loaded(bytes: Vec<u8>) -> Self {
        Self(Bytes::Counted(Arc::new(Counted::Loaded(bytes))))
    }

    /// The bytes of a region in a range, which is inside of it.
    pub(super) fn part(region: Region, range: Range<usize>) -> Self {
        Self(Bytes::Counted(Arc::new(Counted::Part(region, range))))
    }

    /// Whether this is the only handle of loaded bytes.
    pub(crate) fn is_only_handle(&self) -> bool {
        match &self.0 {
            Bytes::Archived(_) => false,
            Bytes::Counted(bytes) => Arc::strong_count(bytes) == 1,
        }
    }
}

impl Deref for Content {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Archived(bytes) => bytes,
            Bytes::Counted(bytes) => bytes,
        }
    }
}

impl Deref for Counted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Loaded(bytes) => bytes,
            Self::Part(region, range) => region.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl From<&'static [u8]> for Content {
    fn from(bytes: &'static [u8]) -> Self {
        Self::archived(bytes)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Content {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.len())
    }
}
