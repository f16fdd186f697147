//! Simulations over wait patterns as recorded on servers, and properties.

use proptest::prelude::*;
use std::vec::Vec;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Feeds true waits through the rule as a core would meet them: a wait that the
/// spin covers is caught, another one ends by a halt and its way back. Returns
/// the time spent spinning and the waits caught.
fn run(spin: &mut Spin, waits: impl IntoIterator<Item = u64>) -> (u64, u64) {
    let (mut spun_ns, mut caught) = (0, 0);
    for wait_ns in waits {
        let length_ns = u64::from(spin.length_ns());
        if wait_ns < length_ns {
            caught += 1;
            spun_ns += wait_ns;
            spin.record(Wait::Caught(wait_ns));
        } else {
            spun_ns += length_ns;
            let back_ns = u64::from(spin.limits().wake_worth_ns);
            spin.record(Wait::Halted(wait_ns + back_ns));
        }
    }
    (spun_ns, caught)
}

fn repeat(wait_ns: u64, times: usize) -> impl Iterator<Item = u64> {
    core::iter::repeat_n(wait_ns, times)
}

/// Exponential waits of the given mean from a fixed sequence (Poisson arrivals).
fn poisson(mean_ns: f64, times: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..times)
        .map(|_| (-mean_ns * (1.0 - next()).ln()) as u64)
        .collect()
}

#[test]
fn nothing_is_spent_before_anything_is_known() {
    assert_eq!(Spin::default().length_ns(), 0);
}

#[test]
fn short_periodic_waits_are_caught() {
    let mut spin = Spin::default();
    let (_, caught) = run(&mut spin, repeat(6 * US, 640));
    assert_eq!(spin.length_ns(), 8_192);
    assert_eq!(caught, 640 - u64::from(WINDOW));
}

#[test]
fn an_idle_machine_never_spins() {
    let mut spin = Spin::default();
    let (spun_ns, _) = run(&mut spin, repeat(1_000 * MS, 10_000));
    assert_eq!((spun_ns, spin.length_ns()), (0, 0));
}

#[test]
fn a_machine_that_falls_idle_stops_spinning_after_a_few_waits() {
    let mut spin = Spin::default();
    run(&mut spin, repeat(10 * US, 10_000));
    assert_eq!(spin.length_ns(), 16_384);
    let (spun_ns, _) = run(&mut spin, repeat(1_000 * MS, 10));
    assert_eq!(spin.length_ns(), 0);
    assert!(spun_ns < 200 * US, "{spun_ns} ns");
}

#[test]
fn waits_longer_than_a_wake_up_is_worth_are_not_spun_for() {
    for wait_ns in [30 * US, 45 * US, 100 * US, 500 * US, 10 * MS] {
        let mut spin = Spin::default();
        let (spun_ns, _) = run(&mut spin, repeat(wait_ns, 1_000));
        assert_eq!((spun_ns, spin.length_ns()), (0, 0), "{wait_ns} ns");
    }
}

#[test]
fn the_talks_bursts_do_not_spin() {
    // 100 requests/s for 60 s, a break of 60 s, seven times.
    let mut spin = Spin::default();
    for _ in 0..7 {
        let (spun_ns, _) = run(&mut spin, repeat(10 * MS, 6_000).chain([60_000 * MS]));
        assert_eq!(spun_ns, 0);
    }
}

#[test]
fn dense_bursts_are_learnt_and_forgotten() {
    // A request and its acknowledgement 3 us apart, pauses of 50 ms between
    // groups of 500.
    let mut spin = Spin::default();
    let group = || repeat(3 * US, 500).chain([50 * MS]);
    run(&mut spin, group());
    let (spun_ns, caught) = run(&mut spin, group());
    assert!(caught > 400, "{caught}");
    assert!(spun_ns < 501 * 4_096);
    run(&mut spin, repeat(50 * MS, 10));
    assert_eq!(spin.length_ns(), 0);
}

