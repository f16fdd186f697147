//! What was added to the published rule, and what can be set.

use super::*;

/// Reads at CIF 64, one of eight delivered; at the beginning of a cycle.
fn deep() -> Loop {
    let mut steady = Loop::settled(Settings::default(), 64, 5 * US);
    assert_eq!(steady.coalescer.ratio().skip_up(), 8);
    while steady.turn() == Decision::Hold {}
    steady
}

#[test]
fn a_hold_ends_at_its_deadline_if_nothing_else_completes() {
    let mut steady = deep();
    assert_eq!(steady.coalescer.deadline(), None);
    assert_eq!(steady.turn(), Decision::Hold);
    let first_ns = steady.now_ns;
    assert_eq!(steady.turn(), Decision::Hold);
    let deadline_ns = steady.coalescer.deadline().unwrap();
    assert_eq!(deadline_ns, first_ns + MS, "the first one's");
    let coalescer = &mut steady.coalescer;
    assert_eq!(coalescer.expired(deadline_ns - 1), Decision::Hold);
    assert_eq!(coalescer.expired(deadline_ns), Decision::Deliver);
    assert_eq!(coalescer.expired(deadline_ns), Decision::Hold, "only once");
    assert_eq!((coalescer.deadline(), coalescer.held()), (None, 0));
    assert_eq!(coalescer.counters().expiries, 1);
    assert_eq!(coalescer.counters().longest_hold_ns, MS);
    assert_eq!(coalescer.counters().hold_time[slot_of_hold(MS)], 1);
}

#[test]
fn a_completion_after_the_deadline_releases_what_is_held() {
    let mut steady = deep();
    assert_eq!(steady.turn(), Decision::Hold);
    steady.gap_ns = MS;
    assert_eq!(steady.turn(), Decision::Deliver);
    let counters = steady.coalescer.counters();
    assert_eq!(counters.released[Cause::Deadline as usize], 1);
}

#[test]
fn holds_are_no_longer_than_completions_come_in_the_longest_hold() {
    // At 2,500 a second, two completions come in 1 ms: one of three, not of eight.
    let steady = Loop::settled(Settings::default(), 64, 400 * US);
    assert_eq!(steady.coalescer.ratio().skip_up(), 3);
    assert_eq!(steady.coalescer.counters().expiries, 0);
    assert_eq!(
        steady.coalescer.counters().released[Cause::Deadline as usize],
        0
    );
    // And with none in it, coalescing is off.
    let short = settings(|p| p.longest_hold_ns = 399 * US);
    let steady = Loop::settled(short, 64, 400 * US);
    assert_eq!(steady.coalescer.ratio(), Ratio::ONE);
}

#[test]
fn urgent_requests_are_delivered_in_the_middle_of_a_hold() {
    for kind in [
        RequestKind::Flush,
        RequestKind::WriteThrough,
        RequestKind::Control,
    ] {
        let mut steady = deep();
        assert_eq!(steady.turn(), Decision::Hold);
        steady.coalescer.submitted(kind);
        let now_ns = steady.now_ns + US;
        assert_eq!(
            steady.coalescer.completed(now_ns, kind, LONG_NS),
            Decision::Deliver
        );
        assert_eq!(steady.coalescer.held(), 0, "{kind:?}");
        let counters = steady.coalescer.counters();
        assert_eq!(counters.released[Cause::Urgent as usize], 1);
    }
}

#[test]
fn a_lone_read_beside_deep_writes_is_urgent() {
    let mut steady = Loop::new(Settings::default(), 0, 5 * US);
    steady.kind = RequestKind::Write;
    steady.submit(64);
    steady.delivered(500_000);
    assert_eq!(steady.coalescer.ratio().skip_up(), 8);
    for reads in 1..=4 {
        while steady.turn() == Decision::Hold {}
        (0..reads).for_each(|_| steady.coalescer.submitted(RequestKind::Read));
        let decision = steady
            .coalescer
            .completed(steady.now_ns, RequestKind::Read, LONG_NS);
        assert_eq!(decision == Decision::Deliver, reads < 4, "{reads} reads");
        for _ in 1..reads {
            let _ = steady
                .coalescer
                .completed(steady.now_ns, RequestKind::Read, LONG_NS);
        }
    }
}

#[test]
fn a_lone_write_is_urgent_only_while_its_driver_flushes() {
    let mut steady = deep();
    let write = |steady: &mut Loop| {
        while steady.turn() == Decision::Hold {}
        steady.coalescer.submitted(RequestKind::Write);
        steady
            .coalescer
            .completed(steady.now_ns, RequestKind::Write, LONG_NS)
    };
    assert_eq!(write(&mut steady), Decision::Hold);
    steady.coalescer.submitted(RequestKind::Flush);
    let flushed = steady
        .coalescer
        .completed(steady.now_ns, RequestKind::Flush, LONG_NS);
    assert_eq!(flushed, Decision::Deliver);
    assert_eq!(write(&mut steady), Decision::Deliver);
    // 200 ms on, in the next epoch, it still is; two epochs on it is not.
    steady.delivered(40_000);
    assert_eq!(write(&mut steady), Decision::Deliver);
    steady.delivered(40_000);
    assert_eq!(write(&mut steady), Decision::Hold);
}

