//! The bytes that a connection has received and not yet understood.

use alloc::vec::Vec;

use crate::limits::{BUFFER, KEPT_BUFFER};

/// A sliding buffer that grows with what has come, not with what was announced.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// There is no memory for a longer buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Buffer {
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room behind the bytes. A buffer that is empty becomes small again.
    pub(crate) fn room(&mut self) -> Result<&mut [u8], NoRoom> {
        if self.end == 0 && self.bytes.len() > KEPT_BUFFER {
            self.bytes = Vec::new();
        }
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            let more = self.end.max(BUFFER);
            self.bytes.try_reserve_exact(more).map_err(|_| NoRoom)?;
            self.bytes.resize(self.end + more, 0);
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// Takes the first `n` bytes of the room as received.
    pub(crate) fn received(&mut self, n: usize) {
        self.end += n;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn bytes_come_out_in_order_over_slides_and_growth() {
        let (mut buffer, mut expected, mut next) = (Buffer::default(), 0u8, 0u8);
        for round in 0..300 {
            let room = buffer.room().unwrap();
            let n = room.len().min(1 + round * 7 % 1700);
            room[..n].fill_with(|| {
                next = next.wrapping_add(1);
                next
            });
            buffer.received(n);
            let taken = buffer.filled().len().min(round * 5 % 1690);
            for &byte in &buffer.filled()[..taken] {
                expected = expected.wrapping_add(1);
                assert_eq!(byte, expected);
            }
            buffer.consume(taken);
        }
    }

    #[test]
    fn an_emptied_buffer_is_small_again() {
        let mut buffer = Buffer::default();
        while buffer.filled().len() < 100_000 {
            let n = buffer.room().unwrap().len();
            buffer.received(n);
        }
        buffer.consume(buffer.filled().len());
        assert_eq!(buffer.room().unwrap().len(), BUFFER);
    }
}
