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
    let (mut spun_ns, mut caught, mut now_ns) = (0, 0, 0);
    for wait_ns in waits {
        let length_ns = u64::from(spin.length_ns());
        if wait_ns < length_ns {
            caught += 1;
            spun_ns += wait_ns;
            now_ns += wait_ns;
            spin.record(Wait::Caught(wait_ns), now_ns);
        } else {
            spun_ns += length_ns;
            let back_ns = u64::from(spin.limits().wake_worth_ns);
            now_ns += wait_ns + back_ns;
            spin.record(Wait::Halted(wait_ns + back_ns), now_ns);
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
fn bursts_of_message_passing_2015_do_not_spin() {
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
fn rare_short_waits_among_long_ones_do_not_pay_and_are_caught_on_the_budget() {
    let pattern = || [10 * US].into_iter().chain(repeat(5 * MS, 9));
    let waits = || (0..1_000).flat_map(|_| pattern());
    let mut spin = Spin::new(Limits {
        budget_pct: 0,
        ..Limits::default()
    });
    let (spun_ns, caught) = run(&mut spin, waits());
    assert_eq!((spun_ns, caught), (0, 0));
    let (spun_ns, caught) = run(&mut Spin::default(), waits());
    assert!(caught > 900, "{caught}");
    let passed_ns: u64 = waits().sum();
    assert!(spun_ns < passed_ns / 100, "{spun_ns} of {passed_ns} ns");
}

#[test]
fn a_budget_is_what_spinning_costs_at_most() {
    // In its bucket such a wait is taken to cost 197 us; 20 us come back.
    for (pct, spins) in [(1, false), (50, false), (90, true)] {
        let mut spin = Spin::new(Limits {
            max_ns: 1 << 20,
            budget_pct: pct,
            ..Limits::default()
        });
        let (_, caught) = run(&mut spin, repeat(200 * US, 1_000));
        assert_eq!(caught > 0, spins, "{pct} %");
    }
}

#[test]
fn a_way_back_that_takes_long_is_worth_a_longer_spin() {
    let mut spin = Spin::default();
    run(&mut spin, repeat(100 * US, 1_000));
    assert_eq!(spin.length_ns(), 0);
    (0..100).for_each(|_| spin.note_way_back(150 * US));
    assert!((149_000..=150_000).contains(&spin.worth_ns), "{spin:?}");
    (0..128).for_each(|turn| spin.record(Wait::Halted(250 * US), turn * 250 * US));
    assert_eq!(spin.length_ns(), 131_072);
    (0..100).for_each(|_| spin.note_way_back(2 * US));
    (0..256).for_each(|turn| spin.record(Wait::Caught(100 * US), (128 + turn) * 250 * US));
    assert_eq!(spin.length_ns(), 0);
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
        budget_pct: 100,
        wake_worth_ns: u32::MAX,
    });
    for turn in 0..1_000 {
        spin.record(Wait::Caught(900 * US), turn * 900 * US);
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
        budget_pct in any::<u8>(),
        wake_worth_ns in any::<u32>(),
        waits in prop::collection::vec((any_wait(), any::<u64>()), 0..1_000),
    ) {
        let mut spin = Spin::new(Limits { max_ns, budget_pct, wake_worth_ns });
        for (wait_ns, now_ns) in waits {
            spin.note_way_back(now_ns);
            spin.record(Wait::Caught(wait_ns), now_ns);
            spin.record(Wait::Halted(wait_ns), now_ns);
            prop_assert!(spin.length_ns() <= max_ns);
            prop_assert!(spin.length_ns() <= 1 << 20);
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
    fn a_length_chosen_is_within_the_budget_and_none_that_is_catches_more(
        counts in prop::array::uniform12(0..200u16),
        wake_worth_ns in 0..100_000u32,
        budget_pct in 0..=100u8,
        elapsed_ns in 0..10_000 * MS,
    ) {
        let limits = Limits { max_ns: 1 << 20, budget_pct, wake_worth_ns };
        let caught = |length: i64| -> u32 {
            let below = (0..BUCKETS - 1).filter(|b| 1024i64 << b <= length);
            below.map(|b| u32::from(counts[b])).sum()
        };
        let cost = |length: i64| -> i64 {
            (0..BUCKETS).map(|b| {
                let bound = 1024i64 << b;
                let each = if b < BUCKETS - 1 && bound <= length {
                    bound - bound / 4 - i64::from(wake_worth_ns)
                } else {
                    length
                };
                i64::from(counts[b]) * each
            }).sum()
        };
        let allowance = allowance_ns(elapsed_ns, budget_pct);
        let best = i64::from(best_length(&counts, wake_worth_ns, limits, elapsed_ns));
        prop_assert!(best == 0 || cost(best) <= allowance);
        for bucket in 0..BUCKETS - 1 {
            let length = 1024 << bucket;
            prop_assert!(cost(length) > allowance || caught(length) <= caught(best));
        }
    }
}
