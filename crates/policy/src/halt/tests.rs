//! The rule against loads whose best window is known, and against any load.

mod regret;
mod windows;

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const US: u64 = 1000;
const MS: u64 = 1000 * US;
const COSTS: Costs = Costs {
    caught_ns: 7 * US,
    scheduled_ns: 31 * US,
};

fn budget(percent: u16) -> Budget {
    Budget::new(Settings {
        per_myriad: 100 * percent,
    })
}

fn halt(busy_ns: u64, wait_ns: u64) -> Halt {
    Halt { busy_ns, wait_ns }
}

fn governed(percent: u16, halts: &[Halt]) -> (Governed, ReplayCounts) {
    let mut rule = Governed::new(budget(percent), COSTS);
    let outcome = replay(&mut rule, halts.iter().copied());
    (rule, outcome)
}

/// Latency of the best possible within `percent`.
fn frontier_ns(percent: u64, halts: &[Halt]) -> u64 {
    let mut waits: Vec<u64> = halts.iter().map(|halt| halt.wait_ns).collect();
    waits.sort_unstable();
    let elapsed: u64 = halts.iter().map(|h| h.busy_ns + h.wait_ns).sum();
    let (caught, _) = most_caught(&waits, elapsed * percent / 100);
    let best = ReplayCounts {
        halts: halts.len() as u64,
        caught,
        ..ReplayCounts::default()
    };
    best.mean_latency_ns(COSTS)
}

fn periodic(wait_ns: u64, halts: usize) -> Vec<Halt> {
    std::vec![halt(20 * US, wait_ns); halts]
}

/// Eight messages 60 us apart, then 100 ms of nothing.
fn bursts(count: usize) -> Vec<Halt> {
    let burst = [60, 55, 62, 58, 60, 61, 59, 100_000].map(|us| halt(40 * US, us * US));
    burst.into_iter().cycle().take(8 * count).collect()
}

#[test]
fn an_idle_machine_is_not_polled_for() {
    let idle: Vec<Halt> = std::vec![halt(30 * US, 1000 * MS); 500];
    let (rule, outcome) = governed(1, &idle);
    assert_eq!((rule.window_ns(), outcome.polled_ns), (0, 0));
    assert!(rule.looks() < 10, "{}", rule.looks());
}

#[test]
fn periodic_waits_beyond_the_longest_window_are_not_polled_for() {
    let (_, outcome) = governed(50, &periodic(MS, 20_000));
    assert_eq!((outcome.polled_ns, outcome.caught), (0, 0));
}

#[test]
fn bursts_whose_waits_are_affordable_are_caught() {
    // It takes some looks, for each of which a tick must meet the vCPU.
    let halts = bursts(600);
    let (_, outcome) = governed(1, &halts);
    assert!(outcome.caught * 10 > outcome.halts * 6, "{outcome:?}");
    assert!(outcome.polled_ppm() <= 10_000, "{outcome:?}");
}

#[test]
fn waits_too_dear_for_the_budget_are_polled_for_in_turns() {
    let halts = periodic(90 * US, 200_000);
    let (_, outcome) = governed(5, &halts);
    assert!(outcome.polled_ppm() <= 50_000, "{outcome:?}");
    assert!(outcome.polled_ppm() >= 35_000, "{outcome:?}");
    let best = frontier_ns(5, &halts);
    assert!(outcome.mean_latency_ns(COSTS) * 10 <= best * 11);
}

#[test]
fn waits_that_kvm_s_rule_cannot_catch_are_no_longer_polled_for() {
    for [short_us, long_us] in [[30, 5000], [60, 1000], [60, 300]] {
        let alternating = [halt(30 * US, short_us * US), halt(30 * US, long_us * US)];
        let count = 60_000 * MS / ((60 + short_us + long_us) * US) * 2;
        let halts = alternating.into_iter().cycle().take(count as usize);
        let mut rule = Governed::new(budget(1), COSTS);
        let outcome = replay(&mut rule, halts);
        assert_eq!(outcome.caught, 0, "{short_us}, {long_us}: {outcome:?}");
        assert!(
            outcome.polled_ppm() <= 1_000,
            "{short_us}, {long_us}: {outcome:?}"
        );
    }
}

