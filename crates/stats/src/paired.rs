//! Series that were measured in pairs: what changes slowly is in both and drops out.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::interval::Interval;
use crate::quantile::{quantile, sorted};
use crate::random::SplitMix64;

/// Up to this many differences the distribution of signed ranks is counted out.
const EXACT_MAX: usize = 40;
/// What either side of an interval may miss.
const TAIL: f64 = 0.025;
/// Fewer differences cannot be told from none at 5 %: 2 of 2^5 arrangements are 6 %.
const LEAST_PAIRS: usize = 6;
/// Fewer units on a side give no p: no arrangement of them is rare enough.
pub const LEAST_UNITS: usize = 5;
/// Rounding of a sum, as a share of the sum of its values' sizes.
const ROUNDING: f64 = 1e-13;
/// Most arrangements that are counted out; beyond, this many are drawn.
const ARRANGEMENTS: usize = 20_000;

/// The result of [`signed_rank`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedTest {
    /// Middle of the differences: the median of their pairwise means (Hodges and Lehmann
    /// 1963).
    pub shift: f64,
    /// Its 95 % interval, by inverting the test; `None` below six differences.
    pub interval: Option<Interval>,
    /// Two-sided p-value of no shift; `None` below six differences.
    pub p: Option<f64>,
    /// Number of differences.
    pub n: usize,
}

/// Whether paired differences lie around zero: Wilcoxon's signed-rank test (1945), exact to
/// 40 differences, with ties too, and the estimate and interval that belong to it (Hollander,
/// Wolfe and Chicken, *Nonparametric Statistical Methods*, 3.1 to 3.3). `None` for no
/// differences or one that is not finite.
pub fn signed_rank(differences: &[f64]) -> Option<PairedTest> {
    let n = differences.len();
    let walsh = walsh(differences)?;
    let shift = quantile(&walsh, 0.5);
    let rank = interval_rank(n);
    let interval = (rank > 0).then(|| Interval {
        low: walsh[rank - 1],
        high: walsh[walsh.len() - rank],
    });
    Some(PairedTest {
        shift,
        interval,
        p: signed_rank_p(differences),
        n,
    })
}

/// The p-value of [`signed_rank`] alone; `None` below six differences or for one that is not
/// finite.
pub fn signed_rank_p(differences: &[f64]) -> Option<f64> {
    let finite = differences.iter().all(|difference| difference.is_finite());
    (finite && differences.len() >= LEAST_PAIRS).then(|| p_value(differences))
}

/// Means of all pairs, each difference with itself too, ascending.
fn walsh(differences: &[f64]) -> Option<Vec<f64>> {
    if differences.is_empty() {
        return None;
    }
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, first) in differences.iter().enumerate() {
        for second in &differences[index..] {
            means.push(f64::midpoint(*first, *second));
        }
    }
    sorted(&means)
}