#[test]
fn rare_short_waits_among_long_ones_do_not_pay() {
    let mut spin = Spin::default();
    let pattern = || [10 * US].into_iter().chain(repeat(5 * MS, 9));
    let (spun_ns, _) = run(&mut spin, (0..1_000).flat_map(|_| pattern()));
    assert_eq!(spun_ns, 0);
}

#[test]
fn poisson_arrivals_spin_by_their_rate() {
    let mut spin = Spin::default();
    let (spun_ns, caught) = run(&mut spin, poisson(5e3, 20_000));
    assert!(spin.length_ns() >= 8_192, "{}", spin.length_ns());
    assert!(caught > 15_000, "{caught}");
    assert!(spun_ns < 20_000 * u64::from(DEFAULT_WAKE_WORTH_NS));
    let (spun_ns, _) = run(&mut spin, poisson(1e6, 20_000));
    assert!(spun_ns < 100 * MS, "half a percent of 20 s: {spun_ns}");
}

#[test]
fn zero_as_limit_switches_spinning_off() {
    let mut spin = Spin::new(Limits {
        max_ns: 0,
        ..Limits::default()
    });
    let (spun_ns, _) = run(&mut spin, repeat(US, 1_000));
    assert_eq!((spun_ns, spin.length_ns()), (0, 0));
}

#[test]
fn the_longest_choice_is_a_millisecond() {
    let mut spin = Spin::new(Limits {
        max_ns: u32::MAX,
        wake_worth_ns: u32::MAX,
    });
    for _ in 0..1_000 {
        spin.record(Wait::Caught(900 * US));
    }
    assert_eq!(spin.length_ns(), 1 << 20);
}

/// A wait somewhere between nothing and eighteen minutes, all magnitudes alike.
fn any_wait() -> impl Strategy<Value = u64> {
    (0..40u32, any::<u64>()).prop_map(|(bits, raw)| raw & ((1 << bits) - 1))
}

proptest! {
    #[test]
    fn the_length_stays_within_its_limits(
        max_ns in any::<u32>(),
        wake_worth_ns in any::<u32>(),
        waits in prop::collection::vec(any_wait(), 0..1_000),
    ) {
        let mut spin = Spin::new(Limits { max_ns, wake_worth_ns });
        for wait_ns in waits {
            spin.record(Wait::Caught(wait_ns));
            spin.record(Wait::Halted(wait_ns));
            prop_assert!(spin.length_ns() <= max_ns);
            // The length chosen may reach up to the power of two above the worth.
            prop_assert!(u64::from(spin.length_ns()) <= 2 * u64::from(wake_worth_ns) + 1024);
        }
    }

    #[test]
    fn whatever_came_before_idleness_ends_it(
        waits in prop::collection::vec(any_wait(), 0..1_000),
    ) {
        let mut spin = Spin::default();
        run(&mut spin, waits);
        run(&mut spin, repeat(LONG_NS, 10));
        prop_assert_eq!(spin.length_ns(), 0);
    }

    #[test]
    fn a_length_chosen_was_worth_more_than_it_cost(
        counts in prop::array::uniform12(0..200u16),
        wake_worth_ns in 0..100_000u32,
    ) {
        let limits = Limits { max_ns: 1 << 20, wake_worth_ns };
        let worth = |length: i64| -> i64 {
            (0..BUCKETS).map(|b| {
                let bound = 1024i64 << b;
                let each = if bound <= length {
                    i64::from(wake_worth_ns) - bound * 3 / 4
                } else {
                    -length
                };
                i64::from(counts[b]) * each
            }).sum()
        };
        let best = i64::from(best_length(&counts, limits));
        prop_assert!(best == 0 || worth(best) > 0);
        for bucket in 0..BUCKETS - 1 {
            prop_assert!(worth(1024 << bucket) <= worth(best).max(0));
        }
    }
}
