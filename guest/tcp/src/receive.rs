//! [`ReceiveQueue`]: data that arrived, in and out of order, and the window
//! that the peer is offered (RFC 9293, 3.8.6; RFC 7323, 2).

use crate::memory::{Pool, Ring};
use crate::options::{SCALE_MAX, SackBlocks};
use crate::reassembly::Reassembly;
use crate::seq::Seq;
use crate::time::{Duration, Instant};

/// What became of a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is the next data, and nothing waits beyond it.
    InOrder,
    /// It is the next data and closed a gap, or left one.
    Gap,
    /// All of it had arrived before.
    Duplicate,
    /// There is no memory or no window for it.
    Dropped,
}

/// One connection's receive side.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Ring,
    /// RCV.NXT.
    next: Seq,
    /// The right edge of the largest window offered.
    edge: Seq,
    /// Most bytes that wait for the application: the window's size.
    limit: u32,
    limit_max: u32,
    pub(crate) reassembly: Reassembly,
    scale: u8,
    mss: u32,
    /// Bytes that the application took in this round trip.
    taken: u32,
    round_start: Instant,
}

impl ReceiveQueue {
    /// Offers up to `limit` bytes at first and `limit_max` after tuning.
    pub(crate) fn new(limit: u32, limit_max: u32, mss: u32) -> Self {
        let limit_max = limit_max.max(limit);
        Self {
            ring: Ring::new(),
            next: Seq(0),
            edge: Seq(0),
            limit,
            limit_max,
            reassembly: Reassembly::default(),
            scale: scale_for(limit_max),
            mss,
            taken: 0,
            round_start: Instant::default(),
        }
    }

    /// The peer's SYN said where its numbers begin.
    pub(crate) fn start(&mut self, next: Seq) {
        self.next = next;
        self.edge = next;
    }

    /// What a SYN's window field promised.
    pub(crate) fn note_offered(&mut self, window: u16) {
        self.edge = self.edge.max(self.next + u32::from(window));
    }

