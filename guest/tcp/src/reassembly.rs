//! [`Reassembly`]: the ranges that arrived out of order, and the SACK blocks
//! that report them (RFC 2018, 4; RFC 2883).

use alloc::vec::Vec;

use crate::options::SackBlocks;
use crate::seq::Seq;

/// Most separate ranges; data that would need one more is dropped.
const RANGES_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Range {
    start: Seq,
    end: Seq,
    /// Grows with each arrival: the latest range is reported first.
    stamp: u32,
}

/// Ranges beyond the next expected number, sorted, with gaps between them.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ranges: Vec<Range>,
    clock: u32,
    /// What arrived twice, reported once.
    duplicate: Option<(Seq, Seq)>,
}

impl Reassembly {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an acknowledgement has something to report.
    #[inline]
    pub(crate) fn has_report(&self) -> bool {
        !self.ranges.is_empty() || self.duplicate.is_some()
    }

    /// Adds `[start, end)`; `false` if there is no room for a further range.
    pub(crate) fn add(&mut self, mut start: Seq, mut end: Seq) -> bool {
        self.clock = self.clock.wrapping_add(1);
        let from = self.ranges.partition_point(|range| range.end.before(start));
        let touching = self.ranges[from..]
            .iter()
            .take_while(|range| !range.start.after(end))
            .count();
        let stamp = self.clock;
        if touching == 0 {
            if self.ranges.len() >= RANGES_MAX || self.ranges.try_reserve(1).is_err() {
                return false;
            }
            self.ranges.insert(from, Range { start, end, stamp });
            return true;
        }
        let (first, last) = (self.ranges[from], self.ranges[from + touching - 1]);
        if !start.before(first.start) && !end.after(first.end) {
            self.duplicate = Some((start, end));
        }
        (start, end) = (start.min(first.start), end.max(last.end));
        self.ranges[from] = Range { start, end, stamp };
        self.ranges.drain(from + 1..from + touching);
        true
    }

    /// Takes out what is contiguous with `next` and says where that ends.
    pub(crate) fn take_from(&mut self, next: Seq) -> Seq {
        let reached = self
            .ranges
            .iter()
            .take_while(|range| !range.start.after(next))
            .count();
        let end = self.ranges[..reached]
            .iter()
            .fold(next, |end, range| end.max(range.end));
        self.ranges.drain(..reached);
        // A range may begin within what another one closed.
        if reached > 0
            && self
                .ranges
                .first()
                .is_some_and(|range| !range.start.after(end))
        {
            return self.take_from(end);
        }
        end
    }

    /// Notes that `[start, end)` had arrived before.
    pub(crate) fn note_duplicate(&mut self, start: Seq, end: Seq) {
        self.duplicate = Some((start, end));
    }

    /// Forgets everything: the data was thrown away (RFC 2018, 8 allows it).
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The blocks of the next acknowledgement: a duplicate, the latest range,
    /// then the others by age.
    pub(crate) fn take_report(&mut self, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some((start, end)) = self.duplicate.take() {
            blocks.push(start, end);
        }
        let mut before = None;
        while blocks.as_slice().len() < max {
            let older = |range: &&Range| {
                before.is_none_or(|stamp: u32| (range.stamp.wrapping_sub(stamp) as i32) < 0)
            };
            let age = |range: &&Range| self.clock.wrapping_sub(range.stamp);
            let Some(range) = self.ranges.iter().filter(older).min_by_key(age) else {
                break;
            };
            blocks.push(range.start, range.end);
            before = Some(range.stamp);
        }
        blocks.truncate(max);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_latest_range_is_reported_first() {
        let mut ranges = Reassembly::default();
        for start in [10, 30, 50, 20] {
            assert!(ranges.add(Seq(start), Seq(start + 5)));
        }
        let report = ranges.take_report(3);
        let starts: Vec<u32> = report.as_slice().iter().map(|(start, _)| start.0).collect();
        assert_eq!(starts, [20, 50, 30]);
    }

    #[test]
    fn a_duplicate_is_reported_once_and_before_the_range_around_it() {
        let mut ranges = Reassembly::default();
        ranges.add(Seq(10), Seq(30));
        ranges.add(Seq(12), Seq(20));
        let blocks = [(Seq(12), Seq(20)), (Seq(10), Seq(30))];
        assert_eq!(ranges.take_report(4).as_slice(), blocks);
        assert_eq!(ranges.take_report(4).as_slice(), &blocks[1..]);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_set(
            base: u32,
            adds in prop::collection::vec((1u32..200, 1u32..20), 0..60),
        ) {
            let (mut ranges, mut model) = (Reassembly::default(), BTreeSet::new());
            for (start, len) in adds {
                if ranges.add(Seq(base) + start, Seq(base) + start + len) {
                    model.extend(start..start + len);
                }
                for pair in ranges.ranges.windows(2) {
                    prop_assert!(pair[0].end.before(pair[1].start));
                }
                let total: u32 = ranges.ranges.iter().map(|r| r.end.since(r.start)).sum();
                prop_assert_eq!(total as usize, model.len());
            }
            let end = ranges.take_from(Seq(base) + 1);
            let reached = (1..).find(|at| !model.contains(at)).unwrap_or(0);
            prop_assert_eq!(end, Seq(base) + reached);
        }
    }
}
