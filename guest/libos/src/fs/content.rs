//! [`Content`]: the bytes of a file, wherever they are.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// The bytes of a file. A clone is another handle of the same bytes; those of a file
/// on a disk are freed with the last handle.
#[derive(Clone)]
pub struct Content(Bytes);

#[derive(Clone)]
enum Bytes {
    Archived(&'static [u8]),
    Loaded(Arc<Vec<u8>>),
}

impl Content {
    /// Bytes that stay for as long as the appliance runs.
    pub const fn archived(bytes: &'static [u8]) -> Self {
        Self(Bytes::Archived(bytes))
    }

    /// Bytes read from a disk.
    pub fn loaded(bytes: Vec<u8>) -> Self {
        Self(Bytes::Loaded(Arc::new(bytes)))
    }

    /// Whether this is the only handle of loaded bytes.
    pub(crate) fn is_only_handle(&self) -> bool {
        match &self.0 {
            Bytes::Archived(_) => false,
            Bytes::Loaded(bytes) => Arc::strong_count(bytes) == 1,
        }
    }
}

impl Deref for Content {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Archived(bytes) => bytes,
            Bytes::Loaded(bytes) => bytes,
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
