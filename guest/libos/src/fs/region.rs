//! [`Region`]: memory that several contents share.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};

use super::content::Content;
use crate::hal::boot::{self, Initramfs};

/// Memory that several contents share, such as an archive's. A clone is another handle; the
/// memory is freed with the last handle and the last content.
#[derive(Clone)]
pub struct Region(Arc<Memory>);

enum Memory {
    Initramfs(Initramfs),
    Own(Vec<u8>),
}

impl Region {
    /// The initramfs; `None` if there is none, or if its files were looked at in any other way
    /// before. From then on it is not the appliance's file system, which is empty.
    pub fn of_initramfs() -> Option<Self> {
        let taken = boot::take_initramfs()?;
        Some(Self(Arc::new(Memory::Initramfs(taken))))
    }

    /// Whether neither a content nor another handle keeps the memory.
    pub fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The content of a range of it; `None` beyond its end.
    pub fn content(&self, range: Range<usize>) -> Option<Content> {
        self.get(range.clone())?;
        Some(Content::part(self.clone(), range))
    }
}

impl From<Vec<u8>> for Region {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Memory::Own(bytes)))
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Memory::Initramfs(bytes) => bytes,
            Memory::Own(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_with_the_last_content_of_it() {
        let region = Region::from(b"abcd".to_vec());
        let memory = Arc::downgrade(&region.0);
        let first = region.content(0..2).unwrap();
        let rest = region.content(2..4).unwrap();
        drop(region);
        assert!(first == b"ab" && rest == b"cd");
        let again = rest.clone();
        drop((first, rest));
        assert!(memory.strong_count() > 0 && again == b"cd");
        drop(again);
        assert_eq!(memory.strong_count(), 0);
    }

    #[test]
    fn a_range_beyond_the_end_has_no_content() {
        let region = Region::from(b"ab".to_vec());
        for range in [1..3, 3..3, 2..usize::MAX] {
            assert!(region.content(range).is_none());
        }
        assert_eq!(region.content(2..2).unwrap(), b"");
    }
}
