//! What the gate chooses, without programs.

use super::super::gate_words::InMemory;
use super::*;
use crate::bpf::RunTime;

mod budget;

const BUDGET: f64 = 0.012;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const KERNEL_TICK_NS: u64 = 4 * MS;
const TICK_NS: u64 = 1_000;
/// When a slice of [`shared`]'s began.
const SLICE_NS: u64 = 5_000;
const PERIOD: u64 = TICK_NS * PERIOD_TICKS;

fn shared(stretches: &[Stretch], now_ns: u64) -> f64 {
    sample(stretches, now_ns, TICK_NS, slice(SLICE_NS)).share()
}

fn slice(from_ns: u64) -> Slice {
    Slice {
        number: 77,
        from_ns,
        weight: WHOLE,
    }
}

fn at(from_ns: u64, open_ticks: u64) -> Stretch {
    Stretch::new(from_ns, open_ticks)
}

fn gate() -> Gate {
    Gate::new(Limits::default(), KERNEL_TICK_NS, 0)
}

fn measured(ns: u64, runs: u64, elapsed_ns: u64) -> Measured {
    let spent = RunTime { ns, runs };
    Measured {
        spent,
        acts: spent,
        elapsed_ns,
    }
}

/// What `runs` a second cost: 50 ns each, 120 ns where they count.
fn second_of(runs: u64, open: u64) -> Measured {
    let ns = runs * 50 + runs * 70 * open / PERIOD_TICKS;
    measured(ns, runs, SECOND)
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
    // 24 ms of 2,000,000 calls a second of 120 ns, and what each call costs beside: 35 % of a core
    // make a short burst, and the rest pays for it and for attaching and detaching.
    let mut gate = gate();
    gate.switched(2 * MS);
    let runs = 48_000;
    let burst = measured(runs * 120, runs, BURST_NS);
    let Next::Rest {
        length_ns,
        burst_ns,
    } = gate.next_after_burst(burst)
    else {
        panic!("it is counted in slices");
    };
    assert_eq!(burst_ns, SHORTEST_BURST_NS);
    let part = SHORTEST_BURST_NS as f64 / BURST_NS as f64;
    let cost = runs as f64 * (120.0 + DISPATCH_NS + METER_NS) * part + 2e6;
    let paid = length_ns as f64 * gate.ledger.budget();
    assert!((paid / cost - 1.0).abs() < 0.01, "{paid} {cost}");
    // One that the observer ended late costs no more in a time.
    let late = measured(2 * runs * 120, 2 * runs, 2 * BURST_NS);
    let again = gate.next_after_burst(late);
    assert!(matches!(again, Next::Rest { burst_ns, .. } if burst_ns == SHORTEST_BURST_NS));
    let cheap = measured(runs * 12, runs / 10, BURST_NS);
    let longer = gate.next_after_burst(cheap);
    assert!(matches!(longer, Next::Rest { burst_ns, .. } if burst_ns == BURST_NS));
}

#[test]
fn a_storm_that_calms_down_in_a_burst_is_sampled_at_once() {
    let mut gate = gate();
    gate.rhythm = Mode::Burst { until_ns: 0 };
    // 90,000 calls a second are not expensive when they find the gate closed, but 420 ns each
    // are beyond the budget when they count.
    let burst = |runs: u64| measured(runs * 420, runs, BURST_NS);
    let calm = burst(90_000 * BURST_NS / SECOND);
    let Next::Slices { open_ticks } = gate.next_after_burst(calm) else {
        panic!("it rests");
    };
    assert_eq!(
        open_ticks,
        affordable(gate.ledger.budget(), PERIOD_TICKS, calm)
    );
    assert!(open_ticks < PERIOD_TICKS / 2, "{open_ticks}");
    // Near the limit it stays as it is, on either side.
    let near = burst(120_000 * BURST_NS / SECOND);
    assert!(matches!(gate.next_after_burst(near), Next::Rest { .. }));
    gate.rhythm = Mode::Slices;
    assert!(matches!(gate.next_after_burst(near), Next::Slices { .. }));
}

/// There may be as many runs as while the gate was closed.
#[test]
fn what_programs_cost_is_measured_soon_after_the_gate_has_opened() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    assert!(gate.is_due(4 * KERNEL_TICK_NS, 16 * MS));
    let quiet = |ms| measured(ms * MS / 1_000, 3 * ms, ms * MS);
    gate.choose(&mut map, Some(quiet(17)), 17 * MS);
    assert!(!gate.is_due(100 * MS, 117 * MS));
    // One look was too short: the next one is not put off.
    gate.choose(&mut map, Some(quiet(1)), 118 * MS);
    assert!(gate.is_due(17 * MS, 135 * MS));
}