/// How often each sum of positive ranks comes up among all signs of `ranks`.
fn sums(ranks: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    let mut counts = vec![0.0; ranks.clone().sum::<usize>() + 1];
    counts[0] = 1.0;
    for rank in ranks {
        for sum in (rank..counts.len()).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

/// The 1-based rank among the pairwise means at which the interval ends; 0 for none.
fn interval_rank(n: usize) -> usize {
    let n_f = n as f64;
    if n > EXACT_MAX {
        let spread = (n_f * (n_f + 1.0) * (2.0 * n_f + 1.0) / 24.0).sqrt();
        let z = Normal::standard().inverse_cdf(1.0 - TAIL);
        return (n_f * (n_f + 1.0) / 4.0 - z * spread).floor().max(0.0) as usize;
    }
    let all = 2f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    sums(1..=n)
        .iter()
        .take_while(|count| {
            below += **count / all;
            below <= TAIL
        })
        .count()
}

fn p_value(differences: &[f64]) -> f64 {
    let mut kept: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let n = kept.len();
    if n == 0 {
        return 1.0;
    }
    kept.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Ties share the mean of their ranks: twice that is a whole number.
    let (mut positive, mut ties, mut doubled) = (0, 0.0, Vec::with_capacity(n));
    for group in kept.chunk_by(|a, b| a.abs() == b.abs()) {
        let rank = 2 * doubled.len() + group.len() + 1;
        positive += rank * group.iter().filter(|d| **d > 0.0).count();
        ties += (group.len() as f64).powi(3) - group.len() as f64;
        doubled.extend(group.iter().map(|_| rank));
    }
    if n <= EXACT_MAX {
        let counts = sums(doubled.iter().copied());
        let all: f64 = counts.iter().sum();
        let extreme = positive.max(n * (n + 1) - positive);
        return (2.0 * counts[extreme..].iter().sum::<f64>() / all).min(1.0);
    }
    let n_f = n as f64;
    let variance = n_f * (n_f + 1.0) * (2.0 * n_f + 1.0) / 24.0 - ties / 48.0;
    let distance = (positive as f64 / 2.0 - n_f * (n_f + 1.0) / 4.0).abs() - 0.5;
    (2.0 * Normal::standard().sf(distance / variance.sqrt())).min(1.0)
}

/// How often exchanging the units of two independent groups gives means at least as far
/// apart: a permutation test (Fisher 1935, Pitman 1937), two-sided. A unit is what was
/// randomised, such as a booted machine, never one of its requests. All arrangements are
/// counted to 20,000, else that many are drawn from a fixed seed. `None` below
/// [`LEAST_UNITS`] on a side, or for a value that is not finite.
pub fn permutation(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len().min(b.len()) < LEAST_UNITS {
        return None;
    }
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    if !all.iter().all(|value| value.is_finite()) {
        return None;
    }
    let sum: f64 = all.iter().sum();
    let (m, n) = (a.len() as f64, b.len() as f64);
    let apart = |first: f64| (first / m - (sum - first) / n).abs();
    // Rounding must not make an arrangement less extreme than itself: it is of the size of
    // the sums, however small their difference is.
    let sizes: f64 = all.iter().map(|value| value.abs()).sum();
    let seen = apart(a.iter().sum()) - ROUNDING * sizes / m.min(n);
    if arrangements(all.len(), a.len()) <= ARRANGEMENTS as f64 {
        let (mut extreme, mut count) = (0usize, 0usize);
        choose(&all, a.len(), 0.0, &mut |first| {
            count += 1;
            extreme += usize::from(apart(first) >= seen);
        });
        return Some(extreme as f64 / count as f64);
    }
    let mut random = SplitMix64::new(0x7a7e);
    let drawn = (0..ARRANGEMENTS).filter(|_| {
        random.shuffle(&mut all);
        apart(all[..a.len()].iter().sum()) >= seen
    });
    // The arrangement that was seen is one of them.
    Some((drawn.count() + 1) as f64 / (ARRANGEMENTS + 1) as f64)
}

fn arrangements(all: usize, chosen: usize) -> f64 {
    (1..=chosen).fold(1.0, |product, i| {
        product * (all - chosen + i) as f64 / i as f64
    })
}

/// Calls `take` with the sum of each choice of `left` values.
fn choose(values: &[f64], left: usize, sum: f64, take: &mut impl FnMut(f64)) {
    if left == 0 {
        return take(sum);
    }
    for index in 0..=values.len() - left {
        choose(&values[index + 1..], left - 1, sum + values[index], take);
    }
}

#[cfg(test)]
mod tests {
    // 3.14 is a measurement of a published example.
    #![allow(clippy::approx_constant)]

    use super::*;

    #[test]
    fn paired_series_agree_with_scipys_exact_test() {
        // scipy.stats.wilcoxon(d, method="exact"); the depression data of Hollander and
        // Wolfe, example 3.1, whose published estimate is -0.46, interval -0.786 to -0.010.
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let differences: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let test = signed_rank(&differences).unwrap();
        assert!((test.p.unwrap() - 0.039_062_5).abs() < 1e-9, "{test:?}");
        assert!((test.shift + 0.46).abs() < 1e-9, "{test:?}");
        let interval = test.interval.unwrap();
        assert!((interval.low + 0.786).abs() < 1e-9, "{interval:?}");
        assert!((interval.high + 0.010).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn few_pairs_have_a_middle_and_nothing_more() {
        let test = signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((test.shift, test.interval, test.p), (3.0, None, None));
        assert!(
            signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
                .unwrap()
                .p
                .is_some()
        );
        assert_eq!(signed_rank(&[]), None);
        assert_eq!(signed_rank(&[1.0, f64::NAN]), None);
        let same = signed_rank(&[0.0; 8]).unwrap();
        assert_eq!((same.shift, same.p), (0.0, Some(1.0)));
    }

    #[test]
    fn ties_do_not_make_few_pairs_rarer_than_their_signs() {
        let p = |differences: &[f64]| signed_rank_p(differences).unwrap();
        // All signs alike: 2 of 2^5 and 2 of 2^6 arrangements.
        assert!((p(&[0.0, 1.0, 1.0, 1.0, 1.0, 1.0]) - 0.062_5).abs() < 1e-12);
        assert!((p(&[-1.0; 6]) - 0.031_25).abs() < 1e-12);
        // Ranks 1.5, 1.5, 3, 4, 5, 6 with 1.5 negative: 6 of 64 are as far from the middle.
        assert!((p(&[-1.0, 1.0, 2.0, 3.0, 4.0, 5.0]) - 6.0 / 64.0).abs() < 1e-12);
    }

    #[test]
    fn many_pairs_agree_with_the_exact_interval_where_both_are_known() {
        // The published table for n = 40: t = 265 of 820 means are cut on either side.
        assert_eq!(interval_rank(40), 265);
        assert!(
            interval_rank(41).abs_diff(280) <= 1,
            "{}",
            interval_rank(41)
        );
    }

    #[test]
    fn exchanged_units_agree_with_scipys_permutation_test() {
        // scipy.stats.permutation_test((a, b), difference of means): 2 of 252.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]);
        assert!((permutation(&a, &b).unwrap() - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(permutation(&a, &a), Some(1.0));
        assert_eq!(permutation(&a[..4], &b), None);
        assert_eq!(permutation(&[f64::NAN; 5], &b), None);
        // A small difference of large values, each in another order of addition.
        let far = [0.1, 0.2, 0.3, 0.4, 0.5].map(|value| value + 1e6);
        let turned = [0.5, 0.1, 0.4, 0.2, 0.3].map(|value| value + 1e6);
        assert_eq!(permutation(&far, &turned), Some(1.0));
        let many: Vec<f64> = (0..30).map(f64::from).collect();
        let p = permutation(&many, &many.iter().map(|v| v + 0.1).collect::<Vec<_>>());
        assert!(p.unwrap() > 0.9, "{p:?}");
    }
}
