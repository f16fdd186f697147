//! Percentile bootstrap: an interval for any figure of a series.

use crate::interval::Interval;
use crate::quantile::{quantile, sorted};
use crate::random::SplitMix64;

/// The 95 % percentile interval of `figure` over `rounds` resamplings with
/// replacement (Efron and Tibshirani, *An Introduction to the Bootstrap*, 13.3).
/// The same `seed` gives the same interval. `None` for no samples, no rounds, or
/// a figure that is not finite.
pub fn bootstrap_interval(
    samples: &[f64],
    rounds: usize,
    seed: u64,
    figure: impl Fn(&[f64]) -> f64,
) -> Option<Interval> {
    if samples.is_empty() || rounds == 0 {
        return None;
    }
    let mut random = SplitMix64::new(seed);
    let mut resample = vec![0.0; samples.len()];
    let figures: Vec<f64> = (0..rounds)
        .map(|_| {
            resample.fill_with(|| samples[random.below(samples.len())]);
            figure(&resample)
        })
        .collect();
    let figures = sorted(&figures)?;
    Some(Interval {
        low: quantile(&figures, 0.025),
        high: quantile(&figures, 0.975),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{mean, mean_interval};

    fn mean_of(samples: &[f64]) -> f64 {
        mean(samples).unwrap_or(f64::NAN)
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let samples: Vec<f64> = (0..50).map(f64::from).collect();
        let once = bootstrap_interval(&samples, 200, 7, mean_of);
        assert_eq!(once, bootstrap_interval(&samples, 200, 7, mean_of));
        assert_ne!(once, bootstrap_interval(&samples, 200, 8, mean_of));
    }

    #[test]
    fn a_mean_of_many_agrees_with_students_interval() {
        let mut random = SplitMix64::new(3);
        let samples: Vec<f64> = (0..400).map(|_| random.below(1_000) as f64).collect();
        let boot = bootstrap_interval(&samples, 2_000, 1, mean_of).unwrap();
        let student = mean_interval(&samples).unwrap();
        let width = student.high - student.low;
        assert!(
            (boot.low - student.low).abs() < 0.15 * width,
            "{boot:?} {student:?}"
        );
        assert!(
            (boot.high - student.high).abs() < 0.15 * width,
            "{boot:?} {student:?}"
        );
    }

    #[test]
    fn nothing_to_resample_has_no_interval() {
        assert_eq!(bootstrap_interval(&[], 10, 1, mean_of), None);
        assert_eq!(bootstrap_interval(&[1.0], 0, 1, mean_of), None);
        assert_eq!(bootstrap_interval(&[f64::NAN], 10, 1, mean_of), None);
    }
}
