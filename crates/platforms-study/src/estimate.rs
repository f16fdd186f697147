//! A value with what is known of its error: ratios of runs, in pairs or by means.
//!
//! Runs of one block came one after the other and are compared in pairs; where there are no
//! blocks, as in older records, independent means are compared.

use tare_lab::kit::{Figure, Spread, Statistic};
use tare_stats::{Interval, mean, ratio_interval, signed_rank, signed_rank_p};

/// Below this p-value two series differ.
pub(crate) const ALPHA: f64 = 0.01;
/// Fewer pairs, or runs of a mean, have a range and no interval, as all figures of the lab:
/// Student's interval of two or three is as wide as chance makes it, and no goal may rest on it.
pub(crate) const LEAST: usize = 6;

/// A value with what is known of its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// The 95 % interval; none of fewer than [`LEAST`].
    pub(crate) interval: Option<Interval>,
    /// Where there is no interval, what the least and the greatest sample give.
    pub(crate) range: Option<Interval>,
    pub(crate) n: usize,
    pub(crate) statistic: Statistic,
}

impl Estimate {
    pub(crate) fn bare(value: f64, statistic: Statistic, n: usize) -> Self {
        Self {
            value,
            interval: None,
            range: None,
            n,
            statistic,
        }
    }

    pub(crate) fn figure(self, name: &str, unit: &str) -> Figure {
        let figure = Figure::bare(name, unit, self.value, self.statistic, self.n);
        match (self.interval, self.range) {
            (None, Some(Interval { low, high })) => Figure {
                low: Some(low),
                high: Some(high),
                spread: Spread::Range,
                ..figure
            },
            (interval, _) => figure.with_interval(interval),
        }
    }

    /// The ends of the interval, else of the range.
    pub(crate) fn ends(self) -> Option<Interval> {
        self.interval.or(self.range)
    }

    /// The value with its ends in words.
    pub(crate) fn text(self) -> String {
        self.figure("", "").text()
    }

    /// Whether the interval excludes `value`.
    pub(crate) fn differs_from(self, value: f64) -> bool {
        self.interval
            .is_some_and(|it| it.low > value || it.high < value)
    }

    /// Whether the whole interval is below `value`.
    pub(crate) fn is_below(self, value: f64) -> bool {
        self.interval.is_some_and(|it| it.high < value)
    }

    /// From a ratio to the percent that it is above 1.
    pub(crate) fn percent(self) -> Self {
        self.mapped(|ratio| (ratio - 1.0) * 100.0)
    }

    /// The same through a function that rises.
    pub(crate) fn mapped(self, map: impl Fn(f64) -> f64) -> Self {
        let both = |Interval { low, high }| Interval {
            low: map(low),
            high: map(high),
        };
        Self {
            value: map(self.value),
            interval: self.interval.map(both),
            range: self.range.map(both),
            ..self
        }
    }
}

/// The least and the greatest of several samples.
pub(crate) fn extremes(samples: &[f64]) -> Option<Interval> {
    let low = samples.iter().copied().reduce(f64::min)?;
    let high = samples.iter().copied().reduce(f64::max)?;
    (samples.len() > 1).then_some(Interval { low, high })
}

/// Mean over mean, as CPU-Pinning 2020 has it, of runs that are not in pairs.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Estimate> {
    let (top, bottom) = (mean(over)?, mean(under)?);
    let n = over.len().min(under.len());
    let range = || {
        let (over, under) = (extremes(over)?, extremes(under)?);
        Some(Interval {
            low: over.low / under.high,
            high: over.high / under.low,
        })
    };
    (top > 0.0 && bottom > 0.0).then(|| Estimate {
        interval: ratio_interval(over, under).filter(|_| n >= LEAST),
        range: range().filter(|_| n < LEAST),
        ..Estimate::bare(top / bottom, Statistic::Ratio, n)
    })
}

/// The middle of the ratios in pairs of runs: the estimate of Hodges and Lehmann on the
/// logarithm, from six pairs on with the interval of signed ranks.
pub(crate) fn paired(ratios: &[f64]) -> Option<Estimate> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let test = signed_rank(&logs)?;
    let estimate = Estimate {
        interval: test.interval,
        range: extremes(&logs).filter(|_| test.interval.is_none()),
        ..Estimate::bare(test.shift, Statistic::PairedRatio, test.n)
    };
    Some(estimate.mapped(f64::exp))
}

