//! The bytes that a connection has received and not yet understood.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::heap;

/// How long a buffer may be, in bytes.
pub trait Sizes {
    /// Its length as long as requests fit in.
    const FIRST: usize;
    /// Largest length that it keeps while it is empty.
    const KEPT: usize;
    /// Its greatest length.
    const MOST: usize;
}

/// A sliding buffer that grows with what has come, not with what was announced,
/// and shrinks back when it is empty.
#[derive(Debug)]
pub struct Buffer<S> {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    sizes: PhantomData<S>,
}

/// Why a buffer takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// It is as long as it may be.
    #[error("buffer is at its size limit")]
    Full,
    /// There is no memory for a longer one.
    #[error("no memory to extend the buffer")]
    NoMemory,
}

impl<S: Sizes> Buffer<S> {
    /// An empty buffer, which takes no memory before the first call of [`room`](Self::room).
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            sizes: PhantomData,
        }
    }

    /// The bytes.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `n` bytes.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > S::KEPT {
                self.bytes = Vec::new();
            }
        }
    }

    /// Room behind the bytes, at least 1.
    #[inline]
    pub fn room(&mut self) -> Result<&mut [u8], NoRoom> {
        if self.end == self.bytes.len() {
            self.make_room()?;
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// Takes the first `n` bytes of the room as received.
    #[inline]
    pub fn received(&mut self, n: usize) {
        self.end += n;
    }

    /// Moves the bytes to the front if that helps, else grows.
    #[cold]
    fn make_room(&mut self) -> Result<(), NoRoom> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            return Ok(());
        }
        if self.end >= S::MOST {
            return Err(NoRoom::Full);
        }
        let more = self.end.max(S::FIRST).min(S::MOST - self.end);
        // Growing moves the bytes: for a moment there are two buffers.
        if !heap::has_room(self.end + more) {
            return Err(NoRoom::NoMemory);
        }
        self.bytes
            .try_reserve_exact(more)
            .map_err(|_| NoRoom::NoMemory)?;
        self.bytes.resize(self.end + more, 0);
        Ok(())
    }
}

impl<S: Sizes> Default for Buffer<S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Small;

    impl Sizes for Small {
        const FIRST: usize = 1024;
        const KEPT: usize = 1024;
        const MOST: usize = 8 * 1024;
    }

    /// Grows without end, and keeps some of it.
    #[derive(Debug)]
    struct Large;

    impl Sizes for Large {
        const FIRST: usize = 2048;
        const KEPT: usize = 16 * 1024;
        const MOST: usize = usize::MAX;
    }

    /// Receives at most `step` bytes at a time, of which most are taken at once.
    fn bytes_come_out_in_order<S: Sizes>(rounds: usize, step: usize) {
        let (mut buffer, mut expected, mut next) = (Buffer::<S>::new(), 0u8, 0u8);
        for round in 0..rounds {
            let room = buffer.room().unwrap();
            let n = room.len().min(1 + round * 7 % step);
            room[..n].fill_with(|| {
                next = next.wrapping_add(1);
                next
            });
            buffer.received(n);
            let taken = buffer.filled().len().min(round * 5 % (step - 10));
            for &byte in &buffer.filled()[..taken] {
                expected = expected.wrapping_add(1);
                assert_eq!(byte, expected);
            }
            buffer.consume(taken);
        }
    }

    #[test]
    fn bytes_come_out_in_order_over_slides_and_growth() {
        bytes_come_out_in_order::<Small>(200, 400);
        bytes_come_out_in_order::<Large>(300, 1700);
    }

    #[test]
    fn the_most_bytes_fill_it_and_an_empty_one_is_small_again() {
        let mut buffer = Buffer::<Small>::new();
        while let Ok(room) = buffer.room() {
            let n = room.len();
            buffer.received(n);
        }
        assert_eq!(buffer.room(), Err(NoRoom::Full));
        assert_eq!(buffer.filled().len(), Small::MOST);
        buffer.consume(Small::MOST);
        assert!(buffer.is_empty());
        assert_eq!(buffer.room().unwrap().len(), Small::FIRST);
        assert_eq!(buffer.bytes.len(), Small::FIRST);
    }

    #[test]
    fn a_buffer_without_a_bound_is_small_again_once_empty() {
        let mut buffer = Buffer::<Large>::new();
        while buffer.filled().len() < 100_000 {
            let n = buffer.room().unwrap().len();
            buffer.received(n);
        }
        buffer.consume(buffer.filled().len());
        assert_eq!(buffer.room().unwrap().len(), Large::FIRST);
    }

    #[test]
    fn an_empty_buffer_keeps_what_it_may() {
        let mut buffer = Buffer::<Large>::new();
        while buffer.filled().len() < Large::KEPT {
            let n = buffer.room().unwrap().len();
            buffer.received(n);
        }
        buffer.consume(buffer.filled().len());
        assert_eq!(buffer.room().unwrap().len(), Large::KEPT);
    }
}
