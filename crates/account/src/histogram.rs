//! Histograms of times with eight buckets for each doubling.

use serde::{Deserialize, Serialize};

/// Buckets for each doubling: a bucket is at most 12.5 % wide.
const PER_OCTAVE_BITS: u32 = 3;

/// A histogram of times in ns; only buckets with something in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// By ascending time.
    pub buckets: Vec<Bucket>,
    /// Sum of all times, ns, exact.
    pub sum_ns: u64,
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Shortest time that falls into it, ns.
    pub from_ns: u64,
    /// Times that fell into it.
    pub count: u64,
}

impl Histogram {
    /// How many times it holds.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|bucket| bucket.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Arithmetic mean, ns.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The time that a share `q` (0 to 1) does not exceed, ns: the lower edge of
    /// its bucket.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|bucket| {
            seen = bucket.count.saturating_add(seen);
            (seen >= rank).then_some(bucket.from_ns)
        })
    }

    /// Share of times within `tolerance` (0.15 is 15 %) of the median, by bucket. Of
    /// intervals, near 1 means that the source is periodic.
    pub fn regularity(&self, tolerance: f64) -> f64 {
        let (Some(median), total @ 1..) = (self.quantile_ns(0.5), self.count()) else {
            return 0.0;
        };
        let near = |from: u64| (from as f64 - median as f64).abs() <= tolerance * median as f64;
        let within: u64 = self
            .buckets
            .iter()
            .filter(|bucket| near(bucket.from_ns))
            .map(|bucket| bucket.count)
            .fold(0, u64::saturating_add);
        within as f64 / total as f64
    }

    /// Puts `count` times, together `sum_ns`, into the bucket `index`.
    /// Sums that a record makes larger than 64 bits stay at the largest number.
    pub fn add(&mut self, index: u32, count: u64, sum_ns: u64) {
        let from_ns = lower_edge_ns(index);
        match self
            .buckets
            .binary_search_by_key(&from_ns, |bucket| bucket.from_ns)
        {
            Ok(found) => {
                let known = &mut self.buckets[found].count;
                *known = known.saturating_add(count);
            }
            Err(place) => self.buckets.insert(place, Bucket { from_ns, count }),
        }
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
    }

    /// Adds another's times.
    pub fn merge(&mut self, other: &Self) {
        for bucket in &other.buckets {
            self.add(index_of(bucket.from_ns), bucket.count, 0);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// The bucket of a time; the same rule is in `crates/probe/bpf/tare.bpf.h`.
pub(crate) fn index_of(ns: u64) -> u32 {
    if ns < 1 << PER_OCTAVE_BITS {
        return ns as u32;
    }
    let octave = 63 - ns.leading_zeros();
    let shift = octave - PER_OCTAVE_BITS;
    ((shift + 1) << PER_OCTAVE_BITS) + ((ns >> shift) as u32 & ((1 << PER_OCTAVE_BITS) - 1))
}

/// The shortest time of a bucket.
pub(crate) fn lower_edge_ns(index: u32) -> u64 {
    if index < 1 << PER_OCTAVE_BITS {
        return index.into();
    }
    let shift = ((index >> PER_OCTAVE_BITS) - 1).min(63 - PER_OCTAVE_BITS);
    let within = index & ((1 << PER_OCTAVE_BITS) - 1);
    u64::from((1 << PER_OCTAVE_BITS) + within) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for ns in times {
            histogram.add(index_of(*ns), 1, *ns);
        }
        histogram
    }

    #[test]
    fn a_bucket_begins_at_or_below_its_times_by_an_eighth_at_most() {
        for ns in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let edge = lower_edge_ns(index_of(ns));
            assert!(edge <= ns && ns - edge <= edge / 8, "{ns} in {edge}");
        }
    }

    #[test]
    fn sums_of_a_record_end_at_the_largest_number() {
        let mut histogram = Histogram::default();
        for ns in [1, 1, 1 << 20] {
            histogram.add(index_of(ns), u64::MAX, u64::MAX);
        }
        histogram.merge(&histogram.clone());
        assert_eq!((histogram.count(), histogram.sum_ns), (u64::MAX, u64::MAX));
        assert_eq!(histogram.quantile_ns(0.5), Some(1));
        assert!(histogram.regularity(0.15) <= 1.0);
    }

    #[test]
    fn bucket_indices_rise_with_time() {
        let indices: Vec<u32> = (0..5_000).map(index_of).collect();
        assert!(indices.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_periodic_source_is_regular_and_a_mixed_one_is_not() {
        let tick = of(&[4_000_000; 50]);
        assert!(tick.regularity(0.15) > 0.99);
        assert_eq!(tick.mean_ns(), Some(4_000_000));
        let mixed: Vec<u64> = (0..50).map(|n| 1_000 << (n % 10)).collect();
        assert!(of(&mixed).regularity(0.15) < 0.5);
    }

    #[test]
    fn quantiles_and_sums_survive_merging() {
        let mut both = of(&[100, 200]);
        both.merge(&of(&[100, 4_000]));
        assert_eq!(both.count(), 4);
        assert_eq!(both.sum_ns, 4_400);
        assert_eq!(both.quantile_ns(0.5), Some(lower_edge_ns(index_of(100))));
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
    }
}