/// Bursts of eight waits with 100 ms between them, for so long.
fn bursts_during(seconds: usize) -> [Vec<Halt>; 2] {
    let equal = [80, 80, 80, 80, 80, 80, 80, 80, 100_000]
        .map(|us| halt(40 * US, us * US))
        .into_iter()
        .cycle()
        .take(9 * 10 * seconds);
    [equal.collect(), bursts(10 * seconds)]
}

#[test]
fn bursts_are_caught_to_nearly_the_best_possible() {
    // The first seconds are for learning. KVM's default is 28 to 30 % beyond the best, and so is any
    // other fixed limit.
    for (seconds, most) in [(30, 115), (300, 102)] {
        for halts in bursts_during(seconds) {
            let (_, outcome) = governed(1, &halts);
            assert!(outcome.polled_ppm() <= 10_000, "{outcome:?}");
            let (ns, best_ns) = (outcome.mean_latency_ns(COSTS), frontier_ns(1, &halts));
            assert!(
                ns * 100 <= best_ns * most,
                "{seconds} s: {ns} {best_ns} {outcome:?}"
            );
        }
    }
}

#[test]
fn no_fixed_limit_makes_kvm_catch_the_first_of_a_burst() {
    // Why the rule gives KVM two limits in turn: each long wait halves KVM's window, and only a wait that
    // is missed doubles it.
    for halts in bursts_during(30) {
        let short = halts.iter().filter(|halt| halt.wait_ns < MS).count() as u64;
        let long = halts.len() as u64 - short;
        for longest_us in 1..=300 {
            let outcome = replay(&mut GrowShrink::new(longest_us * US), halts.iter().copied());
            assert!(outcome.caught <= short - long, "{longest_us}: {outcome:?}");
        }
    }
}

#[test]
fn a_sleep_loop_of_10_us_stays_within_one_percent() {
    let (_, outcome) = governed(1, &periodic(10 * US, 300_000));
    assert!(outcome.polled_ppm() <= 10_000, "{outcome:?}");
    let mut kernel = GrowShrink::linux();
    let kernels = replay(&mut kernel, periodic(10 * US, 300_000));
    assert!(kernels.polled_ppm() > 300_000, "{kernels:?}");
}

#[test]
fn a_load_that_changes_is_followed_within_its_memory() {
    let mut halts = bursts(100);
    let (rule, before) = governed(10, &halts);
    assert!(rule.window_ns() > 0);
    halts.extend(std::vec![halt(100 * US, 5 * MS); 2000]);
    let (rule, all) = governed(10, &halts);
    assert_eq!(rule.window_ns(), 0);
    let after = ReplayCounts {
        polled_ns: all.polled_ns - before.polled_ns,
        elapsed_ns: all.elapsed_ns - before.elapsed_ns,
        ..ReplayCounts::default()
    };
    assert!(after.polled_ppm() < 10_000, "{after:?}");
}

#[test]
fn where_others_want_the_cpu_nothing_is_polled_for_a_while() {
    let mut rule = budget(10);
    let mut reading = Reading::default();
    let mut step = |rule: &mut Budget, steal_ns: u64, by_ns: u64| {
        reading.now_ns += by_ns;
        reading.run_ns += 20 * MS;
        reading.steal_ns += steal_ns;
        reading.waited[16] += 100;
        rule.look(&reading).window_ns
    };
    step(&mut rule, 0, 0);
    step(&mut rule, 0, 2000 * MS);
    assert!(step(&mut rule, 0, 2000 * MS) > 0);
    assert_eq!(step(&mut rule, 20 * MS, 100 * MS), 0);
    assert_eq!(rule.standing(), Standing::Contended);
    assert_eq!(step(&mut rule, 0, 200 * MS), 0);
    assert!(step(&mut rule, 0, 2000 * MS) > 0);
}