#[test]
fn a_storm_that_has_gone_on_begins_its_window_with_a_burst() {
    let storm = second_of(2_000_000, PERIOD_TICKS);
    let ends = |before, limits: Limits| {
        let mut gate = Gate::new(limits, KERNEL_TICK_NS, 0);
        gate.open(&mut InMemory::default(), before, 0);
        gate.is_due(FIRST_BURST_NS, FIRST_BURST_NS) && gate.rhythm != Mode::Slices
    };
    assert!(ends(Some(storm), Limits::default()));
    assert!(!ends(
        Some(second_of(60_000, PERIOD_TICKS)),
        Limits::default()
    ));
    assert!(!ends(None, Limits::default()));
    let every = Limits {
        counting: Counting::Every,
        ..Limits::default()
    };
    assert!(!ends(Some(storm), every));
    let left_out = Limits {
        first_burst: FirstBurst::LeftOut,
        ..Limits::default()
    };
    assert!(!ends(Some(storm), left_out));
}

#[test]
fn looks_that_are_shorter_than_a_period_are_judged_together() {
    const TICK_NS: u64 = 10_000_000; // HZ=100
    let look = |ms: u64| Measured {
        elapsed_ns: ms * MS,
        ..second_of(ms, PERIOD_TICKS)
    };
    let mut gate = gate();
    assert_eq!(gate.judged_by(look(25), TICK_NS), None);
    assert_eq!(gate.judged_by(look(25), TICK_NS), Some(look(50)));
    gate.stretch(0, 8);
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
    assert_eq!(gate.judged_by(look(250), TICK_NS), Some(look(500)));
    // What another opening cost says nothing of this one.
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
    gate.stretch(0, 4);
    assert_eq!(gate.judged_by(look(250), TICK_NS), None);
    // A storm waits for no period.
    let storm = measured(0, 200_000, 50 * MS);
    assert_eq!(gate.judged_by(storm, TICK_NS), Some(look(250).and(storm)));
}

#[test]
fn the_meter_rests_when_a_whole_period_of_this_opening_was_measured() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    // 120,000 calls a second are too expensive to count all, but not to make.
    let open = |ticks: u64, ms: u64| {
        let whole = second_of(120_000, ticks).spent;
        measured(whole.ns * ms / 1_000, whole.runs * ms / 1_000, ms * MS)
    };
    gate.choose(&mut map, Some(open(PERIOD_TICKS, 25)), 25 * MS);
    let ticks = gate.open_ticks();
    assert!(ticks < PERIOD_TICKS, "{ticks}");
    // What was measured is the cost of counting everything.
    assert_eq!(gate.narrowed(), Narrowed::No);
    gate.choose(&mut map, Some(open(ticks, 50)), 75 * MS);
    assert_eq!(gate.narrowed(), Narrowed::No);
    gate.choose(&mut map, Some(open(ticks, 100)), 175 * MS);
    assert_eq!(gate.narrowed(), Narrowed::Yes);
    assert!(gate.open_ticks().abs_diff(ticks) <= 1);
}

#[test]
fn time_at_rest_is_not_counted() {
    let stretches = [at(0, PERIOD_TICKS), at(1_000, 0), at(9_000, PERIOD_TICKS)];
    assert_eq!(shared(&stretches, 10_000), 0.2);
}

#[test]
fn a_machine_that_came_in_a_rest_has_what_was_counted_since() {
    let stretches = [at(0, PERIOD_TICKS), at(1_000, 0)];
    let share_since = |since_ns| shared(&later(&stretches, since_ns), 10_000);
    assert_eq!(share_since(0), 0.1);
    assert_eq!(share_since(5_000), 0.0);
    let mut gate = gate();
    gate.rhythm = Mode::Rest { until_ns: 9_000 };
    assert_eq!(gate.next_look(1_000), SHORTEST_PAUSE);
    gate.end_rest();
    assert_eq!(gate.rhythm, Mode::Rest { until_ns: 0 });
}

