//! Merging equals seeing everything at once.

use proptest::prelude::*;

use super::*;

fn of(samples: &[u64]) -> Durations {
    let mut durations = Durations::default();
    samples.iter().for_each(|sample| durations.add(*sample));
    durations
}

proptest! {
    #[test]
    fn merged_durations_are_those_of_one_long_observation(
        first in prop::collection::vec(0_u64..1 << 34, 0..80),
        second in prop::collection::vec(0_u64..1 << 34, 0..80),
    ) {
        let mut merged = of(&first);
        merged.merge(&of(&second));
        let all = [first, second].concat();
        prop_assert_eq!(&merged, &of(&all));
        prop_assert_eq!(merged.contradiction(), None);
        prop_assert_eq!(merged.count(), all.len() as u64);
    }

    #[test]
    fn a_quantile_is_bounded_by_twice_the_sample(
        samples in prop::collection::vec(1_u64..1 << 28, 1..200),
        quantile in 0.0_f64..=1.0,
    ) {
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        let rank = ((quantile * sorted.len() as f64).ceil() as usize).max(1);
        let exact = sorted[rank - 1];
        let bound = of(&samples).quantile_bound_ns(quantile).unwrap();
        prop_assert!(exact <= bound && bound < exact * 2, "{exact} within {bound}");
    }
}

#[test]
fn the_fastest_thirty_make_the_ideal_case() {
    let samples: Vec<u64> = (1..=100).rev().collect();
    // (1 + ... + 30) / 30 = 15.5
    assert_eq!(of(&samples).mean_of_fastest_ns(), Some(15));
    assert_eq!(of(&samples).mean_ns(), Some(50));
    assert_eq!(of(&[]).mean_of_fastest_ns(), None);
    assert_eq!(of(&[]).quantile_bound_ns(0.99), None);
}

#[test]
fn samples_longer_than_every_bucket_are_in_the_last() {
    let durations = of(&[u64::MAX / 2]);
    assert_eq!(durations.histogram.len(), BUCKETS);
    assert_eq!(durations.quantile_bound_ns(0.5), Some(u64::MAX / 2));
}