/// The geometric mean of several ratios; its interval if each has one, else what their ends give.
pub(crate) fn together(ratios: &[Estimate]) -> Option<Estimate> {
    let count = ratios.len() as f64;
    let first = *ratios.first()?;
    if ratios.len() == 1 {
        return Some(first);
    }
    let log = ratios.iter().map(|r| r.value.ln()).sum::<f64>() / count;
    // An interval of ranks reaches further to one side: each side by itself.
    let side = |of: fn(f64, Interval) -> f64| {
        let squares = ratios
            .iter()
            .map(|it| Some(of(it.value, it.interval?).powi(2)));
        squares
            .sum::<Option<f64>>()
            .map(|squares| squares.sqrt() / count)
    };
    let down = side(|value, it| (value / it.low).ln());
    let up = side(|value, it| (it.high / value).ln());
    let interval = down.zip(up).map(|(down, up)| Interval {
        low: (log - down).exp(),
        high: (log + up).exp(),
    });
    // Without errors that could cancel, all of them may lie on one side.
    let all = |end: fn(Interval) -> f64| {
        let ends = ratios.iter().map(|it| Some(end(it.ends()?).ln()));
        let sum = ends.sum::<Option<f64>>()?;
        Some((sum / count).exp())
    };
    let range = all(|it| it.low).zip(all(|it| it.high));
    let range = range.map(|(low, high)| Interval { low, high });
    Some(Estimate {
        value: log.exp(),
        interval,
        range: range.filter(|_| interval.is_none()),
        n: ratios.iter().map(|r| r.n).fold(first.n, usize::min),
        statistic: first.statistic,
    })
}

/// p of the signed-rank test on the ratios; `None` below six pairs.
pub(crate) fn tested(ratios: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    signed_rank_p(&logs)
}

/// The least p that the test can give as many ratios that are this far from 1: that of all on
/// one side. Of seven or fewer none is below [`ALPHA`].
pub(crate) fn least_p(ratios: &[f64]) -> Option<f64> {
    let sizes: Vec<f64> = ratios.iter().map(|ratio| ratio.ln().abs()).collect();
    signed_rank_p(&sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ratios_reach_as_far_to_each_side_as_each_of_them() {
        let one = Estimate {
            interval: Some(Interval {
                low: 0.98,
                high: 1.07,
            }),
            ..Estimate::bare(1.05, Statistic::PairedRatio, 6)
        };
        let all = together(&[one, one]).unwrap();
        let Interval { low, high } = all.interval.unwrap();
        assert!((all.value - 1.05).abs() < 1e-9);
        assert!(
            low < 1.01 && (1.06..1.065).contains(&high),
            "{low} to {high}"
        );
        let without = Estimate {
            interval: None,
            range: Some(Interval {
                low: 1.0,
                high: 1.2,
            }),
            ..one
        };
        let all = together(&[one, without]).unwrap();
        assert_eq!(all.interval, None);
        let Interval { low, high } = all.range.unwrap();
        assert!((low - 0.98_f64.sqrt()).abs() < 1e-9, "{low}");
        assert!((high - (1.07_f64 * 1.2).sqrt()).abs() < 1e-9, "{high}");
        let one_run = Estimate {
            range: None,
            ..without
        };
        assert_eq!(together(&[one, one_run]).unwrap().ends(), None);
    }

    #[test]
    fn fewer_than_six_have_a_range_which_decides_nothing() {
        let ratios = [1.30, 1.31, 1.32, 1.33, 1.34, 1.35];
        let same = [1.0; 6];
        for few in 2..6 {
            for estimate in [
                paired(&ratios[..few]).unwrap(),
                ratio(&ratios[..few], &same).unwrap(),
                ratio(&ratios, &same[..few]).unwrap(),
            ] {
                assert_eq!(estimate.interval, None, "{estimate:?}");
                assert!(!estimate.differs_from(1.0) && !estimate.is_below(2.0));
                let figure = estimate.figure("x", "1");
                assert_eq!(figure.spread, Spread::Range, "{figure:?}");
                let (low, high) = figure.ends().unwrap();
                assert!((1.299..1.301).contains(&low) && high < 1.351, "{figure:?}");
                assert!(figure.ends_text().ends_with(" range"));
            }
        }
        for estimate in [paired(&ratios).unwrap(), ratio(&ratios, &same).unwrap()] {
            assert!(estimate.differs_from(1.0), "{estimate:?}");
            assert_eq!(estimate.figure("x", "1").spread, Spread::Interval);
        }
        assert_eq!(paired(&ratios[..1]).unwrap().ends(), None);
    }

    #[test]
    fn a_test_of_seven_pairs_cannot_differ() {
        let of = |count: usize| least_p(&vec![1.1; count]);
        assert_eq!(of(5), None);
        assert!(of(7).is_some_and(|p| p > ALPHA) && of(8).is_some_and(|p| p < ALPHA));
        // Two equal runs say nothing of either side.
        let mut tied = vec![1.1; 7];
        tied.extend([1.0; 3]);
        assert!(least_p(&tied).is_some_and(|p| p > ALPHA));
    }
}
