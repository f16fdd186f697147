//! The bytes that a connection has received and not yet understood.

use alloc::vec;
use alloc::vec::Vec;

use crate::limits::{BUFFER, MAX_HEAD};

/// A sliding buffer that grows to the longest head and shrinks back.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BUFFER],
            start: 0,
            end: 0,
        }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > BUFFER {
                *self = Self::new();
            }
        }
    }

    /// Room behind the bytes; `None` if they are as long as a head may be.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            if self.end >= MAX_HEAD {
                return None;
            }
            self.bytes.resize(2 * self.end, 0);
        }
        Some(&mut self.bytes[self.end..])
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
        let (mut buffer, mut expected, mut next) = (Buffer::new(), 0u8, 0u8);
        for round in 0..200 {
            let room = buffer.room().unwrap();
            let n = room.len().min(1 + round * 7 % 400);
            room[..n].fill_with(|| {
                next = next.wrapping_add(1);
                next
            });
            buffer.received(n);
            let taken = buffer.filled().len().min(round * 5 % 390);
            for &byte in &buffer.filled()[..taken] {
                expected = expected.wrapping_add(1);
                assert_eq!(byte, expected);
            }
            buffer.consume(taken);
        }
    }

    #[test]
    fn the_longest_head_fills_it_and_an_empty_one_is_small_again() {
        let mut buffer = Buffer::new();
        while let Some(room) = buffer.room() {
            let n = room.len();
            buffer.received(n);
        }
        assert_eq!(buffer.filled().len(), MAX_HEAD);
        buffer.consume(MAX_HEAD);
        assert!(buffer.is_empty());
        assert_eq!(buffer.bytes.len(), BUFFER);
    }
}
