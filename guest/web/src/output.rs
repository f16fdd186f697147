//! Text that is written where memory may have ended: an error, and no end of the machine.

use alloc::vec::Vec;
use core::fmt;

use tare_libos::heap;

/// Text as long as there is memory for it.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    bytes: Vec<u8>,
}

impl Growing {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Write for Growing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        append(&mut self.bytes, text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// No memory for more bytes.
#[derive(Debug)]
pub(crate) struct NoMemory;

/// Adds `more` bytes if there is memory for them.
pub(crate) fn append(bytes: &mut Vec<u8>, more: &[u8]) -> Result<(), NoMemory> {
    if bytes.capacity() - bytes.len() < more.len() {
        // Growing moves the bytes: for a moment there are two buffers.
        let larger = 2 * bytes.capacity() + more.len();
        if !heap::has_room(larger) {
            return Err(NoMemory);
        }
        bytes.try_reserve(more.len()).map_err(|_| NoMemory)?;
    }
    bytes.extend_from_slice(more);
    Ok(())
}

/// Text of at most `N` bytes, without the heap.
#[derive(Debug)]
pub(crate) struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Short<N> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> fmt::Write for Short<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Write as _;

    use super::*;

    #[test]
    fn short_text_ends_where_its_room_does() {
        let mut text = Short::<8>::new();
        write!(text, "{}-{}", 12, 345).unwrap();
        assert_eq!(text.bytes(), b"12-345");
        assert!(text.write_str("678").is_err());
        assert_eq!(text.bytes(), b"12-345");
        text.write_str("67").unwrap();
        assert_eq!(text.bytes(), b"12-34567");
    }

    #[test]
    fn growing_text_is_whole() {
        let mut text = Growing::default();
        for number in 0..1000 {
            write!(text, "{number},").unwrap();
        }
        assert_eq!(text.bytes().len(), 3890);
        assert!(text.bytes().ends_with(b",999,"));
    }
}