#[test]
fn an_overdue_change_does_not_make_the_observer_spin() {
    let mut gate = gate();
    gate.rhythm = Mode::Burst { until_ns: 1_000 };
    assert_eq!(gate.next_look(5_000), SHORTEST_PAUSE);
    gate.stretches = vec![at(0, 0)];
    gate.rhythm = Mode::Rest { until_ns: u64::MAX };
    assert_eq!(gate.next_look(5_000), SHORTEST_PAUSE);
    // A burst that is refused is not tried again at once.
    gate.put_off(5_000);
    assert_eq!(gate.next_look(5_000), REST_LOOK);
    assert!(matches!(gate.rhythm, Mode::Rest { until_ns } if until_ns > LONGEST_REST_NS));
}

#[test]
fn open_time_is_the_sum_of_the_slices() {
    let open = |from_ns, to_ns, open_ticks| {
        let whole = (to_ns - from_ns) as f64;
        (shared(&[at(from_ns, open_ticks)], to_ns) * whole).round() as u64
    };
    assert_eq!(open(0, 10 * PERIOD, PERIOD_TICKS), 10 * PERIOD);
    assert_eq!(open(777, 777 + 10 * PERIOD, 4), 40_000);
    assert_eq!(open(5_000, 7_000, 4), 2_000);
    assert_eq!(open(5_000, 14_000, 4), 4_000);
    assert_eq!(open(0, 5_000, 4), 0);
}

#[test]
fn a_slice_that_has_not_begun_is_not_counted() {
    let none = Slice {
        number: 0,
        ..slice(1_000)
    };
    let stretches = [at(0, PERIOD_TICKS), at(1_000, 4)];
    assert_eq!(sample(&stretches, 5_000, TICK_NS, none).share(), 0.2);
    let one = slice(1_000);
    assert_eq!(sample(&stretches, 5_000, TICK_NS, one).share(), 1.0);
}

#[test]
fn stretches_count_with_their_own_openness_and_slices() {
    let stretches = [at(5_000, PERIOD_TICKS), at(5_000 + PERIOD, 8)];
    let share = shared(&stretches, 5_000 + 3 * PERIOD);
    assert!((share - (1.0 + 2.0 * 0.25) / 3.0).abs() < 1e-9, "{share}");
    assert_eq!(shared(&stretches[..1], 5_000), 1.0);
    // Its slices began elsewhere in the periods than those of the last stretch.
    let elsewhere = Stretch {
        slice: Some(slice(5_000 + 20 * TICK_NS)),
        ..at(5_000, 8)
    };
    assert_eq!(shared(&[elsewhere, at(13_000, 0)], 21_000), 0.0);
    assert_eq!(shared(&[at(5_000, 8), at(13_000, 0)], 21_000), 0.5);
}

#[test]
fn a_storm_that_shows_has_a_burst_unless_it_is_left_out() {
    for (first_burst, expected) in [
        (FirstBurst::Counted, Programs::Stay),
        (FirstBurst::LeftOut, Programs::Detach),
    ] {
        let limits = Limits {
            first_burst,
            ..Limits::default()
        };
        let mut map = InMemory::default();
        let mut gate = Gate::new(limits, KERNEL_TICK_NS, 0);
        gate.open(&mut map, None, 0);
        let storm = measured(20_000_000 * 130, 20_000_000, SECOND);
        let shown = gate.choose(&mut map, Some(storm), BURST_NS / 2);
        assert_eq!(shown, expected);
    }
}

#[test]
fn what_a_run_takes_is_known_where_all_time_was_counted() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    assert_eq!(gate.run_ns(), None);
    // A storm shows, and has a burst; then its programs are detached.
    let runs = 20_000_000;
    let burst = |each_ns| measured(runs * each_ns, runs, SECOND);
    let shown = gate.choose(&mut map, Some(burst(130)), BURST_NS / 2);
    assert_eq!(shown, Programs::Stay);
    assert_eq!(
        gate.choose(&mut map, Some(burst(120)), BURST_NS),
        Programs::Detach
    );
    assert_eq!(gate.run_ns(), Some(120.0 + DISPATCH_NS + METER_NS));
    gate.open_burst(&mut map, 2 * BURST_NS);
    gate.choose(&mut map, Some(burst(240)), 3 * BURST_NS);
    assert_eq!(gate.run_ns(), Some(200.0 + DISPATCH_NS + METER_NS));
    // Programs that count for no thread say nothing of it.
    let others = RunTime {
        ns: 0,
        runs: 1 << 40,
    };
    let diluted = Measured {
        spent: others,
        ..burst(200)
    };
    gate.open_burst(&mut map, 4 * BURST_NS);
    gate.choose(&mut map, Some(diluted), 5 * BURST_NS);
    assert_eq!(gate.run_ns(), Some(200.0 + DISPATCH_NS + METER_NS));
}

