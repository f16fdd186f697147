//! A value with what is known of its error: ratios of runs, in pairs or by means.
//!
//! Runs of one block came one after the other and are compared in pairs; where there are no
//! blocks, as in older records, independent means are compared.

use tare_lab::kit::{Figure, Statistic};
use tare_stats::{Interval, mean, mean_interval, ratio_interval, signed_rank, signed_rank_p};

/// Below this p-value two series differ.
pub(crate) const ALPHA: f64 = 0.01;

/// A value with what is known of its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// The 95 % interval.
    pub(crate) interval: Option<Interval>,
    pub(crate) n: usize,
    pub(crate) statistic: Statistic,
}

impl Estimate {
    pub(crate) fn bare(value: f64, statistic: Statistic, n: usize) -> Self {
        Self {
            value,
            interval: None,
            n,
            statistic,
        }
    }

    pub(crate) fn figure(self, name: &str, unit: &str) -> Figure {
        let figure = Figure::bare(name, unit, self.value, self.statistic, self.n);
        figure.with_interval(self.interval)
    }

    /// The value with its interval in words.
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

    pub(crate) fn mapped(self, map: impl Fn(f64) -> f64) -> Self {
        Self {
            value: map(self.value),
            interval: self.interval.map(|Interval { low, high }| Interval {
                low: map(low),
                high: map(high),
            }),
            ..self
        }
    }
}

/// Mean over mean, as CPU-Pinning 2020 has it, of runs that are not in pairs.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Estimate> {
    let (top, bottom) = (mean(over)?, mean(under)?);
    (top > 0.0 && bottom > 0.0).then(|| Estimate {
        interval: ratio_interval(over, under),
        ..Estimate::bare(top / bottom, Statistic::Ratio, over.len().min(under.len()))
    })
}

/// The middle of the ratios in pairs of runs: from six pairs on the estimate of Hodges and
/// Lehmann on the logarithm, below the geometric mean with Student's interval.
pub(crate) fn paired(ratios: &[f64]) -> Option<Estimate> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let test = signed_rank(&logs)?;
    let few = || (mean(&logs), mean_interval(&logs));
    let (middle, interval) = match test.interval {
        Some(interval) => (Some(test.shift), Some(interval)),
        None => few(),
    };
    let estimate = Estimate {
        interval,
        ..Estimate::bare(middle?, Statistic::PairedRatio, logs.len())
    };
    Some(estimate.mapped(f64::exp))
}

/// The geometric mean of several ratios; its interval if each has one.
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
    Some(Estimate {
        value: log.exp(),
        interval,
        n: ratios.iter().map(|r| r.n).fold(first.n, usize::min),
        statistic: first.statistic,
    })
}

/// p of the signed-rank test on the ratios; `None` below six pairs.
pub(crate) fn tested(ratios: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    signed_rank_p(&logs)
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
            ..one
        };
        assert_eq!(together(&[one, without]).unwrap().interval, None);
    }
}