    #[inline]
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Where acceptable numbers end.
    #[inline]
    pub(crate) fn edge(&self) -> Seq {
        self.edge
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// This side's window scale.
    pub(crate) fn scale(&self) -> u8 {
        self.scale
    }

    /// The peer does not scale windows.
    pub(crate) fn disable_scale(&mut self) {
        self.scale = 0;
        self.limit_max = self.limit_max.min(u32::from(u16::MAX));
        self.limit = self.limit.min(self.limit_max);
    }

    /// Passes over the peer's FIN.
    pub(crate) fn skip_fin(&mut self) {
        self.next = self.next + 1;
    }

    /// Takes a segment's data.
    #[inline]
    pub(crate) fn take(&mut self, seq: Seq, payload: &[u8], pool: &Pool) -> Taken {
        let end = seq + payload.len() as u32;
        if !end.after(self.next) {
            self.reassembly.note_duplicate(seq, end);
            return Taken::Duplicate;
        }
        let skip = self.next.since(seq);
        let start = seq.max(self.next);
        let end = end.min(self.edge);
        if !start.before(end) {
            return Taken::Dropped;
        }
        let data = &payload[skip as usize..][..end.since(start) as usize];
        let offset = self.ring.len() + start.since(self.next) as usize;
        if !self.ring.reserve(offset + data.len(), pool) && !self.make_room(start, data.len()) {
            return Taken::Dropped;
        }
        if start != self.next {
            if !self.reassembly.add(start, end) {
                return Taken::Dropped;
            }
            self.ring.write_at(offset, data);
            return Taken::Gap;
        }
        self.ring.write_at(offset, data);
        if self.reassembly.is_empty() {
            self.advance(end);
            return Taken::InOrder;
        }
        let end = self.reassembly.take_from(end);
        self.advance(end);
        Taken::Gap
    }

    #[inline]
    fn advance(&mut self, end: Seq) {
        self.ring.extend(end.since(self.next) as usize);
        self.next = end;
    }

    /// Memory is short: what is in order matters more than what is not.
    #[cold]
    fn make_room(&mut self, start: Seq, len: usize) -> bool {
        let fits = start == self.next && self.ring.len() + len <= self.ring.capacity();
        if fits {
            self.reassembly.clear();
        }
        fits
    }

    /// Copies data to the application and takes it out. Says whether the window
    /// has grown so much that the peer should know.
    pub(crate) fn read(&mut self, buf: &mut [u8], pool: &Pool) -> (usize, bool) {
        let n = self.ring.peek(buf);
        self.taken(n, pool)
    }

    /// The same by what `take` takes of the first part.
    pub(crate) fn read_with(
        &mut self,
        take: impl FnOnce(&[u8]) -> usize,
        pool: &Pool,
    ) -> (usize, bool) {
        let (first, _) = self.ring.slices(0, self.ring.len());
        let n = take(first).min(first.len());
        let read = self.taken(n, pool);
        if self.reassembly.is_empty() {
            self.ring.rewind();
        }
        read
    }

    #[inline]
    fn taken(&mut self, n: usize, pool: &Pool) -> (usize, bool) {
        self.ring.discard(n);
        self.taken = self.taken.saturating_add(n as u32);
        if self.ring.len() == 0 && self.reassembly.is_empty() && pool.is_scarce() {
            self.ring.release(pool);
        }
        (n, n > 0 && self.has_update())
    }

    pub(crate) fn peek(&self, buf: &mut [u8]) -> usize {
        self.ring.peek(buf)
    }

    /// The receiver's part against silly windows (RFC 9293, 3.8.6.2.2).
    #[inline]
    fn has_update(&self) -> bool {
        let step = (self.limit / 2).min(2 * self.mss);
        self.wanted_edge().since(self.edge) >= step
    }

    #[inline]
    fn wanted_edge(&self) -> Seq {
        self.next + self.limit.saturating_sub(self.ring.len() as u32)
    }

    /// The window field of a segment that is sent now.
    #[inline]
    pub(crate) fn offer(&mut self) -> u16 {
        let step = (self.limit / 2).min(self.mss);
        let wanted = self.wanted_edge();
        let window = if wanted.since(self.edge) >= step {
            wanted.since(self.next) >> self.scale
        } else {
            self.rounded_window()
        };
        let window = window.min(u32::from(u16::MAX));
        self.edge = self.edge.max(self.next + (window << self.scale));
        window as u16
    }

    /// The window that was offered before, in units of the scale. Rounded up, since an edge does
    /// not move back (RFC 7323, 2.4); rounded down where the edge has moved by roundings beyond
    /// what may wait, as it does with each of many tiny segments.
    #[inline]
    fn rounded_window(&self) -> u32 {
        let unit = 1 << self.scale;
        let offered = self.edge.since(self.next);
        let most = (self.limit + unit).saturating_sub(self.ring.len() as u32);
        let window = offered.div_ceil(unit);
        if window << self.scale <= most {
            window
        } else {
            offered >> self.scale
        }
    }

    /// The window field of a SYN, which is never scaled (RFC 7323, 2.2).
    pub(crate) fn offer_unscaled(&mut self) -> u16 {
        let window = self.limit.min(u32::from(u16::MAX)) as u16;
        self.note_offered(window);
        window
    }

    /// Once a round trip: a window that the application emptied in one is
    /// doubled, as far as memory goes.
    pub(crate) fn tune(&mut self, now: Instant, round_trip: Duration, pool: &Pool) {
        if now.since(self.round_start) < round_trip {
            return;
        }
        if self.taken >= self.limit / 2 && !pool.is_scarce() {
            self.limit = self.limit.saturating_mul(2).min(self.limit_max);
        }
        self.taken = 0;
        self.round_start = now;
    }

    /// SACK blocks of the next acknowledgement.
    pub(crate) fn report(&mut self, max: usize) -> SackBlocks {
        self.reassembly.take_report(max)
    }

    /// Gives the storage back if nothing is in it.
    pub(crate) fn release_empty(&mut self, pool: &Pool) {
        if self.reassembly.is_empty() {
            self.ring.release_empty(pool);
        }
    }

    /// Gives the storage back.
    pub(crate) fn release(&mut self, pool: &Pool) {
        self.ring.release(pool);
        self.reassembly = Reassembly::default();
    }
}

/// The smallest scale that can express a window of `limit`.
pub(crate) fn scale_for(limit: u32) -> u8 {
    (0..SCALE_MAX)
        .find(|scale| limit >> scale <= u32::from(u16::MAX))
        .unwrap_or(SCALE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_window_is_doubled_when_the_application_keeps_up() {
        let pool = Pool::new(1 << 24);
        let mut queue = ReceiveQueue::new(64 << 10, 1 << 20, 1000);
        assert_eq!(queue.scale(), 5);
        queue.offer();
        let mut now = Instant::from_micros(0);
        let mut buf = vec![0; 1 << 20];
        for _ in 0..10 {
            now = now + Duration::from_millis(20);
            let window = queue.edge().since(queue.next());
            let data = vec![1; window as usize];
            assert_eq!(queue.take(queue.next(), &data, &pool), Taken::InOrder);
            assert!(queue.read(&mut buf, &pool).1);
            queue.tune(now, Duration::from_millis(10), &pool);
            queue.offer();
        }
        assert_eq!(queue.limit, 1 << 20);
    }

    #[test]
    fn an_unread_queue_closes_the_window_and_reading_opens_it() {
        let pool = Pool::new(1 << 20);
        let mut queue = ReceiveQueue::new(4096, 4096, 1000);
        assert_eq!(queue.offer(), 4096);
        queue.take(Seq(0), &[1; 4096], &pool);
        assert_eq!(queue.offer(), 0);
        assert!(!queue.read(&mut [0; 900], &pool).1);
        assert_eq!(
            queue.offer(),
            0,
            "a small update would make for small segments"
        );
        assert!(queue.read(&mut [0; 1200], &pool).1);
        assert_eq!(queue.offer(), 2100);
    }

    #[test]
    fn tiny_segments_do_not_move_the_window_beyond_its_limit() {
        let pool = Pool::new(1 << 24);
        let limit = 1 << 20;
        let mut queue = ReceiveQueue::new(limit, limit, 1000);
        queue.offer();
        for _ in 0..40_000 {
            queue.take(queue.next(), &[1; 31], &pool);
            queue.offer();
        }
        assert!(queue.len() <= limit as usize + 32, "{}", queue.len());
        assert_eq!(queue.offer(), 0);
        assert!(queue.read(&mut vec![0; 1 << 20], &pool).1);
        assert!(u32::from(queue.offer()) << queue.scale() >= limit - 64);
    }

    proptest! {
        #[test]
        fn any_order_of_segments_gives_the_same_bytes(
            start: u32,
            pieces in prop::collection::vec((0u32..3000, 1u32..400), 0..80),
        ) {
            let pool = Pool::new(1 << 20);
            let whole: Vec<u8> = (0..4000u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut queue = ReceiveQueue::new(4000, 4000, 500);
            queue.start(Seq(start));
            queue.offer();
            for (from, len) in pieces {
                let piece = &whole[from as usize..(from + len) as usize];
                queue.take(Seq(start) + from, piece, &pool);
            }
            // The rest in order fills what is missing.
            for (n, piece) in whole.chunks(100).enumerate() {
                queue.take(Seq(start) + n as u32 * 100, piece, &pool);
            }
            let mut got = vec![0; 4000];
            prop_assert_eq!(queue.read(&mut got, &pool).0, 4000);
            prop_assert_eq!(got, whole);
            prop_assert!(queue.reassembly.is_empty());
        }
    }
}