/// The vCPUs of a machine wait for a CPU while it starts, beside the process that starts it.
#[test]
fn a_machine_whose_start_was_contended_is_polled_for_half_a_second_later() {
    let mut rule = budget(10);
    let mut reading = Reading::default();
    let mut standings = Vec::new();
    for look in 0..20 {
        let _ = rule.look(&reading);
        standings.push(rule.standing());
        reading.now_ns += 50 * MS;
        reading.run_ns += 50 * MS;
        reading.steal_ns += if look < 2 { 30 * MS } else { 0 };
        reading.waited[16] += 100;
    }
    assert_eq!(standings[2], Standing::Contended, "{standings:?}");
    let later = &standings[12..];
    assert!(
        later.iter().all(|it| *it != Standing::Contended),
        "{standings:?}"
    );
}

/// A quiet host lets a thread wait for a millisecond or two now and then.
#[test]
fn one_delay_of_the_host_does_not_stop_polling_for_a_machine_in_bursts() {
    let mut rule = budget(10);
    let mut reading = Reading::default();
    let mut step = |rule: &mut Budget, steal_ns: u64| {
        reading.now_ns += 50 * MS;
        reading.run_ns += 700 * US;
        reading.steal_ns += steal_ns;
        reading.waited[16] += 100;
        let _ = rule.look(&reading);
        rule.standing()
    };
    (0..40).for_each(|_| assert_ne!(step(&mut rule, 20 * US), Standing::Contended));
    assert_ne!(step(&mut rule, 2 * MS), Standing::Contended);
    // Every wake-up waits: others want the CPU.
    let waiting = (0..10).map(|_| step(&mut rule, 2 * MS));
    assert!(waiting.into_iter().any(|it| it == Standing::Contended));
}

#[test]
fn what_is_left_of_polled_waits_is_put_together_again() {
    // 1 ms waits, each polled for 200 us in vain: 800 us are left of each.
    let mut counted = Reading {
        now_ns: 1000 * MS,
        missed: 100,
        missed_ns: 100 * 200 * US,
        ..Reading::default()
    };
    counted.waited[bucket_of(800 * US)] = 100;
    counted.caught[bucket_of(30 * US)] = 7;
    let mut waits = Waits::new();
    waits.add(&counted, 1000 * MS);
    assert_eq!(waits.counts()[bucket_of(30 * US)], 7 * 256);
    assert_eq!(waits.counts()[bucket_of(990 * US)], 100 * 256);
    // Short remains of long waits must not look like short waits.
    counted.waited = [0; BUCKETS];
    counted.waited[bucket_of(10 * US)] = 100;
    let mut waits = Waits::new();
    waits.add(&counted, 1000 * MS);
    assert_eq!(waits.counts()[bucket_of(10 * US)], 0);
    assert_eq!(waits.counts()[bucket_of(210 * US)], 100 * 256);
}

#[test]
fn a_curve_names_the_windows_on_both_sides_of_a_budget() {
    let mut counted = Reading {
        now_ns: 1000 * MS,
        ..Reading::default()
    };
    counted.waited[bucket_of(10 * US)] = 100;
    counted.waited[bucket_of(200 * US)] = 1000;
    let mut waits = Waits::new();
    waits.add(&counted, 1000 * MS);
    let curve = Curve::of(&waits);
    // The short ones: 100 times 12 us and 1,000 times 16 us in a second.
    assert_eq!(curve.around(100), (0, 16_384));
    assert_eq!(curve.around(9_900), (262_144, 262_144));
    assert_eq!(curve.around(300), (16_384, 262_144).min(curve.around(300)));
}

