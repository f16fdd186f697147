//! What the gate chooses, without programs.

use super::*;
use crate::bpf::RunTime;

const BUDGET: f64 = 0.012;
const SECOND: u64 = 1_000_000_000;
const RHYTHM: Rhythm = Rhythm {
    tick_ns: 1_000,
    anchor_ns: 5_000,
};
const PERIOD: u64 = 1_000 * PERIOD_TICKS;

/// What `runs` a second cost: 50 ns each, 120 ns where they count.
fn second_of(runs: u64, open: u64) -> Measured {
    let ns = runs * 50 + runs * 70 * open / PERIOD_TICKS;
    Measured {
        spent: RunTime { ns, runs },
        elapsed_ns: SECOND,
    }
}

#[test]
fn few_events_are_all_counted() {
    let few = |open| affordable(BUDGET, open, second_of(40_000, open));
    assert_eq!(few(PERIOD_TICKS), PERIOD_TICKS);
    assert_eq!(few(4), PERIOD_TICKS);
}

#[test]
fn a_storm_is_noticed_before_a_period_is_over() {
    assert_eq!(ticks_to_judge(PERIOD_TICKS), 4);
    assert_eq!(ticks_to_judge(PERIOD_TICKS / 2), PERIOD_TICKS);
}

#[test]
fn a_storm_is_watched_for_what_the_budget_pays() {
    let open = affordable(BUDGET, PERIOD_TICKS, second_of(200_000, PERIOD_TICKS));
    assert!((6..=30).contains(&open), "{open}");
    let again = affordable(BUDGET, open, second_of(200_000, open));
    assert!(again.abs_diff(open) <= 1, "{open} {again}");
    let worst = second_of(1_000_000, PERIOD_TICKS);
    assert_eq!(affordable(BUDGET, PERIOD_TICKS, worst), FEWEST_TICKS);
}

#[test]
fn a_storm_whose_calls_alone_are_dear_is_counted_in_bursts() {
    assert!(calls_share(second_of(60_000, PERIOD_TICKS)) < CLOSED_SHARE);
    let storm = second_of(2_000_000, PERIOD_TICKS);
    assert!(calls_share(storm) > CLOSED_SHARE);
    // 24 ms of 2,000,000 calls a second of 120 ns, and what each call costs beside.
    let burst = Measured {
        spent: RunTime {
            ns: 48_000 * 120,
            runs: 48_000,
        },
        elapsed_ns: BURST_NS,
    };
    let rest = rest_ns(BUDGET, burst, 2_000_000);
    let cost = 48_000.0 * (120.0 + DISPATCH_NS + METER_NS) + 2e6;
    let share = cost / (rest + BURST_NS) as f64;
    assert!((share / BUDGET - 1.0).abs() < 0.01, "{share}");
    assert_eq!(rest_ns(1e-9, burst, 0), LONGEST_REST_NS);
}

#[test]
fn a_storm_that_calms_down_in_a_burst_is_sampled_at_once() {
    let mut gate = Gate::new(Limits::default());
    gate.rhythm = Mode::Burst { until_ns: 0 };
    // 90,000 calls a second are not dear when they find the gate closed, but 420 ns each
    // are beyond the budget when they count.
    let burst = |runs: u64| Measured {
        spent: RunTime {
            ns: runs * 420,
            runs,
        },
        elapsed_ns: BURST_NS,
    };
    let calm = burst(90_000 * BURST_NS / SECOND);
    let Next::Slices { open_ticks } = gate.next_after_burst(calm, BUDGET) else {
        panic!("it rests");
    };
    assert_eq!(open_ticks, affordable(BUDGET, PERIOD_TICKS, calm));
    assert!(open_ticks < PERIOD_TICKS / 2, "{open_ticks}");
    // Near the limit it stays as it is, on either side.
    let near = burst(120_000 * BURST_NS / SECOND);
    assert!(matches!(
        gate.next_after_burst(near, BUDGET),
        Next::Rest { .. }
    ));
    gate.rhythm = Mode::Slices;
    assert!(matches!(
        gate.next_after_burst(near, BUDGET),
        Next::Slices { .. }
    ));
}

#[test]
fn looks_that_are_shorter_than_a_period_are_judged_together() {
    const TICK_NS: u64 = 10_000_000; // HZ=100
    let look = |ms: u64| Measured {
        elapsed_ns: ms * 1_000_000,
        ..second_of(ms, PERIOD_TICKS)
    };
    let mut gate = Gate::new(Limits::default());
    assert_eq!(gate.judged_by(look(25), TICK_NS), None);
    assert_eq!(gate.judged_by(look(25), TICK_NS), Some(look(50)));
    gate.stretch(0, 8);
    assert_eq!(gate.narrowed(), Narrowed::Yes);
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
    // The meter stays on until then.
    assert_eq!(gate.narrowed(), Narrowed::No);
    assert_eq!(gate.judged_by(look(250), TICK_NS), Some(look(500)));
    assert_eq!(gate.narrowed(), Narrowed::Yes);
    // What another opening cost says nothing of this one.
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
    gate.stretch(0, 4);
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
}

