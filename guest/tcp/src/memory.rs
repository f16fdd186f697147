//! [`Pool`]: how much memory all connections may use together, and `Ring`, a
//! byte queue that takes its storage from it.
//!
//! Every allocation that a peer can cause goes through here: it is counted,
//! bounded by the pool, and may fail.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Smallest storage of a ring in bytes.
const RING_MIN: usize = 1024;

/// The shared limit. Cloning gives another handle of the same pool.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
    may_take: fn(usize) -> bool,
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self::with_check(limit, |_| true)
    }

    /// A pool of `limit` bytes that also asks `may_take` before it takes more.
    pub fn with_check(limit: usize, may_take: fn(usize) -> bool) -> Self {
        Self(Arc::new(Shared {
            limit,
            used: AtomicUsize::new(0),
            may_take,
        }))
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Whether so much is used that buffers must not grow beyond what progress needs.
    pub(crate) fn is_scarce(&self) -> bool {
        self.used() > self.0.limit / 2
    }

    pub(crate) fn take(&self, bytes: usize) -> bool {
        let used = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = used.saturating_add(bytes) <= self.0.limit && (self.0.may_take)(bytes);
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A queue of bytes that grows by doubling. Bytes can be written beyond its end
/// before those in between arrive ([`Ring::write_at`]).
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    head: usize,
    len: usize,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            head: 0,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `wanted` bytes in total, if the pool and the heap allow.
    #[inline]
    pub(crate) fn reserve(&mut self, wanted: usize, pool: &Pool) -> bool {
        wanted <= self.bytes.len() || self.grow(wanted, pool)
    }

    #[cold]
    fn grow(&mut self, wanted: usize, pool: &Pool) -> bool {
        let target = wanted.next_power_of_two().max(RING_MIN);
        let mut larger = Vec::new();
        if !pool.take(target) {
            return false;
        }
        if larger.try_reserve_exact(target).is_err() {
            pool.give_back(target);
            return false;
        }
        // All of the old storage, since bytes beyond the end may be set too.
        let (first, second) = self.slices(0, self.bytes.len());
        larger.extend_from_slice(first);
        larger.extend_from_slice(second);
        larger.resize(target, 0);
        pool.give_back(self.bytes.len());
        self.bytes = larger;
        self.head = 0;
        true
    }

    /// Gives the storage and what is in it back.
    pub(crate) fn release(&mut self, pool: &Pool) {
        if !self.bytes.is_empty() {
            pool.give_back(self.bytes.len());
            *self = Self::new();
        }
    }

    /// Begins at the front of the storage again if nothing is in it, nor beyond its end: then what
    /// comes next is in one part.
    pub(crate) fn rewind(&mut self) {
        if self.len == 0 {
            self.head = 0;
        }
    }

    /// Gives the storage back if nothing is in it.
    pub(crate) fn release_empty(&mut self, pool: &Pool) {
        if self.len == 0 {
            self.release(pool);
        }
    }

    #[inline]
    fn at(&self, offset: usize) -> usize {
        (self.head + offset) & self.bytes.len().wrapping_sub(1)
    }

    /// The bytes from `offset` on, in two parts. The storage holds them.
    #[inline]
    pub(crate) fn slices(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let start = self.at(offset);
        let first = len.min(self.bytes.len() - start);
        (
            &self.bytes[start..start + first],
            &self.bytes[..len - first],
        )
    }

    /// Writes `data` at `offset` from the head. The storage has been reserved.
    #[inline]
    pub(crate) fn write_at(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let start = self.at(offset);
        let first = data.len().min(self.bytes.len() - start);
        let (begin, rest) = data.split_at(first);
        self.bytes[start..start + first].copy_from_slice(begin);
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    /// Counts `len` bytes more as part of the queue.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) {
        self.len += len;
    }

    /// Appends as much of `data` as the storage holds.
    #[inline]
    pub(crate) fn push(&mut self, data: &[u8]) -> usize {
        let n = data.len().min(self.bytes.len() - self.len);
        self.write_at(self.len, &data[..n]);
        self.len += n;
        n
    }

    /// Makes room for more bytes where there is little, up to `most` in total.
    pub(crate) fn make_room(&mut self, most: usize, pool: &Pool) -> bool {
        if self.len >= most {
            return false;
        }
        if self.bytes.len() - self.len < RING_MIN.min(most - self.len) {
            // Without memory, what is there serves.
            let _ = self.reserve((2 * self.bytes.len()).max(2 * RING_MIN).min(most), pool);
        }
        self.bytes.len() > self.len
    }

    /// Appends what `fill` writes into the free part behind the end, up to `most` in total.
    pub(crate) fn fill(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.rewind();
        let free = self.bytes.len().min(most).saturating_sub(self.len);
        if free == 0 {
            return 0;
        }
        let start = self.at(self.len);
        let end = self.bytes.len().min(start + free);
        let room = &mut self.bytes[start..end];
        let n = fill(room).min(room.len());
        self.len += n;
        n
    }

    /// Copies from the front without taking.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.len);
        let (first, second) = self.slices(0, n);
        buf[..first.len()].copy_from_slice(first);
        buf[first.len()..n].copy_from_slice(second);
        n
    }

    /// Drops bytes from the front.
    #[inline]
    pub(crate) fn discard(&mut self, len: usize) {
        let len = len.min(self.len);
        self.len -= len;
        if !self.bytes.is_empty() {
            self.head = self.at(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_order_across_the_wrap_and_growth() {
        let pool = Pool::new(1 << 20);
        let mut ring = Ring::new();
        let (mut next, mut expected) = (0u32, 0u32);
        for round in 0..200 {
            let data: Vec<u8> = (0..round * 7)
                .map(|_| {
                    next += 1;
                    next as u8
                })
                .collect();
            assert!(ring.reserve(ring.len() + data.len(), &pool));
            assert_eq!(ring.push(&data), data.len());
            let mut buf = std::vec![0; round * 6];
            let n = ring.peek(&mut buf);
            ring.discard(n);
            for byte in &buf[..n] {
                expected += 1;
                assert_eq!(*byte, expected as u8);
            }
        }
        assert_eq!(pool.used(), ring.capacity());
        ring.release(&pool);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn bytes_beyond_the_end_survive_growth() {
        let pool = Pool::new(1 << 20);
        let mut ring = Ring::new();
        assert!(ring.reserve(1024, &pool));
        ring.push(&[1; 1000]);
        ring.discard(900);
        ring.write_at(150, b"later");
        assert!(ring.reserve(4096, &pool));
        ring.write_at(100, &[2; 50]);
        ring.extend(55);
        let mut all = [0; 155];
        assert_eq!(ring.peek(&mut all), 155);
        assert_eq!(&all[150..], b"later");
        assert!(all[..100].iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_full_pool_refuses() {
        let pool = Pool::new(3000);
        let (mut one, mut other) = (Ring::new(), Ring::new());
        assert!(one.reserve(2000, &pool));
        assert!(!other.reserve(1, &pool));
        one.release(&pool);
        assert!(other.reserve(1, &pool));
    }
}