#[test]
fn each_opening_is_a_slice_of_its_own_whose_end_is_kept() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    let storm = || Some(second_of(2_000_000, PERIOD_TICKS));
    let first = map.words.burst;
    gate.choose(&mut map, storm(), 10);
    // How dense it is, a slice says that begins in it.
    assert_eq!(map.words.open_ticks, ALL);
    let shown = map.words.burst;
    assert_ne!(first, shown);
    let until_ns = 10 + FIRST_BURST_NS;
    assert_eq!(gate.rhythm, Mode::Burst { until_ns });
    gate.choose(&mut map, storm(), until_ns);
    assert_eq!(map.words.open_ticks, CLOSED);
    gate.open_burst(&mut map, until_ns + 20);
    let second = map.words.burst;
    assert_ne!(shown, second);
    let last_ns = until_ns + BURST_NS + 30;
    gate.choose(&mut map, storm(), last_ns);
    let ends: Vec<_> = map.ends.iter().map(|end| (end.slice, end.ns)).collect();
    assert_eq!(ends, [(first, 10), (shown, until_ns), (second, last_ns)]);
    let slices = gate.slices(&map, SECOND);
    assert_eq!(slices.until_ns(first), Some(10));
    assert_eq!(slices.until_ns(second), Some(last_ns));
}

#[test]
fn nothing_is_counted_while_a_sampled_window_is_read() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    // All was counted: so it goes on.
    gate.freeze(&mut map, SECOND);
    assert_eq!(map.words.open_ticks, ALL);
    assert_eq!(gate.sample(&map, 0, SECOND).share(), 1.0);
    gate.open_for(&mut map, 8, SECOND);
    let tick_ns = KERNEL_TICK_NS;
    map.words.slice = 77;
    map.words.slice_ns = SECOND + tick_ns;
    // In the slice, 2 ticks after its begin.
    let frozen_ns = SECOND + 3 * tick_ns;
    gate.freeze(&mut map, frozen_ns);
    assert_eq!(map.words.open_ticks, CLOSED);
    let slices = gate.slices(&map, frozen_ns + SECOND);
    assert_eq!(slices.until_ns(77), Some(frozen_ns));
    let earlier = slices.until_ns(76).unwrap();
    assert_eq!(earlier, SECOND + 9 * tick_ns - PERIOD_TICKS * tick_ns);
    let share = gate.sample(&map, SECOND, SECOND + 4 * tick_ns).share();
    assert!((share - 0.5).abs() < 1e-9, "{share}");
    gate.begin(&mut map, frozen_ns + SECOND);
    assert_eq!(map.words.open_ticks, 8);
    assert_eq!(gate.open_ticks(), 8);
}

#[test]
fn a_burst_stands_for_half_of_the_rests_beside_it() {
    let mut map = InMemory::default();
    let mut gate = gate();
    gate.open(&mut map, None, 0);
    let storm = || Some(second_of(2_000_000, PERIOD_TICKS));
    let ended = |map: &InMemory| map.ends.last().unwrap().weight;
    // What showed the storm stands for itself, and the burst after it for half of one rest.
    gate.choose(&mut map, storm(), 20 * MS);
    assert_eq!(ended(&map), WHOLE);
    let mut now_ns = 20 * MS;
    let mut before_ns = 0;
    for burst_ns in [FIRST_BURST_NS, BURST_NS, BURST_NS, BURST_NS] {
        now_ns += before_ns;
        if burst_ns == BURST_NS {
            gate.open_burst(&mut map, now_ns);
        }
        now_ns += burst_ns;
        gate.choose(&mut map, storm(), now_ns);
        let Mode::Rest { until_ns } = gate.rhythm else {
            panic!("{:?}", gate.rhythm);
        };
        let half_ns = (until_ns - now_ns) / 2;
        let stands_for = weighted::of_time(burst_ns, burst_ns + before_ns + half_ns);
        assert_eq!(ended(&map), stands_for);
        // The next one has the other half, and what the rest is longer than was planned.
        let late_ns = 5 * MS;
        before_ns = until_ns - now_ns - half_ns + late_ns;
        now_ns = until_ns + late_ns - before_ns;
    }
    // Bursts and what was counted whole stand for the window until the last rest.
    let window_ns = now_ns + before_ns;
    let sample = gate.sample(&map, 0, window_ns);
    let stand_for = sample.all() * (window_ns - before_ns) as f64 / window_ns as f64;
    assert!((stand_for - 1.0).abs() < 1e-3, "{stand_for}");
}
