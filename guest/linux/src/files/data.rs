//! The bytes of a file in memory: the archive's until the first write, then its own.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::heap;
use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};

/// A handle to a file's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Arc<SpinLock<Content>>);

#[derive(Debug)]
enum Content {
    Archived(&'static [u8]),
    Own(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Archived(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }

    /// The bytes for writing, with room for `length`.
    fn own(&mut self, length: usize) -> Result<&mut Vec<u8>> {
        if let &mut Self::Archived(archived) = self {
            let mut bytes = reserve(Vec::new(), archived.len().max(length))?;
            bytes.extend_from_slice(archived);
            *self = Self::Own(bytes);
        }
        let Self::Own(bytes) = self else {
            return Err(Errno::EIO);
        };
        if bytes.capacity() < length {
            // Doubling, as far as there is memory.
            let more = (bytes.capacity() * 2).max(length);
            let old = core::mem::take(bytes);
            let wanted = if heap::has_room(more) { more } else { length };
            match reserve(Vec::new(), wanted) {
                Ok(mut new) => {
                    new.extend_from_slice(&old);
                    *bytes = new;
                }
                Err(errno) => {
                    *bytes = old;
                    return Err(errno);
                }
            }
        }
        Ok(bytes)
    }
}

fn reserve(mut bytes: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    let has_room = heap::has_room(length) && bytes.try_reserve_exact(length).is_ok();
    if has_room {
        Ok(bytes)
    } else {
        Err(Errno::ENOSPC)
    }
}

impl Bytes {
    /// Bytes that stay as long as the appliance runs.
    pub(crate) fn archived(bytes: &'static [u8]) -> Self {
        Self(Arc::new(SpinLock::new(Content::Archived(bytes))))
    }

    /// The archive's bytes, unless the file was written.
    pub(crate) fn archive(&self) -> Option<&'static [u8]> {
        match &*self.0.lock() {
            Content::Archived(bytes) => Some(bytes),
            Content::Own(_) => None,
        }
    }

    /// Bytes that belong to this file.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(SpinLock::new(Content::Own(bytes))))
    }

    /// Whether both are of one file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.lock().bytes().len() as u64
    }

    /// Copies from `offset`; gives how many bytes there were.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        self.read_until(offset, u64::MAX, to)
    }

    /// Copies from `offset`, nothing from `end` on.
    pub(crate) fn read_until(&self, offset: u64, end: u64, to: &mut [u8]) -> usize {
        self.with(offset, end, |bytes| {
            let count = bytes.len().min(to.len());
            to[..count].copy_from_slice(&bytes[..count]);
            count
        })
    }

    /// Calls `act` with the bytes from `offset` to `end`, as far as there are any.
    pub(crate) fn with<R>(&self, offset: u64, end: u64, act: impl FnOnce(&[u8]) -> R) -> R {
        let content = self.0.lock();
        let bytes = content.bytes();
        let end = end.min(bytes.len() as u64) as usize;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(end);
        act(&bytes[from..end])
    }

    /// Writes at `offset`, with zeros before it where the file was shorter.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<usize> {
        let start = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let end = start.checked_add(from.len()).ok_or(Errno::EFBIG)?;
        if from.is_empty() {
            // Also behind the end: nothing comes there.
            return Ok(0);
        }
        let mut content = self.0.lock();
        let bytes = content.own(end)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(from);
        Ok(from.len())
    }

    /// Writes at the end; gives the offset behind.
    pub(crate) fn append(&self, from: &[u8]) -> Result<u64> {
        let mut content = self.0.lock();
        let end = content
            .bytes()
            .len()
            .checked_add(from.len())
            .ok_or(Errno::EFBIG)?;
        let bytes = content.own(end)?;
        bytes.extend_from_slice(from);
        Ok(end as u64)
    }

    /// Cuts, or adds zeros.
    pub(crate) fn set_len(&self, length: u64) -> Result<()> {
        let length = usize::try_from(length).map_err(|_| Errno::EFBIG)?;
        let mut content = self.0.lock();
        if length == 0 {
            *content = Content::Own(Vec::new());
            return Ok(());
        }
        content.own(length)?.resize(length, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archives_bytes_are_copied_by_the_first_write() {
        let archived: &'static [u8] = b"hello world";
        let bytes = Bytes::archived(archived);
        let other = bytes.clone();
        assert_eq!(bytes.write(6, b"there"), Ok(5));
        let mut read = [0; 20];
        assert_eq!(other.read(0, &mut read), 11);
        assert_eq!(&read[..11], b"hello there");
        assert_eq!(archived, b"hello world");
    }

    #[test]
    fn writes_beyond_the_end_leave_zeros() {
        let bytes = Bytes::new(Vec::new());
        assert_eq!(bytes.write(3, b"x"), Ok(1));
        assert_eq!(bytes.append(b"y"), Ok(5));
        let mut read = [9; 8];
        assert_eq!(bytes.read(0, &mut read), 5);
        assert_eq!(&read, b"\0\0\0xy\x09\x09\x09");
        assert_eq!(bytes.read_until(0, 4, &mut read), 4);
        assert_eq!(bytes.write(9, b""), Ok(0));
        assert_eq!(bytes.len(), 5);
        assert_eq!(bytes.read(9, &mut read), 0);
    }

    #[test]
    fn lengths_change_both_ways() {
        let bytes = Bytes::archived(b"abc");
        assert_eq!(bytes.set_len(5), Ok(()));
        assert_eq!(bytes.len(), 5);
        assert_eq!(bytes.set_len(0), Ok(()));
        assert_eq!(bytes.len(), 0);
        assert_eq!(bytes.write(u64::MAX, b"x"), Err(Errno::EFBIG));
    }
}
