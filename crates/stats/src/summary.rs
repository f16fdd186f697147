//! A series of samples in one line.

use crate::interval::{Interval, median_interval};
use crate::quantile::{quantile, sorted};

/// What a report says of a series; unit as the samples'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// The median's 95 % interval; `None` below six samples.
    pub interval: Option<Interval>,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

/// Sums up a series; `None` if it is empty or holds a value that is not finite.
pub fn summarize(samples: &[f64]) -> Option<Summary> {
    let sorted = sorted(samples)?;
    Some(Summary {
        n: sorted.len(),
        median: quantile(&sorted, 0.5),
        interval: median_interval(&sorted),
        mean: mean(&sorted)?,
        min: *sorted.first()?,
        max: *sorted.last()?,
    })
}

/// The arithmetic mean; `None` for no samples or one that is not finite.
pub fn mean(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if mean.is_finite() {
        return Some(mean);
    }
    // The sum may have overflowed where the mean does not.
    let mean = samples.iter().map(|sample| sample / n).sum::<f64>();
    mean.is_finite().then_some(mean)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_series_is_summed_up() {
        let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let summary = summarize(&samples).unwrap();
        assert_eq!((summary.n, summary.median, summary.mean), (20, 10.5, 10.5));
        assert_eq!((summary.min, summary.max), (1.0, 20.0));
        assert_eq!(
            summary.interval,
            median_interval(&sorted(&samples).unwrap())
        );
        assert_eq!(summarize(&[1.0, 2.0]).unwrap().interval, None);
    }

    #[test]
    fn nothing_and_nonsense_have_no_summary() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(summarize(&[1.0, f64::NEG_INFINITY]), None);
    }

    #[test]
    fn a_mean_of_huge_samples_is_found() {
        assert_eq!(mean(&[f64::MAX, f64::MAX]), Some(f64::MAX));
        assert_eq!(mean(&[f64::NAN]), None);
        assert_eq!(mean(&[]), None);
    }

    proptest! {
        #[test]
        fn the_parts_are_in_order(samples in prop::collection::vec(-1e6..1e6f64, 1..200)) {
            let s = summarize(&samples).unwrap();
            prop_assert_eq!(s.n, samples.len());
            prop_assert!(s.min <= s.median && s.median <= s.max);
            if let Some(interval) = s.interval {
                let slack = 1e-6;
                prop_assert!(s.min - slack <= interval.low && interval.low <= s.median + slack);
                prop_assert!(s.median - slack <= interval.high && interval.high <= s.max + slack);
            }
            prop_assert!(s.min - 1e-6 <= s.mean && s.mean <= s.max + 1e-6);
        }

        #[test]
        fn order_does_not_matter(samples in prop::collection::vec(-1e6..1e6f64, 1..50)) {
            let mut reversed = samples.clone();
            reversed.reverse();
            prop_assert_eq!(summarize(&samples), summarize(&reversed));
        }
    }
}
