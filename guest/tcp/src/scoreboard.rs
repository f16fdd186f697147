//! [`Scoreboard`]: the segments that were sent and not acknowledged, with what
//! SACK says about each (RFC 2018; RFC 6675, 3) and when each was last sent,
//! which loss detection by time needs (RFC 8985).

use alloc::collections::VecDeque;

use crate::seq::Seq;
use crate::time::Instant;

/// Most records of one connection. Small writes are sent in small segments, so
/// that bytes in flight alone do not bound their number.
const RECORDS_MAX: usize = 1024;

const SACKED: u8 = 1;
const LOST: u8 = 1 << 1;
const RETRANSMITTED: u8 = 1 << 2;
/// The record's first number is a SYN.
pub(crate) const SYN: u8 = 1 << 3;
/// The record's last number is a FIN.
pub(crate) const FIN: u8 = 1 << 4;

/// One segment as it was last sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) seq: Seq,
    /// Sequence space, SYN and FIN included.
    pub(crate) len: u32,
    pub(crate) sent_at: Instant,
    /// Grows with each transmission: many share one time where acknowledgements are
    /// handled in batches.
    pub(crate) order: SendOrder,
    flags: u8,
}

/// The place of a transmission among all of its connection; it wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendOrder(u32);

impl SendOrder {
    pub(crate) fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
}

impl Record {
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn is_retransmitted(&self) -> bool {
        self.has(RETRANSMITTED)
    }

    pub(crate) fn is_sacked(&self) -> bool {
        self.has(SACKED)
    }

    /// Neither acknowledged nor given up: counted as in flight.
    #[inline]
    fn is_in_flight(&self) -> bool {
        self.flags & (SACKED | LOST) == 0
    }
}

/// One connection's outstanding segments in order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    /// Bytes in flight: neither SACKed nor lost (RFC 6675, `pipe`).
    pipe: u32,
    sacked: u32,
    lost: u32,
    last_order: SendOrder,
}

