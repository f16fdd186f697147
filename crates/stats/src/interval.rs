//! 95 % confidence intervals: of a median, a quantile, a mean, a ratio of means, a count.

use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

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

impl Interval {
    /// `middle` and the same distance to either side.
    fn around(middle: f64, half: f64) -> Self {
        Self {
            low: middle - half,
            high: middle + half,
        }
    }
}

/// The interval of the median of ascending samples, whatever their distribution: between
/// order statistics, whose ranks follow from the binomial distribution with one half
/// (Conover, *Practical Nonparametric Statistics*, 3.2). Two neighbouring pairs of order
/// statistics are interpolated, so that it covers close to 95 % and not up to 99 %
/// (Hettmansperger and Sheather 1986, *Confidence intervals based on interpolated order
/// statistics*).
///
/// `None` below six samples: no pair of order statistics reaches 95 %.
pub(crate) fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let n = sorted.len();
    let rank = lower_rank(n as u64) as usize;
    if rank == 0 {
        return None;
    }
    let below = Binomial::new(0.5, n as u64).ok()?;
    // Coverage between the order statistics of this rank from either end, and of the next.
    let wide = 1.0 - 2.0 * below.cdf(rank as u64 - 1);
    let narrow = 1.0 - 2.0 * below.cdf(rank as u64);
    let share = (wide - (1.0 - 2.0 * TAIL)) / (wide - narrow);
    let (d, n_f) = (rank as f64, n as f64);
    let inner = (n_f - d) * share / (d + (n_f - 2.0 * d) * share);
    let between = |outer: f64, next: f64| outer * (1.0 - inner) + next * inner;
    Some(Interval {
        low: between(sorted[rank - 1], sorted[rank]),
        high: between(sorted[n - rank], sorted[n - rank - 1]),
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

/// The interval of the `q`-quantile of ascending samples between order statistics (Conover,
/// as above). `None` where the samples bound it on one side only: the 99th percentile needs
/// 368 samples, the 90th 36.
pub fn quantile_interval(sorted: &[f64], q: f64) -> Option<Interval> {
    let n = sorted.len() as u64;
    if !(q > 0.0 && q < 1.0) || n == 0 {
        return None;
    }
    let below = Binomial::new(q, n).ok()?;
    let low = (1..=n).take_while(|l| below.cdf(l - 1) <= TAIL).last()?;
    let high = (1..=n).find(|u| 1.0 - below.cdf(u - 1) <= TAIL)?;
    Some(Interval {
        low: sorted[low as usize - 1],
        high: sorted[high as usize - 1],
    })
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
    let error = (variance(samples, mean) / n).sqrt();
    Some(Interval::around(mean, student(freedom)? * error))
}

/// The interval of the ratio of two means of independent positive samples: Student's on the
/// logarithm, by the delta method, with the degrees of freedom of Welch (1947). `None`
/// unless both have two samples: one sample says nothing about its error.
pub fn ratio_interval(over: &[f64], under: &[f64]) -> Option<Interval> {
    let (top, bottom) = (mean(over)?, mean(under)?);
    if over.len() < 2 || under.len() < 2 || !(top > 0.0 && bottom > 0.0) {
        return None;
    }
    let part = |samples: &[f64], mean: f64| Part {
        variance: variance(samples, mean) / (samples.len() as f64 * mean * mean),
        freedom: samples.len() as f64 - 1.0,
    };
    let half = half_width(&[part(over, top), part(under, bottom)])?;
    let ratio = top / bottom;
    Some(Interval {
        low: ratio * (-half).exp(),
        high: ratio * half.exp(),
    })
}

/// An independent part of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Variance of the part's estimate.
    pub variance: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

impl Part {
    /// The part that a mean of `samples` is, times `factor`; `None` below two samples.
    pub fn of_mean(samples: &[f64], factor: f64) -> Option<Self> {
        let n = samples.len() as f64;
        let mean = mean(samples).filter(|_| samples.len() > 1)?;
        Some(Self {
            variance: factor * factor * variance(samples, mean) / n,
            freedom: n - 1.0,
        })
    }
}

/// Half the width of the 95 % interval of a sum of independent parts: Student's, with the
/// degrees of freedom of Satterthwaite (1946). `None` without parts.
pub fn half_width(parts: &[Part]) -> Option<f64> {
    let all: f64 = parts.iter().map(|part| part.variance).sum();
    let weights: f64 = parts
        .iter()
        .map(|p| p.variance * p.variance / p.freedom)
        .sum();
    if parts.is_empty() || !all.is_finite() {
        return None;
    }
    if all == 0.0 {
        return Some(0.0);
    }
    Some(student((all * all / weights).max(1.0))? * all.sqrt())
}

/// The interval of a Poisson count (Garwood 1936): events that come independently. Zero
/// events leave an upper end of 3.69.
pub fn count_interval(count: u64) -> Option<Interval> {
    let quantile =
        |events: f64, q: f64| Some(ChiSquared::new(2.0 * events).ok()?.inverse_cdf(q) / 2.0);
    let low = match count {
        0 => 0.0,
        events => quantile(events as f64, TAIL)?,
    };
    Some(Interval {
        low,
        high: quantile(count as f64 + 1.0, 1.0 - TAIL)?,
    })
}

/// The interval of a share, `found` of `all` (Wilson 1927).
pub fn share_interval(found: u64, all: u64) -> Option<Interval> {
    if all == 0 || found > all {
        return None;
    }
    let (n, z) = (all as f64, Normal::standard().inverse_cdf(1.0 - TAIL));
    let share = found as f64 / n;
    let scale = 1.0 + z * z / n;
    let middle = (share + z * z / (2.0 * n)) / scale;
    let half = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    Some(Interval {
        low: (middle - half).max(0.0),
        high: (middle + half).min(1.0),
    })
}

fn variance(samples: &[f64], mean: f64) -> f64 {
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    squares / (samples.len() as f64 - 1.0)
}

/// The upper 2.5 % point of Student's t distribution.
fn student(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(1.0 - TAIL))
}

#[cfg(test)]
mod tests {
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
    fn few_samples_have_no_interval_of_their_median() {
        assert_eq!(median_interval(&[1.0, 2.0, 9.0]), None);
        assert_eq!(median_interval(&[4.0]), None);
        assert_eq!(median_interval(&[]), None);
        assert!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).is_none());
        assert!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).is_some());
    }

    #[test]
    fn twenty_samples_lie_between_the_sixth_and_the_seventh_from_either_end() {
        // The ranks 6 and 7 cover 95.86 and 88.47 %; share and weight by the formula of
        // Hettmansperger and Sheather, worked by hand: 0.1164, and 14 * 0.1164 / 6.931.
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = median_interval(&sorted).unwrap();
        assert!((interval.low - 6.2351).abs() < 0.001, "{interval:?}");
        assert!((interval.high - 14.7649).abs() < 0.001, "{interval:?}");
    }

    #[test]
    fn quantiles_need_enough_samples() {
        let sorted: Vec<f64> = (1..=400).map(f64::from).collect();
        assert_eq!(quantile_interval(&sorted[..367], 0.99), None);
        assert!(quantile_interval(&sorted[..368], 0.99).is_some());
        assert_eq!(quantile_interval(&sorted[..35], 0.9), None);
        // Ranks by scipy.stats.binom(100, 0.9): cdf(83) = 0.0206, sf(95) = 0.0237.
        let p90 = quantile_interval(&sorted[..100], 0.9).unwrap();
        assert_eq!((p90.low, p90.high), (84.0, 96.0));
        assert_eq!(quantile_interval(&sorted, 0.0), None);
        assert_eq!(quantile_interval(&sorted, 1.0), None);
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

    #[test]
    fn a_ratio_with_one_sample_has_no_interval() {
        assert_eq!(ratio_interval(&[2.0], &[1.0, 1.1, 0.9]), None);
        assert_eq!(ratio_interval(&[2.0, 2.1], &[1.0]), None);
        assert_eq!(ratio_interval(&[2.0, 2.1], &[0.0, 0.0]), None);
        assert!(ratio_interval(&[2.0, 2.1], &[1.0, 1.1]).is_some());
    }

    #[test]
    fn counts_agree_with_published_tables() {
        // Garwood 1936, table of 95 % limits.
        for (count, low, high) in [
            (0, 0.0, 3.689),
            (1, 0.0253, 5.572),
            (5, 1.623, 11.668),
            (10, 4.795, 18.390),
            (50, 37.111, 65.919),
        ] {
            let interval = count_interval(count).unwrap();
            assert!((interval.low - low).abs() < 1e-3, "{count}: {interval:?}");
            assert!((interval.high - high).abs() < 1e-3, "{count}: {interval:?}");
        }
    }

    #[test]
    fn shares_agree_with_statsmodels() {
        // statsmodels.stats.proportion.proportion_confint(5, 100, method="wilson")
        let share = share_interval(5, 100).unwrap();
        assert!((share.low - 0.021_543).abs() < 1e-5, "{share:?}");
        assert!((share.high - 0.111_750).abs() < 1e-5, "{share:?}");
        assert_eq!(share_interval(0, 0), None);
        assert_eq!(share_interval(3, 2), None);
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
}
