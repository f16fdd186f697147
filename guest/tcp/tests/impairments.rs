//! Our TCP against itself on a simulated wire, under the impairments that the
//! stack is compared with Linux under. Time is simulated, so the bounds are exact.

mod wire;

use tare_tcp::Config;
use wire::{Impairment, World, transfer};

const MIB: usize = 1 << 20;

const MS: u64 = 1000;
const MBIT: u64 = 1_000_000;

/// An impairment with the bounds that a transfer of 1 MiB has to keep: time in
/// milliseconds and retransmitted segments in 1,000.
struct Row {
    name: &'static str,
    impairment: Impairment,
    time_ms: u64,
    again: u64,
}

fn rows() -> Vec<Row> {
    let clean = Impairment {
        delay_us: 100,
        rate: 1000 * MBIT,
        queue: 1000,
        ..Impairment::default()
    };
    let row = |name, impairment, time_ms, again| Row {
        name,
        impairment,
        time_ms,
        again,
    };
    let with = |change: fn(&mut Impairment)| {
        let mut impairment = clean;
        change(&mut impairment);
        impairment
    };
    vec![
        row("clean", clean, 30, 0),
        row("loss 0.1 %", with(|i| i.lost = 100), 60, 10),
        row("loss 1 %", with(|i| i.lost = 1000), 300, 30),
        row("loss 5 %", with(|i| i.lost = 5000), 1500, 90),
        row(
            "reorder 5 %",
            with(|i| (i.reordered, i.reorder_delay_us) = (5000, 2 * MS)),
            120,
            117,
        ),
        row("duplicate 5 %", with(|i| i.duplicated = 5000), 40, 10),
        row("corrupt 1 %", with(|i| i.damaged = 1000), 300, 30),
        row("RTT 20 ms", with(|i| i.delay_us = 10 * MS), 400, 0),
        row("RTT 100 ms", with(|i| i.delay_us = 50 * MS), 1300, 0),
        row(
            "RTT 20 ms, jitter",
            with(|i| (i.delay_us, i.jitter_us) = (8 * MS, 4 * MS)),
            700,
            60,
        ),
        row(
            "10 Mbit, queue 50",
            with(|i| (i.rate, i.queue) = (10 * MBIT, 50)),
            1200,
            50,
        ),
        row(
            "10 Mbit, queue 8",
            with(|i| (i.rate, i.queue) = (10 * MBIT, 8)),
            1300,
            150,
        ),
        row(
            "RTT 20 ms, loss 1 %",
            with(|i| (i.delay_us, i.lost) = (10 * MS, 1000)),
            1200,
            30,
        ),
        row(
            "RTT 100 ms, loss 1 %",
            with(|i| (i.delay_us, i.lost) = (50 * MS, 1000)),
            5000,
            30,
        ),
        row(
            "all together, 10 Mbit, RTT 40 ms",
            with(|i| {
                *i = Impairment {
                    lost: 500,
                    duplicated: 500,
                    damaged: 500,
                    reordered: 1000,
                    reorder_delay_us: 2 * MS,
                    delay_us: 18 * MS,
                    jitter_us: 2 * MS,
                    rate: 10 * MBIT,
                    queue: 50,
                    ..Impairment::default()
                };
            }),
            4000,
            50,
        ),
    ]
}

#[test]
fn transfers_complete_under_every_impairment() {
    println!(
        "{:34} {:>9} {:>10} {:>8} {:>5}",
        "impairment", "ms", "Mbit/s", "again %", "RTOs"
    );
    let mut failed = Vec::new();
    for row in rows() {
        let mut times = Vec::new();
        let (mut sent, mut again, mut timeouts) = (0, 0, 0);
        for seed in 1..=5 {
            let mut world = World::new(row.impairment, Config::default(), seed);
            let outcome = transfer(&mut world, MIB);
            times.push(outcome.micros);
            sent += outcome.sent;
            again += outcome.retransmitted;
            timeouts += outcome.timeouts;
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        let share = again * 1000 / sent;
        println!(
            "{:34} {:>9.1} {:>10.2} {:>8.1} {:>5}",
            row.name,
            median as f64 / 1000.0,
            MIB as f64 * 8.0 / median as f64,
            share as f64 / 10.0,
            timeouts
        );
        if median > row.time_ms * 1000 || share > row.again {
            failed.push(row.name);
        }
    }
    assert!(failed.is_empty(), "beyond their bounds: {failed:?}");
}

#[test]
fn a_path_with_a_small_mtu_is_found_with_and_without_icmp() {
    for reports_mtu in [true, false] {
        let impairment = Impairment {
            mtu: 1280,
            reports_mtu,
            delay_us: 1000,
            ..Impairment::default()
        };
        let mut world = World::new(impairment, Config::default(), 3);
        let outcome = transfer(&mut world, MIB);
        let limit = if reports_mtu { 1_000_000 } else { 5_000_000 };
        assert!(outcome.micros < limit, "reports {reports_mtu}: {outcome:?}");
    }
}

#[test]
fn twenty_mebibytes_arrive_right_with_everything_at_once() {
    let everything = Impairment {
        lost: 1000,
        duplicated: 1000,
        damaged: 500,
        reordered: 2000,
        reorder_delay_us: 3 * MS,
        delay_us: 5 * MS,
        jitter_us: 3 * MS,
        rate: 200 * MBIT,
        queue: 100,
        ..Impairment::default()
    };
    transfer(&mut World::new(everything, Config::default(), 5), 20 * MIB);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let impairment = Impairment {
        lost: 2000,
        jitter_us: MS,
        ..Impairment::default()
    };
    let run = |seed| transfer(&mut World::new(impairment, Config::default(), seed), MIB).micros;
    assert_eq!(run(7), run(7));
}
