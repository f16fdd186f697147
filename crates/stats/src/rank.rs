//! Is one series really larger than another? Mann and Whitney's test.

use statrs::distribution::{ContinuousCDF, Normal};

/// Up to this many samples on each side, without ties, the p-value is exact.
const EXACT_MAX: usize = 20;

/// The result of [`mann_whitney`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// U of the first series: pairs in which it is larger, ties as one half.
    pub u: f64,
    /// Two-sided p-value: how often chance alone does at least this.
    pub p: f64,
    /// Effect size from -1 (first always smaller) over 0 to 1 (always larger).
    pub cliffs_delta: f64,
}

/// Compares two independent series by ranks, without a word on their
/// distributions (Mann and Whitney 1947). The p-value is exact for small series
/// without ties, else by the normal approximation with corrections for ties and
/// continuity. An empty series cannot differ: p is 1. Samples must not be NaN.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> RankTest {
    let pairs = (a.len() * b.len()) as f64;
    if pairs == 0.0 {
        return RankTest {
            u: 0.0,
            p: 1.0,
            cliffs_delta: 0.0,
        };
    }
    let ranks = Ranks::of(a, b);
    let first = a.len() as f64;
    let u = ranks.first_sum - first * (first + 1.0) / 2.0;
    let small = a.len().max(b.len()) <= EXACT_MAX;
    let p = if small && ranks.ties == 0.0 {
        exact_p(u, a.len(), b.len())
    } else {
        normal_p(u, first, b.len() as f64, ranks.ties)
    };
    RankTest {
        u,
        p,
        cliffs_delta: 2.0 * u / pairs - 1.0,
    }
}

/// Ranks of both series together, equal samples sharing their mean rank.
struct Ranks {
    /// Sum of the first series' ranks.
    first_sum: f64,
    /// Sum of t^3 - t over groups of t equal samples.
    ties: f64,
}

impl Ranks {
    fn of(a: &[f64], b: &[f64]) -> Self {
        let first = a.iter().map(|&sample| (sample, true));
        let mut all: Vec<(f64, bool)> = first.chain(b.iter().map(|&s| (s, false))).collect();
        all.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
        let (mut first_sum, mut ties, mut before) = (0.0, 0.0, 0.0);
        // `==` makes 0.0 and -0.0, which total_cmp sets side by side, one group.
        for group in all.chunk_by(|x, y| x.0 == y.0) {
            let size = group.len() as f64;
            let of_first = group.iter().filter(|(_, is_first)| *is_first).count();
            first_sum += of_first as f64 * (before + (size + 1.0) / 2.0);
            ties += size.powi(3) - size;
            before += size;
        }
        Self { first_sum, ties }
    }
}

/// Twice the share of all arrangements whose U is at least as extreme.
fn exact_p(u: f64, m: usize, n: usize) -> f64 {
    let counts = arrangements(m, n);
    let all: f64 = counts.iter().sum();
    let extreme = u.max((m * n) as f64 - u) as usize;
    let tail: f64 = counts[extreme..].iter().sum();
    (2.0 * tail / all).min(1.0)
}

/// How many arrangements of `m` among `m + n` samples have each U: the
/// coefficients of the Gaussian binomial, multiplied out factor by factor.
fn arrangements(m: usize, n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; m * n + 1];
    counts[0] = 1.0;
    for i in 1..=m {
        // Times 1 - q^(n+i), from the top so that each term is used once ...
        for u in (n + i..counts.len()).rev() {
            counts[u] -= counts[u - n - i];
        }
        // ... divided by 1 - q^i.
        for u in i..counts.len() {
            counts[u] += counts[u - i];
        }
    }
    counts
}

fn normal_p(u: f64, m: f64, n: f64, ties: f64) -> f64 {
    let all = m + n;
    let variance = m * n / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = (u - m * n / 2.0).abs() - 0.5;
    let z = distance / variance.sqrt();
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn small_series_without_ties_agree_with_scipys_exact_test() {
        // scipy.stats.mannwhitneyu(x, y, method="exact")
        let x = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6, 7.7, 8.8];
        let y = [2.0, 3.0, 9.0, 10.0, 11.0, 12.5];
        let test = mann_whitney(&x, &y);
        assert_eq!(test.u, 13.0);
        assert!(close(test.p, 0.181_152_181_152_181_18), "{test:?}");
        let test = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(close(test.p, 0.1), "{test:?}");
        assert_eq!((test.u, test.cliffs_delta), (0.0, -1.0));
    }

    #[test]
    fn tied_series_agree_with_scipys_approximation() {
        // scipy.stats.mannwhitneyu(a, b, method="asymptotic")
        let a = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 5.0, 9.0];
        let b = [3.0, 3.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 8.0, 9.0, 10.0, 10.0];
        let test = mann_whitney(&a, &b);
        assert_eq!(test.u, 22.0);
        assert!(close(test.p, 0.012_635_179_440_724_13), "{test:?}");
        assert!(close(test.cliffs_delta, 22.0 / 60.0 - 1.0));
    }

    #[test]
    fn long_series_agree_with_scipys_approximation() {
        let x: Vec<f64> = (0..40).map(|i| f64::from(i).sin() * 10.0).collect();
        let y: Vec<f64> = (0..35)
            .map(|i| (f64::from(i) + 0.5).sin() * 10.0 + 3.0)
            .collect();
        let test = mann_whitney(&x, &y);
        assert_eq!(test.u, 510.0);
        assert!(close(test.p, 0.044_170_607_153_652_54), "{test:?}");
    }

    #[test]
    fn equal_and_empty_series_do_not_differ() {
        let same = mann_whitney(&[1.0; 3], &[1.0; 3]);
        assert_eq!((same.u, same.p, same.cliffs_delta), (4.5, 1.0, 0.0));
        assert_eq!(mann_whitney(&[], &[1.0]).p, 1.0);
        assert_eq!(mann_whitney(&[0.0], &[-0.0]).cliffs_delta, 0.0);
    }

    #[test]
    fn arrangements_add_up_to_the_binomial_coefficient() {
        assert_eq!(arrangements(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(arrangements(20, 20).iter().sum::<f64>(), 137_846_528_820.0);
    }

    proptest! {
        #[test]
        fn u_is_the_count_of_larger_pairs(
            a in prop::collection::vec(0..20i32, 1..30),
            b in prop::collection::vec(0..20i32, 1..30),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
            let u: f64 = pairs.map(|(x, y)| if x > y { 1.0 } else if x == y { 0.5 } else { 0.0 }).sum();
            let test = mann_whitney(&a, &b);
            prop_assert!(close(test.u, u));
            prop_assert!((0.0..=1.0).contains(&test.p));
        }

        #[test]
        fn the_other_way_round_mirrors_the_result(
            a in prop::collection::vec(-1e3..1e3f64, 1..30),
            b in prop::collection::vec(-1e3..1e3f64, 1..30),
        ) {
            let (there, back) = (mann_whitney(&a, &b), mann_whitney(&b, &a));
            prop_assert!(close(there.p, back.p));
            prop_assert!(close(there.cliffs_delta, -back.cliffs_delta));
        }
    }
}