#[test]
fn a_flush_on_another_queue_makes_a_lone_write_urgent() {
    let mut steady = deep();
    steady.coalescer.flushed_elsewhere();
    steady.coalescer.submitted(RequestKind::Write);
    let decision = steady
        .coalescer
        .completed(steady.now_ns, RequestKind::Write, LONG_NS);
    assert_eq!(decision, Decision::Deliver);
}

#[test]
fn a_burst_that_ends_drains_without_waiting_for_the_deadline() {
    let mut steady = deep();
    let mut since_delivery: i32 = 0;
    for left in (1..=64).rev() {
        let decision = steady
            .coalescer
            .completed(steady.now_ns, RequestKind::Read, LONG_NS);
        since_delivery = if decision == Decision::Deliver {
            0
        } else {
            since_delivery + 1
        };
        assert!(
            left >= 4 || decision == Decision::Deliver,
            "{left} in flight"
        );
        let table = ((left + since_delivery - 1) / 8).max(1);
        assert!(
            since_delivery <= table,
            "{left} in flight, {since_delivery} held"
        );
    }
    assert_eq!(steady.coalescer.held(), 0);
    let counters = steady.coalescer.counters();
    assert!(counters.released[Cause::Stale as usize] > 0);
    assert!(counters.delivered_by[Cause::Shallow as usize] >= 3);
}

#[test]
fn a_pause_after_a_burst_leaves_no_ratio_behind() {
    let mut steady = deep();
    steady.now_ns += 200 * MS;
    assert_eq!(steady.turn(), Decision::Deliver);
    assert_eq!(steady.coalescer.ratio(), Ratio::ONE);
}

#[test]
fn trickling_completions_are_never_held() {
    let mut steady = Loop::new(Settings::default(), 32, 3 * MS);
    assert_eq!(steady.delivered(1_000), 1_000);
}

#[test]
fn depth_one_is_never_held_however_fast() {
    for gap_ns in [1, US, MS] {
        let mut steady = Loop::new(Settings::default(), 1, gap_ns);
        assert_eq!(steady.delivered(10_000), 10_000);
    }
}

/// A queue of depth 64 whose completions come in batches of this many, 80 us apart.
fn reaped_in_batches_of(batch: usize) -> Coalescer {
    let mut coalescer = Coalescer::new(Settings::default());
    (0..64).for_each(|_| coalescer.submitted(RequestKind::Read));
    let (mut now_ns, mut unanswered) = (0, 0);
    for _ in 0..20_000 {
        now_ns += 80 * US;
        let mut wanted = Decision::Hold;
        unanswered += batch;
        for _ in 0..batch {
            wanted = wanted.or(coalescer.completed(now_ns, RequestKind::Read, LONG_NS));
        }
        if wanted == Decision::Deliver {
            coalescer.caught_up(now_ns);
            (0..unanswered).for_each(|_| coalescer.submitted(RequestKind::Read));
            unanswered = 0;
        }
    }
    coalescer
}

#[test]
fn reaping_in_batches_does_not_make_a_load_look_lighter() {
    assert_eq!(reaped_in_batches_of(4).ratio().skip_up(), 8);
}

/// Batches as large as the ratio would make them share an interrupt already: a hold would
/// cost latency and save nothing.
#[test]
fn completions_that_share_an_interrupt_are_not_held() {
    for batch in [8, 16] {
        let coalescer = reaped_in_batches_of(batch);
        assert_eq!(coalescer.counters().held, 0, "batches of {batch}");
        assert_eq!(coalescer.ratio().skip_up(), 1);
    }
}

/// A guest whose threads each need a while to take a completion in and to send
/// the next command: after a delivery of many the queue fills up slowly.
#[test]
fn a_driver_that_answers_slowly_does_not_make_a_load_look_lighter() {
    for cif in [16, 24, 32, 64, 128] {
        let mut slow = Slow::new(cif);
        // A longer while costs commands a second, which ends the holds.
        slow.answer_ns = US / 2;
        slow.run(cif * 600);
        let before = *slow.coalescer.counters();
        slow.run(cif * 100);
        let after = slow.coalescer.counters();
        let delivered = after.delivered - before.delivered;
        assert_eq!(
            (slow.coalescer.ratio().skip_up(), delivered),
            (cif / 8, 800),
            "CIF {cif}"
        );
    }
}

/// A driver that looks at the ring by itself answers what is held.
#[test]
fn a_driver_that_sees_held_completions_does_not_make_a_load_look_deeper() {
    let mut polling = Loop::new(short_epochs(), 32, 5 * US);
    for _ in 0..16_000 {
        polling.now_ns += polling.gap_ns;
        let _ = polling
            .coalescer
            .completed(polling.now_ns, RequestKind::Read, LONG_NS);
        polling.submit(1);
    }
    assert_eq!(polling.coalescer.ratio().permille(), 250);
}

