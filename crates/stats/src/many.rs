//! Many comparisons at once, of figures of which only the value and its interval are known.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::interval::Interval;

/// What either side of an interval may miss.
const TAIL: f64 = 0.025;

/// A value with its 95 % interval, from `n` samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// The value.
    pub value: f64,
    /// Its interval; of no width for what is known exactly.
    pub interval: Interval,
    /// Samples that the interval rests on.
    pub n: usize,
}

/// The difference of two independent values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The second less the first.
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// Two-sided p-value of no difference.
    pub p: f64,
}

/// The second less the first: ends by the ends of both that face each other (MOVER, Zou and
/// Donner 2008), which holds for lopsided intervals too, and p by Student's distribution with
/// the degrees of freedom of Welch (1947) on the errors that those ends imply. `None` for
/// values that are not finite.
pub fn difference(first: Estimated, second: Estimated) -> Option<Difference> {
    let value = second.value - first.value;
    let down = (
        second.value - second.interval.low,
        first.interval.high - first.value,
    );
    let up = (
        second.interval.high - second.value,
        first.value - first.interval.low,
    );
    let interval = Interval {
        low: value - down.0.hypot(down.1),
        high: value + up.0.hypot(up.1),
    };
    if !(interval.low.is_finite() && interval.high.is_finite()) {
        return None;
    }
    let facing = if value > 0.0 { down } else { up };
    let p = p_value(value.abs(), [(facing.0, second.n), (facing.1, first.n)])?;
    Some(Difference { value, interval, p })
}

/// How often chance makes a difference at least this large of two values with these half
/// widths.
fn p_value(size: f64, halves: [(f64, usize); 2]) -> Option<f64> {
    let (mut variance, mut weights) = (0.0, 0.0);
    for (half, n) in halves {
        // One window of a count has an interval that rests on its events, not on windows.
        let freedom = if n > 1 { n as f64 - 1.0 } else { 1e6 };
        let of_half = half
            / StudentsT::new(0.0, 1.0, freedom)
                .ok()?
                .inverse_cdf(1.0 - TAIL);
        let part = of_half * of_half;
        variance += part;
        weights += part * part / freedom;
    }
    if variance == 0.0 {
        return Some(if size == 0.0 { 1.0 } else { 0.0 });
    }
    let freedom = (variance * variance / weights).max(1.0);
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((2.0 * t.sf(size / variance.sqrt())).min(1.0))
}

/// p-values of many tests, adjusted (Benjamini and Hochberg 1995): of the tests whose adjusted
/// value is at most q, a share of at most q is expected to be chance. In the order given.
pub fn adjusted(p_values: &[f64]) -> Vec<f64> {
    let count = p_values.len() as f64;
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_unstable_by(|a, b| p_values[*b].total_cmp(&p_values[*a]));
    let mut out = vec![1.0; p_values.len()];
    let mut least: f64 = 1.0;
    for (from_last, index) in order.into_iter().enumerate() {
        least = least.min(p_values[index] * count / (count - from_last as f64));
        out[index] = least;
    }
    out
}

/// p-values of many tests, adjusted so that the chance of even one false alarm among all stays
/// below the level that an adjusted value is held against (Holm 1979). In the order given.
pub fn adjusted_by_holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_unstable_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut out = vec![1.0; p_values.len()];
    let mut greatest: f64 = 0.0;
    for (before, index) in order.into_iter().enumerate() {
        let left = (p_values.len() - before) as f64;
        greatest = greatest.max(p_values[index] * left);
        out[index] = greatest.min(1.0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::mean_interval;

    fn estimated(value: f64, low: f64, high: f64, n: usize) -> Estimated {
        Estimated {
            value,
            interval: Interval { low, high },
            n,
        }
    }

    #[test]
    fn adjusted_values_agree_with_scipy() {
        // scipy.stats.false_discovery_control([0.01, 0.04, 0.03, 0.005, 0.5], method="bh")
        let adjusted = adjusted(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        let expected = [0.025, 0.05, 0.05, 0.025, 0.5];
        for (is, should) in adjusted.iter().zip(expected) {
            assert!((is - should).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(super::adjusted(&[]).is_empty());
    }

    #[test]
    fn values_adjusted_by_holm_are_those_by_hand() {
        // By hand: 0.005 * 5, 0.01 * 4, 0.03 * 3, and the larger of 0.04 * 2 and the one before.
        let adjusted = adjusted_by_holm(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        let expected = [0.04, 0.09, 0.09, 0.025, 0.5];
        for (is, should) in adjusted.iter().zip(expected) {
            assert!((is - should).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(adjusted_by_holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert!(adjusted_by_holm(&[]).is_empty());
    }

    #[test]
    fn means_differ_as_welchs_test_says() {
        let (a, b) = (
            [4.2, 5.1, 3.9, 4.8, 5.5, 4.4, 4.9, 5.0],
            [5.9, 5.0, 6.1, 5.4, 6.6, 5.2],
        );
        let of = |samples: &[f64]| {
            let value = samples.iter().sum::<f64>() / samples.len() as f64;
            let interval = mean_interval(samples).unwrap();
            estimated(value, interval.low, interval.high, samples.len())
        };
        // scipy.stats.ttest_ind(b, a, equal_var=False).pvalue
        let is = difference(of(&a), of(&b)).unwrap();
        assert!((is.p - 0.010_345_232_060_792).abs() < 1e-9, "{is:?}");
        assert!(is.interval.low > 0.0);
    }

    #[test]
    fn lopsided_intervals_count_on_the_side_that_faces_the_other() {
        // No event, and many: the first's upper and the second's lower end decide.
        let none = estimated(0.0, 0.0, 0.06, 1);
        let many = difference(none, estimated(2.0, 1.66, 2.4, 1)).unwrap();
        assert!(many.interval.low > 1.6 && many.p < 1e-6, "{many:?}");
        let few = difference(none, estimated(0.03, 0.004, 0.1, 1)).unwrap();
        assert!(few.interval.low < 0.0 && few.p > 0.05, "{few:?}");
        let exact = difference(estimated(3.0, 3.0, 3.0, 1), estimated(3.0, 3.0, 3.0, 1)).unwrap();
        assert_eq!((exact.value, exact.p), (0.0, 1.0));
        assert_eq!(difference(none, estimated(f64::NAN, 0.0, 1.0, 1)), None);
    }
}
