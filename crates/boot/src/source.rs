//! What images and initramfs are read from.

use std::io::{Read, Seek, SeekFrom};

use vm_memory::ReadVolatile;

/// Where an image or initramfs comes from: a file, or bytes in a [`std::io::Cursor`].
pub trait Source: Read + ReadVolatile + Seek {}

impl<S: Read + ReadVolatile + Seek> Source for S {}

/// The size of a source in bytes.
pub(crate) fn size<S: Seek>(source: &mut S) -> std::io::Result<u64> {
    source.seek(SeekFrom::End(0))
}