/// And one that is slower than the disk keeps the queue as deep as it can.
#[test]
fn a_driver_slower_than_the_disk_gets_the_ratio_of_what_the_disk_has() {
    let mut slow = Slow::new(64);
    slow.answer_ns = slow.latency_ns / 32;
    slow.run(8_000);
    let skip = slow.coalescer.ratio().skip_up();
    assert!((4..=6).contains(&skip), "1/{skip}");
}

#[test]
fn off_delivers_everything_and_still_counts() {
    let mut steady = Loop::new(Settings::with_mode(Mode::Off), 64, 5 * US);
    assert_eq!(steady.delivered(100_000), 100_000);
    let counters = steady.coalescer.counters();
    assert_eq!((counters.completions, counters.held), (100_000, 0));
    assert_eq!(steady.coalescer.in_flight(), 64);
}

#[test]
fn a_fixed_ratio_holds_whoever_waits_but_not_beyond_the_deadline() {
    let fixed = Mode::Fixed(Ratio::new(1, 8).unwrap());
    let mut coalescer = Coalescer::new(Settings::with_mode(fixed));
    coalescer.submitted(RequestKind::Flush);
    assert_eq!(
        coalescer.completed(5, RequestKind::Flush, LONG_NS),
        Decision::Hold
    );
    assert_eq!(coalescer.deadline(), Some(5 + MS));
    assert_eq!(coalescer.expired(5 + MS), Decision::Deliver);
    let mut steady = Loop::new(Settings::with_mode(fixed), 32, 5 * US);
    assert_eq!(steady.delivered(80_000), 10_000);
}

#[test]
fn settings_change_while_requests_are_held_and_in_flight() {
    let mut steady = deep();
    assert_eq!(steady.turn(), Decision::Hold);
    let in_flight = steady.coalescer.in_flight();
    let off = Settings::with_mode(Mode::Off);
    let now_ns = steady.now_ns;
    assert_eq!(steady.coalescer.configure(now_ns, off), Decision::Deliver);
    assert_eq!(steady.coalescer.configure(now_ns, off), Decision::Hold);
    assert_eq!(*steady.coalescer.settings(), off);
    assert_eq!(steady.coalescer.in_flight(), in_flight);
    assert_eq!(steady.turn(), Decision::Deliver);
}

#[test]
fn a_reset_forgets_requests_and_keeps_counters() {
    let mut steady = deep();
    assert_eq!(steady.turn(), Decision::Hold);
    let before = *steady.coalescer.counters();
    steady.coalescer.reset(steady.now_ns);
    let coalescer = &steady.coalescer;
    assert_eq!((coalescer.in_flight(), coalescer.held()), (0, 0));
    assert_eq!(coalescer.ratio(), Ratio::ONE);
    assert_eq!(coalescer.counters().completions, before.completions);
    assert_eq!(coalescer.counters().released[Cause::Changed as usize], 1);
}

#[test]
fn a_completion_that_was_never_submitted_is_counted_and_delivered() {
    let mut coalescer = Coalescer::new(Settings::default());
    assert_eq!(
        coalescer.completed(1, RequestKind::Read, LONG_NS),
        Decision::Deliver
    );
    assert_eq!(coalescer.counters().unmatched, 1);
    assert_eq!(coalescer.in_flight(), 0);
}

#[test]
fn every_completion_is_in_the_distribution_of_r_once_its_epoch_has_ended() {
    let mut steady = deep();
    steady.now_ns += 200 * MS;
    let _ = steady.turn();
    let counters = steady.coalescer.counters();
    let sum: u64 = counters.ratio_completions.iter().sum();
    assert_eq!(sum, counters.completions - 1);
    assert!(counters.ratio_completions[steady_slot()] > 0);
    assert_eq!(counters.ratio_epochs.iter().sum::<u64>(), counters.epochs);
}

fn steady_slot() -> usize {
    Ratio::new(1, 8).unwrap().slot()
}

#[test]
fn hold_times_go_to_the_slot_of_their_power_of_two() {
    for (hold_ns, slot) in [
        (0, 0),
        (1, 0),
        (2, 1),
        (1023, 9),
        (1024, 10),
        (u64::MAX, 31),
    ] {
        assert_eq!(slot_of_hold(hold_ns), slot);
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let refused = |change: fn(&mut Parameters)| {
        let mut parameters = Parameters::default();
        change(&mut parameters);
        Settings::new(parameters).unwrap_err()
    };
    assert_eq!(
        refused(|p| p.cif_threshold = 1),
        SettingsError::CifThreshold(1)
    );
    assert_eq!(refused(|p| p.epoch_ns = 0), SettingsError::Epoch(0));
    assert_eq!(
        refused(|p| p.longest_hold_ns = 0),
        SettingsError::LongestHold(0)
    );
    assert_eq!(Ratio::new(0, 4), Err(SettingsError::Ratio(0, 4)));
    assert_eq!(Ratio::new(5, 4), Err(SettingsError::Ratio(5, 4)));
    assert!(Ratio::new(1, 32_769).is_err());
}
