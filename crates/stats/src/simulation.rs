//! The promise of each interval and test, by simulation on distributions whose truth is
//! known: 93 to 97 of 100 intervals hold it, and at most 5 of 100 tests raise an alarm.

use crate::interval::median_interval;
use crate::{
    SplitMix64, count_interval, mean_interval, permutation, quantile_interval, ratio_interval,
    share_interval, signed_rank, sorted,
};

const DRAWS: usize = 3_000;

/// A value between 0 and 1, neither of them.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.below(1 << 30) as f64 + 0.5) / (1u64 << 30) as f64
}

/// Normal with mean 0 and variance 1 (Box and Muller 1958).
fn normal(random: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * unit(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}

fn exponential(random: &mut SplitMix64) -> f64 {
    -unit(random).ln()
}

/// Of `DRAWS` experiments, the percentage in which `holds`.
fn percent(holds: impl FnMut(&mut SplitMix64) -> bool) -> f64 {
    let mut random = SplitMix64::new(20);
    let mut holds = holds;
    let count = (0..DRAWS).filter(|_| holds(&mut random)).count();
    count as f64 * 100.0 / DRAWS as f64
}

/// Four standard errors of a share of 95 % are 1.6 points here.
fn covers(what: &str, percent: f64) {
    println!("{what}: {percent:.1} % of intervals hold the truth");
    assert!((93.0..=97.2).contains(&percent), "{what}: {percent} %");
}

fn series(random: &mut SplitMix64, n: usize, draw: fn(&mut SplitMix64) -> f64) -> Vec<f64> {
    (0..n).map(|_| draw(random)).collect()
}

#[test]
fn ninety_five_percent_of_intervals_hold_the_median() {
    let ln2 = std::f64::consts::LN_2;
    for n in [6, 7, 8, 10, 15, 25, 40] {
        for (name, draw, median) in [
            ("normal", normal as fn(&mut SplitMix64) -> f64, 0.0),
            ("exponential", exponential, ln2),
            ("uniform", unit, 0.5),
        ] {
            let share = percent(|random| {
                let samples = sorted(&series(random, n, draw)).unwrap();
                let interval = median_interval(&samples).unwrap();
                interval.low <= median && median <= interval.high
            });
            covers(&format!("median, {name}, n {n}"), share);
        }
    }
}

#[test]
fn ninety_five_percent_of_intervals_hold_means_and_their_ratio() {
    for n in [2, 3, 5, 10, 30] {
        let share = percent(|random| {
            let samples = series(random, n, normal);
            let interval = mean_interval(&samples).unwrap();
            interval.low <= 0.0 && 0.0 <= interval.high
        });
        covers(&format!("mean, normal, n {n}"), share);
    }
    for (over, under, spread) in [(3, 3, 0.1), (5, 5, 0.1), (5, 20, 0.05), (10, 10, 0.3)] {
        let share = percent(|random| {
            let mut draw = |n: usize, mean: f64| -> Vec<f64> {
                (0..n)
                    .map(|_| mean * (1.0 + spread * normal(random)))
                    .collect()
            };
            let interval = ratio_interval(&draw(over, 1.2), &draw(under, 1.0)).unwrap();
            interval.low <= 1.2 && 1.2 <= interval.high
        });
        covers(
            &format!("ratio, {over} over {under}, spread {spread}"),
            share,
        );
    }
}

#[test]
fn ninety_five_percent_of_intervals_hold_the_shift_of_pairs() {
    for n in [6, 7, 8, 10, 20, 45] {
        let share = percent(|random| {
            let pairs: Vec<f64> = (0..n).map(|_| 0.05 + 0.2 * normal(random)).collect();
            let interval = signed_rank(&pairs).unwrap().interval.unwrap();
            interval.low <= 0.05 && 0.05 <= interval.high
        });
        covers(&format!("shift of pairs, n {n}"), share);
    }
}

/// Counts and quantiles have few values, so their intervals cover at least 95 %.
#[test]
fn intervals_of_counts_shares_and_quantiles_hold_at_least_what_they_say() {
    for mean in [0.5, 3.0, 20.0] {
        let share = percent(|random| {
            let (mut time, mut count) = (0.0, 0);
            loop {
                time += exponential(random);
                if time > mean {
                    break;
                }
                count += 1;
            }
            let interval = count_interval(count).unwrap();
            interval.low <= mean && mean <= interval.high
        });
        println!("count around {mean}: {share:.1} %");
        assert!(share >= 94.0, "count around {mean}: {share} %");
    }
    let share = percent(|random| {
        let found = (0..200).filter(|_| unit(random) < 0.1).count() as u64;
        let interval = share_interval(found, 200).unwrap();
        interval.low <= 0.1 && 0.1 <= interval.high
    });
    covers("share of 0.1, n 200", share);
    let share = percent(|random| {
        let samples = sorted(&series(random, 100, unit)).unwrap();
        let interval = quantile_interval(&samples, 0.9).unwrap();
        interval.low <= 0.9 && 0.9 <= interval.high
    });
    assert!(share >= 94.0, "90th percentile of 100: {share} %");
}

#[test]
fn tests_raise_a_false_alarm_in_at_most_five_of_a_hundred() {
    for n in [6, 10, 24] {
        let paired =
            percent(|random| signed_rank(&series(random, n, normal)).unwrap().p.unwrap() < 0.05);
        println!("signed ranks, n {n}: {paired:.1} % false alarms");
        assert!(paired <= 6.0, "n {n}: {paired} %");
    }
    let exchanged = percent(|random| {
        let (a, b) = (
            series(random, 5, exponential),
            series(random, 5, exponential),
        );
        permutation(&a, &b).unwrap() < 0.05
    });
    println!("permutation, 5 against 5: {exchanged:.1} % false alarms");
    assert!(exchanged <= 6.0, "{exchanged} %");
}