impl Scoreboard {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Records that SACK blocks cover.
    #[inline]
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Records that are lost and not sent again.
    #[inline]
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    pub(crate) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    /// Whether one more record can be kept.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let len = self.records.len();
        len < self.records.capacity() || (len < RECORDS_MAX && self.records.try_reserve(1).is_ok())
    }

    /// How many more records can be kept, `count` at most.
    pub(crate) fn room_for(&mut self, count: u32) -> u32 {
        let free = RECORDS_MAX.saturating_sub(self.records.len());
        let count = free.min(count as usize);
        match self.records.try_reserve(count) {
            Ok(()) => count as u32,
            Err(_) => 0,
        }
    }

    /// Notes a new segment. [`Scoreboard::has_room`] has been asked.
    #[inline]
    pub(crate) fn push(&mut self, seq: Seq, len: u32, flags: u8, now: Instant) {
        self.pipe += len;
        let order = self.next_order();
        self.records.push_back(Record {
            seq,
            len,
            sent_at: now,
            order,
            flags,
        });
    }

    #[inline]
    fn next_order(&mut self) -> SendOrder {
        self.last_order = SendOrder(self.last_order.0.wrapping_add(1));
        self.last_order
    }

    /// Takes out what lies below `ack`; `deliver` sees each record that was not
    /// SACKed before.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: Seq, mut deliver: impl FnMut(&Record)) {
        while let Some(record) = self.records.front_mut() {
            if !record.seq.before(ack) {
                return;
            }
            if ack.before(record.end()) {
                let part = ack.since(record.seq);
                if record.is_in_flight() {
                    self.pipe -= part;
                }
                record.seq = ack;
                record.len -= part;
                record.flags &= !SYN;
                return;
            }
            let record = *record;
            self.records.pop_front();
            self.forget(&record);
            if !record.has(SACKED) {
                deliver(&record);
            }
        }
    }

    #[inline]
    fn forget(&mut self, record: &Record) {
        if record.has(SACKED) {
            self.sacked -= 1;
        } else if record.has(LOST) {
            self.lost -= 1;
        } else {
            self.pipe -= record.len;
        }
    }

    /// Marks what `[start, end)` covers whole as received.
    pub(crate) fn sack(&mut self, start: Seq, end: Seq, mut deliver: impl FnMut(&Record)) {
        let from = self
            .records
            .partition_point(|record| record.seq.before(start));
        for at in from..self.records.len() {
            let record = self.records[at];
            if end.before(record.end()) {
                return;
            }
            if !record.has(SACKED) {
                self.forget(&record);
                self.sacked += 1;
                self.records[at].flags = record.flags & !LOST | SACKED;
                deliver(&record);
            }
        }
    }

    /// Marks each record in flight for which `is_lost` says so.
    pub(crate) fn mark_lost(&mut self, mut is_lost: impl FnMut(&Record) -> bool) -> bool {
        let before = self.lost;
        for record in &mut self.records {
            if record.is_in_flight() && is_lost(record) {
                record.flags |= LOST;
                self.lost += 1;
                self.pipe -= record.len;
            }
        }
        self.lost > before
    }

    /// Forgets what SACK said: after a timeout the receiver may have thrown it
    /// away (RFC 2018, 8).
    pub(crate) fn forget_sacks(&mut self) {
        for record in &mut self.records {
            if record.has(SACKED) {
                record.flags = record.flags & !SACKED | LOST;
                self.sacked -= 1;
                self.lost += 1;
            }
        }
    }

    /// Takes loss marks back: it was not loss.
    pub(crate) fn unmark_lost(&mut self) {
        for record in &mut self.records {
            if record.has(LOST) {
                record.flags &= !LOST;
                self.lost -= 1;
                self.pipe += record.len;
            }
        }
    }

    /// How many records `is_counted` holds of.
    pub(crate) fn count(&self, is_counted: impl Fn(&Record) -> bool) -> u32 {
        self.records.iter().filter(|it| is_counted(it)).count() as u32
    }

    /// The first lost record, cut to `max` bytes of payload.
    pub(crate) fn next_lost(&mut self, max: u32) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let at = self.records.iter().position(|record| record.has(LOST))?;
        self.split(at, max);
        Some(at)
    }

    /// The last record, cut to `max`, for a probe.
    pub(crate) fn last_index(&mut self, max: u32) -> Option<usize> {
        let at = self.records.len().checked_sub(1)?;
        self.split(at, max);
        self.records.len().checked_sub(1)
    }

    /// Cuts the record at `at` in two if it is longer than `max`.
    fn split(&mut self, at: usize, max: u32) {
        let record = self.records[at];
        let control = u32::from(record.has(SYN)) + u32::from(record.has(FIN));
        if max == 0 || record.len - control <= max || self.records.try_reserve(1).is_err() {
            return;
        }
        let first = max + u32::from(record.has(SYN));
        let rest = Record {
            seq: record.seq + first,
            len: record.len - first,
            flags: record.flags & !SYN,
            ..record
        };
        self.records[at].len = first;
        self.records[at].flags &= !FIN;
        self.records.insert(at + 1, rest);
        self.lost += u32::from(record.has(LOST));
        self.sacked += u32::from(record.has(SACKED));
    }

    pub(crate) fn record(&self, at: usize) -> Record {
        self.records[at]
    }

    /// The record at `at` is sent again.
    pub(crate) fn resend(&mut self, at: usize, now: Instant) {
        let order = self.next_order();
        let record = &mut self.records[at];
        if record.has(LOST) {
            self.lost -= 1;
            self.pipe += record.len;
        }
        record.flags = record.flags & !LOST | RETRANSMITTED;
        record.sent_at = now;
        record.order = order;
    }

    #[cfg(test)]
    fn in_flight(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.is_in_flight())
    }

    /// Gives the storage back.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let sum = |flag: u8| self.records.iter().filter(|r| r.has(flag)).count() as u32;
        assert_eq!((self.sacked, self.lost), (sum(SACKED), sum(LOST)));
        assert_eq!(
            self.pipe,
            self.in_flight().map(|record| record.len).sum::<u32>()
        );
        for (a, b) in self.records.iter().zip(self.records.iter().skip(1)) {
            assert_eq!(a.end(), b.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Acknowledge(u32),
        Sack(u32, u32),
        Lose(u32),
        Resend(u32),
        Forget,
        Unmark,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u32..3000).prop_map(Step::Push),
            2 => (0u32..20_000).prop_map(Step::Acknowledge),
            2 => (0u32..20_000, 0u32..5000).prop_map(|(a, b)| Step::Sack(a, a + b)),
            2 => (0u32..20_000).prop_map(Step::Lose),
            2 => (1u32..1500).prop_map(Step::Resend),
            1 => Just(Step::Forget),
            1 => Just(Step::Unmark),
        ]
    }

    proptest! {
        #[test]
        fn its_sums_stay_right(
            start: u32,
            steps in prop::collection::vec(step(), 0..100),
        ) {
            let (mut board, mut una, mut next) = (Scoreboard::default(), Seq(start), Seq(start));
            let now = Instant::from_micros(1);
            for step in steps {
                match step {
                    Step::Push(len) if board.has_room() => {
                        board.push(next, len, 0, now);
                        next = next + len;
                    }
                    Step::Push(_) => {}
                    Step::Acknowledge(len) => {
                        una = (una + len).min(next);
                        board.acknowledge(una, |_| {});
                    }
                    Step::Sack(from, to) => board.sack(una + from, (una + to).min(next), |_| {}),
                    Step::Lose(below) => {
                        board.mark_lost(|record| record.seq.before(una + below));
                    }
                    Step::Resend(max) => {
                        if let Some(at) = board.next_lost(max) { board.resend(at, now); }
                    }
                    Step::Forget => board.forget_sacks(),
                    Step::Unmark => board.unmark_lost(),
                }
                board.check();
            }
        }
    }
}