#[test]
fn the_kernels_rule_grows_caps_and_shrinks() {
    let mut rule = GrowShrink::linux();
    let windows: Vec<u64> = (0..7)
        .map(|_| {
            rule.halted(150 * US);
            rule.window_ns() / US
        })
        .collect();
    assert_eq!(windows, [10, 20, 40, 80, 160, 160, 160]);
    for expected in [80, 40, 20, 10, 0, 0] {
        rule.halted(MS);
        assert_eq!(rule.window_ns() / US, expected);
    }
    rule.halted(50 * US);
    rule.set_longest_ns(0);
    assert_eq!(rule.window_ns(), 0);
}

#[test]
fn the_best_possible_takes_the_shortest_waits_first() {
    assert_eq!(most_caught(&[1, 2, 3, 10], 6), (3, 6));
    assert_eq!(most_caught(&[1, 2, 3, 10], 5), (2, 3));
    assert_eq!(most_caught(&[], 5), (0, 0));
    assert_eq!(most_caught(&[u64::MAX, u64::MAX], u64::MAX), (1, u64::MAX));
}

fn load() -> impl Strategy<Value = Vec<Halt>> {
    let wait = prop_oneof![
        (1u64..30).prop_map(|us| us * US),
        (1u64..300).prop_map(|us| us * US),
        (1u64..20).prop_map(|ms| ms * MS),
    ];
    let phase = (
        prop::collection::vec((1u64..200, wait), 1..12),
        1usize..4000,
    );
    prop::collection::vec(phase, 1..5).prop_map(|phases| {
        let phases = phases.into_iter().flat_map(|(pattern, count)| {
            let halts: Vec<Halt> = pattern
                .into_iter()
                .map(|(busy_us, wait_ns)| halt(busy_us * US, wait_ns))
                .collect();
            halts.into_iter().cycle().take(count).collect::<Vec<_>>()
        });
        phases.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_budget_is_kept_whatever_the_load(halts in load(), percent in 1u16..60) {
        let (_, outcome) = governed(percent, &halts);
        // Beyond the share: what is polled until a look, a tick late, and one poll of twice the window.
        let allowed = outcome.elapsed_ns * u64::from(percent) / 100;
        let late = 14 * MS + 4 * LONGEST_WINDOW_NS;
        prop_assert!(outcome.polled_ns <= allowed + late, "{outcome:?} {allowed}");
    }

    #[test]
    fn no_rule_beats_the_best_possible(halts in load(), percent in 1u16..60) {
        let (_, outcome) = governed(percent, &halts);
        let mut waits: Vec<u64> = halts.iter().map(|halt| halt.wait_ns).collect();
        waits.sort_unstable();
        let (caught, spent) = most_caught(&waits, outcome.polled_ns);
        prop_assert!(outcome.caught <= caught, "{outcome:?}");
        prop_assert!(spent <= outcome.polled_ns);
    }

    #[test]
    fn any_counters_give_a_window_within_limits(
        readings in prop::collection::vec(any::<([u64; 8], [u64; 8], [u64; 6])>(), 1..20),
        per_myriad in 1u16..10_000,
    ) {
        let mut rule = Budget::new(Settings { per_myriad });
        for (waited, caught, [now_ns, missed, caught_ns, missed_ns, run_ns, steal_ns]) in readings {
            let spread = |few: [u64; 8]| core::array::from_fn(|n| few[n % 8] >> (n % 5 * 12));
            let decision = rule.look(&Reading {
                now_ns, missed, caught_ns, missed_ns, run_ns, steal_ns,
                waited: spread(waited),
                caught: spread(caught),
            });
            prop_assert!(decision.window_ns <= LONGEST_WINDOW_NS);
            prop_assert!(decision.limit_ns == gaps::WIDE_NS || decision.limit_ns == 2 * decision.window_ns);
            prop_assert!(decision.look_after_cpu_ns >= MS);
            prop_assert!(decision.look_after_ns.is_none_or(|ns| ns >= MS));
        }
    }
}