#[test]
fn time_at_rest_is_not_counted() {
    let at = |from_ns, open_ticks| Stretch {
        from_ns,
        open_ticks,
    };
    let stretches = [at(0, PERIOD_TICKS), at(1_000, 0), at(9_000, PERIOD_TICKS)];
    assert_eq!(share(&stretches, 10_000, RHYTHM), 0.2);
}

#[test]
fn a_machine_that_came_in_a_rest_has_what_was_counted_since() {
    let at = |from_ns, open_ticks| Stretch {
        from_ns,
        open_ticks,
    };
    let stretches = [at(0, PERIOD_TICKS), at(1_000, 0)];
    let share_since = |since_ns| share(&later(&stretches, since_ns), 10_000, RHYTHM);
    assert_eq!(share_since(0), 0.1);
    assert_eq!(share_since(5_000), 0.0);
    let mut gate = Gate::new(Limits::default());
    gate.rhythm = Mode::Rest { until_ns: 9_000 };
    assert_eq!(
        gate.next_change(1_000),
        Some(SHORTEST_PAUSE.max(Duration::from_nanos(8_000)))
    );
    gate.end_rest();
    assert_eq!(gate.rhythm, Mode::Rest { until_ns: 0 });
}

#[test]
fn an_overdue_change_does_not_make_the_observer_spin() {
    let mut gate = Gate::new(Limits::default());
    gate.rhythm = Mode::Burst { until_ns: 1_000 };
    assert_eq!(gate.next_change(5_000), Some(SHORTEST_PAUSE));
    gate.stretches = vec![Stretch {
        from_ns: 0,
        open_ticks: 0,
    }];
    gate.rhythm = Mode::Rest { until_ns: u64::MAX };
    assert_eq!(gate.next_change(5_000), Some(SHORTEST_PAUSE));
    // A burst that is refused is not tried again at once.
    gate.put_off(5_000);
    assert_eq!(
        gate.next_change(5_000),
        Some(Duration::from_nanos(LONGEST_REST_NS))
    );
}

#[test]
fn open_time_is_the_sum_of_the_slices() {
    let open = |from_ns, to_ns, open_ticks| {
        let stretch = Stretch {
            from_ns,
            open_ticks,
        };
        let whole = (to_ns - from_ns) as f64;
        (share(&[stretch], to_ns, RHYTHM) * whole).round() as u64
    };
    assert_eq!(open(0, 10 * PERIOD, PERIOD_TICKS), 10 * PERIOD);
    assert_eq!(open(777, 777 + 10 * PERIOD, 4), 40_000);
    assert_eq!(open(5_000, 7_000, 4), 2_000);
    assert_eq!(open(5_000, 14_000, 4), 4_000);
    assert_eq!(open(0, 5_000, 4), 0);
}

#[test]
fn the_programs_get_what_the_observing_thread_leaves() {
    assert_eq!(left_for_programs(0.016, 0.004), 0.012);
    assert_eq!(left_for_programs(0.016, 0.0), 0.016);
    assert_eq!(left_for_programs(0.016, 0.5), 0.004);
}

#[test]
fn stretches_count_with_their_own_openness() {
    let at = |from_ns, open_ticks| Stretch {
        from_ns,
        open_ticks,
    };
    let stretches = [at(5_000, PERIOD_TICKS), at(5_000 + PERIOD, 8)];
    let shared = share(&stretches, 5_000 + 3 * PERIOD, RHYTHM);
    assert!((shared - (1.0 + 2.0 * 0.25) / 3.0).abs() < 1e-9, "{shared}");
    assert_eq!(share(&stretches[..1], 5_000, RHYTHM), 1.0);
}

#[test]
fn what_a_run_takes_is_known_of_windows_that_were_counted_in_bursts_alone() {
    let mut gate = Gate::new(Limits::default());
    let burst = |ns, runs| lately(RunTime::default(), RunTime { ns, runs });
    assert_eq!(gate.run_in_bursts_ns(), None);
    gate.in_bursts = burst(120_000, 1_000);
    // Everything was counted.
    assert_eq!(gate.run_in_bursts_ns(), None);
    gate.stretch(1_000, 0);
    let expected = Some(120.0 + DISPATCH_NS + METER_NS);
    assert_eq!(gate.run_in_bursts_ns(), expected);
    gate.stretch(2_000, PERIOD_TICKS);
    assert_eq!(gate.run_in_bursts_ns(), expected);
    gate.in_bursts = lately(
        gate.in_bursts,
        RunTime {
            ns: 240_000,
            runs: 1_000,
        },
    );
    assert_eq!(
        gate.run_in_bursts_ns(),
        Some(200.0 + DISPATCH_NS + METER_NS)
    );
    // Slices end without the programs' knowing when a thread leaves its CPU.
    gate.stretch(3_000, 8);
    assert_eq!(gate.run_in_bursts_ns(), None);
    gate.begin(4_000);
    assert_eq!(gate.run_in_bursts_ns(), None);
}
