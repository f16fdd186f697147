//! The memory map: which ranges of RAM are free for the heap.

use core::ops::Range;

/// Most ranges kept from the loader's map; the ones after that are not used.
pub(crate) const MAX: usize = 32;

/// A short list of address ranges.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    ranges: [Range<u64>; MAX],
    count: usize,
}

impl Regions {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            ranges: [const { 0..0 }; MAX],
            count: 0,
        }
    }

    /// Adds `length` bytes from `start`. Ranges that wrap, are empty, or come when the list is
    /// full are left out. Ranges never overlap: what is added twice is there once.
    pub fn add(&mut self, start: u64, length: u64) {
        let Some(end) = start.checked_add(length) else {
            return;
        };
        if start < end && self.count < MAX {
            self.remove(&(start..end));
            self.push(start..end);
        }
    }

    fn push(&mut self, range: Range<u64>) {
        if self.count < MAX {
            self.ranges[self.count] = range;
            self.count += 1;
        }
    }

    /// Takes `hole` out of every range.
    pub fn remove(&mut self, hole: &Range<u64>) {
        if hole.is_empty() {
            return;
        }
        for index in 0..self.count {
            let range = self.ranges[index].clone();
            if hole.end <= range.start || range.end <= hole.start {
                continue;
            }
            let (below, above) = (range.start..hole.start, hole.end..range.end);
            self.ranges[index] = if below.is_empty() {
                above
            } else {
                if !above.is_empty() {
                    self.push(above);
                }
                below
            };
        }
    }

    /// The ranges, whole pages of them, none empty.
    pub fn pages(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges[..self.count].iter().filter_map(|range| {
            let start = range.start.checked_add(4095)? & !4095;
            let end = range.end & !4095;
            (start < end).then_some(start..end)
        })
    }

    /// Whether one of the ranges contains all of `inner`.
    pub fn contain(&self, inner: &Range<u64>) -> bool {
        self.ranges[..self.count]
            .iter()
            .any(|range| range.start <= inner.start && inner.end <= range.end)
    }

    /// First address after the last range.
    pub fn end(&self) -> u64 {
        self.ranges[..self.count]
            .iter()
            .map(|range| range.end)
            .max()
            .unwrap_or(0)
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges[..self.count]
            .iter()
            .map(|range| range.end.saturating_sub(range.start))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;

    fn regions(ranges: &[Range<u64>]) -> Regions {
        let mut regions = Regions::new();
        for range in ranges {
            regions.add(range.start, range.end - range.start);
        }
        regions
    }

    fn pages(regions: &Regions) -> Vec<Range<u64>> {
        regions.pages().collect()
    }

    #[test]
    fn a_hole_splits_shortens_or_swallows() {
        let mut map = regions(&[0x1000..0x9000]);
        map.remove(&(0x3000..0x4000));
        assert_eq!(pages(&map), [0x1000..0x3000, 0x4000..0x9000]);
        map.remove(&(0x0..0x2000));
        assert_eq!(pages(&map), [0x2000..0x3000, 0x4000..0x9000]);
        map.remove(&(0x2800..0x8000));
        assert_eq!(pages(&map), [0x8000..0x9000]);
        map.remove(&(0x0..u64::MAX));
        assert_eq!(map.bytes(), 0);
    }

    #[test]
    fn what_a_map_names_twice_is_there_once() {
        for (ranges, bytes) in [
            ([0x1000..0x5000, 0x2000..0x6000], 0x5000),
            ([0x2000..0x6000, 0x1000..0x5000], 0x5000),
            ([0x1000..0x9000, 0x2000..0x3000], 0x8000),
            ([0x2000..0x3000, 0x1000..0x9000], 0x8000),
            ([0x1000..0x2000, 0x1000..0x2000], 0x1000),
            ([0x1000..0x2000, 0x2000..0x3000], 0x2000),
        ] {
            let map = regions(&ranges);
            let mut pages = pages(&map);
            pages.sort_by_key(|range| range.start);
            let apart = pages.windows(2).all(|two| two[0].end <= two[1].start);
            assert!(apart, "{ranges:?}: {pages:?}");
            assert_eq!(map.bytes(), bytes, "{ranges:?}");
        }
    }

    #[test]
    fn hostile_ranges_are_left_out() {
        let mut map = Regions::new();
        map.add(u64::MAX - 5, 100);
        map.add(7, 0);
        map.add(u64::MAX - 100, 100);
        assert_eq!(pages(&map), []);
        for index in 0..100 {
            map.add(index * 0x10000, 0x8000);
        }
        assert!(pages(&map).len() <= MAX);
    }

    #[test]
    fn partial_pages_are_not_given() {
        assert_eq!(pages(&regions(&[0x1800..0x3800])), [0x2000..0x3000]);
        assert_eq!(pages(&regions(&[0x1800..0x1900])), []);
    }
}
