//! [`Histogram`]: times in buckets of 1/16 of a power of two, so that noting one
//! takes a few instructions and a quantile is right within 6.25 %.

use alloc::boxed::Box;
use alloc::vec;

/// Buckets of each power of two, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Times that were noted.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u32]>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Notes a time.
    #[inline]
    pub fn note(&mut self, time: u64) {
        if let Some(bucket) = self.buckets.get_mut(index(time)) {
            *bucket = bucket.saturating_add(1);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }

    /// Adds what another has noted.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*more);
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The longest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The time that `per_mille` of them do not exceed: the middle of its
    /// bucket; 0 of none.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return middle(index).min(self.max);
            }
        }
        self.max
    }
}

/// The bucket of a time: below 16 exact, then by its four bits after the first.
#[inline]
fn index(time: u64) -> usize {
    if time < STEPS as u64 {
        return time as usize;
    }
    let exponent = 63 - time.leading_zeros();
    let step = (time >> (exponent - STEP_BITS)) as usize & (STEPS - 1);
    (exponent - STEP_BITS + 1) as usize * STEPS + step
}

/// The middle of a bucket.
fn middle(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let shift = (index / STEPS - 1) as u32;
    let low = ((STEPS + index % STEPS) as u64) << shift;
    low + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_right_within_a_sixteenth() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|time| histogram.note(time));
        for (per_mille, exact) in [(500, 50_000), (990, 99_000), (999, 99_900), (1, 100)] {
            let value = histogram.quantile(per_mille);
            assert!(value.abs_diff(exact) <= exact / 16, "{value} for {exact}");
        }
        assert_eq!((histogram.max(), histogram.mean()), (100_000, 50_000));
    }

    #[test]
    fn every_time_has_a_bucket_and_order_is_kept() {
        let mut last = 0;
        for shift in 0..64 {
            for time in [1_u64 << shift, (1_u64 << shift) + (1_u64 << shift) / 2] {
                let index = index(time);
                assert!(index < BUCKETS && index >= last, "{time}");
                assert!(middle(index).abs_diff(time) <= time / 16);
                last = index;
            }
        }
        assert!(index(u64::MAX) < BUCKETS);
    }

    #[test]
    fn merging_is_noting_all() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        one.note(5);
        two.note(700);
        one.merge(&two);
        assert_eq!((one.count(), one.max(), one.quantile(500)), (2, 700, 5));
        assert_eq!(Histogram::default().quantile(500), 0);
    }
}
