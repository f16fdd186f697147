//! [`Histogram`]: times in buckets of 1/128 of a power of two, so that noting one
//! takes a few instructions and a quantile is right within 0.8 %: what is compared
//! within 2 % must be distinguished.

use alloc::vec::Vec;

/// Buckets of each power of two, as a power of two.
const STEP_BITS: u32 = 7;
const STEPS: usize = 1 << STEP_BITS;
/// Of all times.
#[cfg(test)]
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Times that were noted. Only the buckets from the first to the last that are
/// used are there: there is one for each thread, and merging costs what is there.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The number of the first bucket that is there.
    first: usize,
    buckets: Vec<u32>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Notes a time.
    #[inline]
    pub fn note(&mut self, time: u64) {
        let bucket = self.bucket(index(time));
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }

    /// Adds what another has noted.
    pub fn merge(&mut self, other: &Self) {
        for (number, more) in (other.first..).zip(&other.buckets) {
            if *more > 0 {
                let bucket = self.bucket(number);
                *bucket = bucket.saturating_add(*more);
            }
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The bucket of that number, made if it is not there.
    #[inline]
    fn bucket(&mut self, number: usize) -> &mut u32 {
        let there = self.first..self.first + self.buckets.len();
        if !there.contains(&number) {
            self.grow(number);
        }
        &mut self.buckets[number - self.first]
    }

    #[cold]
    fn grow(&mut self, number: usize) {
        if self.buckets.is_empty() {
            self.first = number;
        }
        if number < self.first {
            let more = core::iter::repeat_n(0, self.first - number);
            self.buckets.splice(0..0, more);
            self.first = number;
        }
        let len = self.buckets.len().max(number - self.first + 1);
        self.buckets.resize(len, 0);
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
        for (index, count) in (self.first..).zip(&self.buckets) {
            seen += u64::from(*count);
            if seen >= rank {
                return middle(index).min(self.max);
            }
        }
        self.max
    }
}

/// The bucket of a time: below 128 exact, then by its seven bits after the first.
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
    fn a_quantile_is_right_within_a_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|time| histogram.note(time));
        for (per_mille, exact) in [(500, 50_000), (990, 99_000), (999, 99_900), (1, 100)] {
            let value = histogram.quantile(per_mille);
            assert!(value.abs_diff(exact) <= exact / 100, "{value} for {exact}");
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
                assert!(middle(index).abs_diff(time) <= time / 128);
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
