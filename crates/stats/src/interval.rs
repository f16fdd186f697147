//! 95 % confidence intervals for a median and for a mean.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::summary::mean;

/// What either side of an interval may miss.
const TAIL: f64 = 0.025;

/// Two ends that hold the true value in at least 95 % of experiments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The interval of the median of ascending samples, from order statistics: the
/// count of samples below the true median is binomial with one half, whatever
/// the distribution (Conover, *Practical Nonparametric Statistics*, 3.2).
///
/// Below six samples no pair of order statistics reaches 95 %: the extremes are
/// returned, which cover 1 - 2^(1-n). `None` for no samples.
pub fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let last = sorted.len().checked_sub(1)?;
    let rank = lower_rank(sorted.len() as u64).max(1) as usize;
    Some(Interval {
        low: sorted[rank - 1],
        high: sorted[last + 1 - rank],
    })
}

/// The largest 1-based rank `l` with P(Binomial(n, 1/2) < l) within the tail;
/// 0 if there is none.
fn lower_rank(n: u64) -> u64 {
    let Ok(below) = Binomial::new(0.5, n) else {
        return 0;
    };
    // Invariant: `low` holds, `high` does not.
    let (mut low, mut high) = (0, n / 2 + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if below.cdf(middle - 1) <= TAIL {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Student's interval of the mean, as CPU-Pinning 2020 reports it: right for
/// means of many or of normal samples. `None` below two samples or if one is
/// not finite.
pub fn mean_interval(samples: &[f64]) -> Option<Interval> {
    let n = samples.len() as f64;
    let mean = mean(samples)?;
    let freedom = n - 1.0;
    if freedom < 1.0 {
        return None;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let error = (squares / freedom / n).sqrt();
    let half = student_quantile(freedom)? * error;
    Some(Interval {
        low: mean - half,
        high: mean + half,
    })
}

/// The upper 2.5 % point of Student's t distribution.
fn student_quantile(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(1.0 - TAIL))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_agree_with_scipy() {
        // Largest l with scipy.stats.binom.cdf(l - 1, n, 0.5) <= 0.025.
        let expected = [
            (1, 0),
            (5, 0),
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (11, 2),
            (20, 6),
            (30, 10),
            (50, 18),
            (100, 40),
            (1000, 469),
            (10_000, 4902),
        ];
        for (n, rank) in expected {
            assert_eq!(lower_rank(n), rank, "n = {n}");
        }
    }

    #[test]
    fn few_samples_report_their_extremes() {
        let interval = median_interval(&[1.0, 2.0, 9.0]).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 9.0));
        let one = median_interval(&[4.0]).unwrap();
        assert_eq!((one.low, one.high), (4.0, 4.0));
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn twenty_samples_take_the_sixth_from_either_end() {
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = median_interval(&sorted).unwrap();
        assert_eq!((interval.low, interval.high), (6.0, 15.0));
    }

    #[test]
    fn means_agree_with_scipy() {
        // scipy.stats.t.interval(0.95, n - 1, loc=mean, scale=scipy.stats.sem(x))
        let thousand: Vec<f64> = (1..=1000).map(f64::from).collect();
        let cases: [(&[f64], f64, f64); 3] = [
            (
                &[4.2, 5.1, 3.9, 4.8, 5.5, 4.4, 4.9, 5.0],
                4.287_727_148_046_969,
                5.162_272_851_953_03,
            ),
            (&[1.0, 2.0], -4.853_102_368_087_347, 7.853_102_368_087_347),
            (&thousand, 482.577_400_685_881_1, 518.422_599_314_118_9),
        ];
        for (samples, low, high) in cases {
            let interval = mean_interval(samples).unwrap();
            assert!((interval.low - low).abs() < 1e-6, "{interval:?}");
            assert!((interval.high - high).abs() < 1e-6, "{interval:?}");
        }
    }

    #[test]
    fn a_mean_of_one_has_no_interval() {
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[]), None);
        assert_eq!(mean_interval(&[1.0, f64::NAN]), None);
        let same = mean_interval(&[3.0; 5]).unwrap();
        assert_eq!((same.low, same.high), (3.0, 3.0));
    }

    proptest! {
        #[test]
        fn the_rank_is_the_last_within_the_tail(n in 6..5_000u64) {
            let below = Binomial::new(0.5, n).unwrap();
            let rank = lower_rank(n);
            prop_assert!(rank >= 1 && rank <= n / 2);
            prop_assert!(below.cdf(rank - 1) <= TAIL);
            prop_assert!(below.cdf(rank) > TAIL);
        }
    }

    /// The promise itself: medians of a known distribution are covered.
    #[test]
    fn ninety_five_percent_of_intervals_hold_the_median() {
        let mut random = crate::SplitMix64::new(1);
        let mut covered = 0;
        for _ in 0..4_000 {
            let mut samples: Vec<f64> = (0..25).map(|_| random.next_u64() as f64).collect();
            samples.sort_unstable_by(f64::total_cmp);
            let interval = median_interval(&samples).unwrap();
            let median = u64::MAX as f64 / 2.0;
            covered += u32::from(interval.low <= median && median <= interval.high);
        }
        // 25 samples cover 95.7 %; four standard errors are 1.3 %.
        assert!((3_776..=3_880).contains(&covered), "{covered} of 4000");
    }
}
