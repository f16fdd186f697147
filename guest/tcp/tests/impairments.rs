//! Our TCP against itself on a simulated wire, under the impairments that the
//! stack is compared with Linux under. Time is simulated, so the bounds are exact.

mod wire;

use tare_tcp::Config;
use tare_tcp::wire::COMPARED;
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

/// Bounds of each of [`COMPARED`], in its order.
const BOUNDS: [(u64, u64); 15] = [
    (30, 0),
    (60, 10),
    (300, 30),
    (1500, 90),
    (120, 117),
    (40, 10),
    (300, 30),
    (400, 0),
    (1300, 0),
    (700, 60),
    (1200, 50),
    (1300, 150),
    (1200, 30),
    (5000, 30),
    (4000, 50),
];

fn rows() -> impl Iterator<Item = Row> {
    let rows = COMPARED.into_iter().zip(BOUNDS);
    rows.map(|(compared, (time_ms, again))| Row {
        name: compared.name,
        impairment: compared.impairment,
        time_ms,
        again,
    })
}

/// A link that cuts long segments.
fn cutting() -> Config {
    Config {
        together: 16 << 10,
        ..Config::default()
    }
}

#[test]
fn transfers_complete_under_every_impairment() {
    complete(Config::default());
}

/// What the link cuts is lost, sent again and acknowledged in parts.
#[test]
fn transfers_of_long_segments_complete_under_every_impairment() {
    complete(cutting());
}

fn complete(config: Config) {
    println!(
        "{:34} {:>9} {:>10} {:>8} {:>5}",
        "impairment", "ms", "Mbit/s", "again %", "RTOs"
    );
    let mut failed = Vec::new();
    for row in rows() {
        let mut times = Vec::new();
        let (mut sent, mut again, mut timeouts) = (0, 0, 0);
        for seed in 1..=5 {
            let mut world = World::new(row.impairment, config, seed);
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
    for (reports_mtu, config) in [
        (true, Config::default()),
        (false, Config::default()),
        (true, cutting()),
        (false, cutting()),
    ] {
        let impairment = Impairment {
            mtu: 1280,
            reports_mtu,
            delay_us: 1000,
            ..Impairment::default()
        };
        let mut world = World::new(impairment, config, 3);
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
    for config in [Config::default(), cutting()] {
        transfer(&mut World::new(everything, config, 5), 20 * MIB);
    }
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

/// Acknowledgements that are handled in batches share one time, and so do the copies and
/// the new segments that they let go: what is lost is sent again, and no flight with it.
#[test]
fn batches_of_acknowledgements_send_no_flight_again() {
    let bounds = [
        ("loss 1 %", 15),
        ("loss 5 %", 75),
        ("reorder 5 %", 75),
        ("corrupt 1 %", 15),
    ];
    for (name, bound) in bounds {
        let row = rows().find(|row| row.name == name).expect("a row");
        for batch_us in [50, 300, 1000] {
            let (mut sent, mut again) = (0, 0);
            for seed in 1..=6 {
                let mut world = World::new(row.impairment, Config::default(), seed);
                world.batch_us = batch_us;
                let outcome = transfer(&mut world, MIB);
                sent += outcome.sent;
                again += outcome.retransmitted;
            }
            let share = again * 1000 / sent;
            println!("{name:12} {batch_us:5} us: {share} of 1,000 sent again");
            assert!(share <= bound, "{name}, {batch_us} us: {share} > {bound}");
        }
    }
}

/// A peer with a large window, as Linux's, leaves it to slow start to find the path's queue:
/// it must not send several times what fits before it notices.
#[test]
fn slow_start_does_not_overflow_a_queue_that_it_fills() {
    let config = Config {
        receive_initial: 1 << 20,
        receive_max: 4 << 20,
        send_max: 1 << 20,
        ..Config::default()
    };
    let row = rows()
        .find(|row| row.name == "10 Mbit, queue 50")
        .expect("a row");
    for batch_us in [0, 300, 1000] {
        let (mut sent, mut again) = (0, 0);
        for seed in 1..=6 {
            let mut world = World::new(row.impairment, config, seed);
            world.batch_us = batch_us;
            let outcome = transfer(&mut world, MIB);
            sent += outcome.sent;
            again += outcome.retransmitted;
        }
        let share = again * 10_000 / sent;
        println!("batches of {batch_us:>4} us: {share} of 10,000 sent again");
        assert!(share <= 40, "batches of {batch_us} us: {share} of 10,000");
    }
}
