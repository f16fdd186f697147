//! The initramfs: page aligned at the top of low RAM, above the image.

use std::io::{self, SeekFrom};
use std::ops::Range;

use tare_abi::layout::{KIB, MIB};
use vm_memory::{Bytes, GuestAddress};

use crate::GuestMemoryMmap;
use crate::error::LoadError;
use crate::source::{Source, size};

const PAGE: u64 = 4 * KIB;

/// The files that a guest finds in its memory: a [`Source`], which is copied, or what knows how to
/// come there itself.
pub trait Initramfs {
    /// Its size in bytes.
    fn size(&mut self) -> io::Result<u64>;

    /// Puts all of it into guest memory from `start` on, a multiple of 4 KiB. As many bytes as
    /// [`Initramfs::size`] gave are free there, and zero, up to the end of their last page.
    fn put(&mut self, memory: &GuestMemoryMmap, start: GuestAddress) -> Result<(), LoadError>;
}

impl<S: Source> Initramfs for S {
    fn size(&mut self) -> io::Result<u64> {
        size(self)
    }

    fn put(&mut self, memory: &GuestMemoryMmap, start: GuestAddress) -> Result<(), LoadError> {
        let bytes = size(self).map_err(LoadError::Initramfs)?;
        self.seek(SeekFrom::Start(0))
            .map_err(LoadError::Initramfs)?;
        Ok(memory.read_exact_volatile_from(start, self, bytes as usize)?)
    }
}

/// Where an initramfs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    start: u64,
    bytes: u64,
}

impl Placement {
    /// The highest page-aligned place between the image's end and the end of low RAM.
    pub(crate) fn choose(
        initramfs: &mut dyn Initramfs,
        image_end: u64,
        low_end: u64,
    ) -> Result<Self, LoadError> {
        let bytes = initramfs.size().map_err(LoadError::Initramfs)?;
        let first = image_end.next_multiple_of(PAGE);
        let room = low_end.saturating_sub(first);
        let start = low_end.checked_sub(bytes).map(|start| start & !(PAGE - 1));
        match start.filter(|start| *start >= first) {
            Some(start) => Ok(Self { start, bytes }),
            None => Err(LoadError::InitramfsTooLarge {
                bytes,
                room,
                need_mib: first
                    .saturating_add(bytes)
                    .saturating_add(PAGE)
                    .div_ceil(MIB),
            }),
        }
    }

    pub(crate) fn write(
        self,
        initramfs: &mut dyn Initramfs,
        memory: &GuestMemoryMmap,
    ) -> Result<Range<u64>, LoadError> {
        initramfs.put(memory, GuestAddress(self.start))?;
        Ok(self.start..self.start + self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn choose(bytes: usize, image_end: u64, low_end: u64) -> Result<Placement, LoadError> {
        Placement::choose(&mut Cursor::new(vec![0; bytes]), image_end, low_end)
    }

    #[test]
    fn it_lies_page_aligned_at_the_top() {
        let placed = choose(5000, MIB, 2 * MIB).unwrap();
        assert_eq!((placed.start, placed.bytes), (2 * MIB - 8192, 5000));
    }

    #[test]
    fn an_exact_fit_is_a_fit() {
        assert_eq!(choose(MIB as usize, MIB, 2 * MIB).unwrap().start, MIB);
        assert!(choose(MIB as usize + 1, MIB, 2 * MIB).is_err());
        assert!(choose(MIB as usize, MIB + 1, 2 * MIB).is_err());
    }

    #[test]
    fn the_advised_memory_is_enough() {
        let error = choose(3 * MIB as usize + 5, MIB + 7, 2 * MIB).unwrap_err();
        let LoadError::InitramfsTooLarge { need_mib, room, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(room, MIB - PAGE);
        assert!(choose(3 * MIB as usize + 5, MIB + 7, need_mib * MIB).is_ok());
    }

    #[test]
    fn more_memory_is_advised_only_where_it_helps() {
        let text = |need_mib| {
            let error = LoadError::InitramfsTooLarge {
                bytes: 2,
                room: 1,
                need_mib,
            };
            error.to_string()
        };
        assert!(text(3072).ends_with("give the machine 3072 MiB of memory or put less into it"));
        assert!(text(3075).ends_with("put less into it, or the files on a disk"));
    }
}
