//! Jobs on a disk in memory.

#![allow(clippy::unwrap_used)]

use tare_guest_blk::run::{Edge, JobResult, RunError, run};
use tare_guest_blk::{Job, report};
use tare_libos::block::{Access, Disk};

fn job(line: &str) -> Job {
    Job::parse(line.split_whitespace()).unwrap()
}

fn disk(access: Access) -> Disk {
    Disk::in_memory("disk0", vec![0; 1 << 20], access)
}

fn done(line: &str, cif: u32) -> JobResult {
    run(&job(line), &disk(Access::ReadWrite), cif, |_| {}).unwrap()
}

/// Of times in ms, the first that gives `try_for` enough to see: a busy computer may
/// take all of a short one.
fn patient(try_for: impl Fn(u32) -> bool) -> bool {
    [30, 300, 3_000].into_iter().any(try_for)
}

#[test]
fn a_run_tells_of_its_edges_while_it_is_at_work() {
    assert!(patient(|ms| {
        let disk = disk(Access::ReadWrite);
        let mut edges = Vec::new();
        let at = |edge| edges.push((edge, disk.stats().completions));
        let line = format!("ms={ms} warm_ms={}", ms / 3);
        let outcome = run(&job(&line), &disk, 2, at).unwrap();
        let [(Edge::Begin, begin), (Edge::End, end)] = edges[..] else {
            panic!("{edges:?}");
        };
        assert!(end - begin >= outcome.device.completions);
        // The warm-up comes first.
        begin > 0 && outcome.device.completions > 0
    }));
}

#[test]
fn a_count_is_kept_exactly() {
    for cif in [1, 3, 16] {
        let outcome = done("count=500 warm_ms=0 read=50", cif);
        assert_eq!(outcome.seen.times.count(), 500, "{cif}");
        assert_eq!(outcome.seen.errors, 0);
    }
}

#[test]
fn a_time_ends_a_run() {
    assert!(patient(|ms| {
        let outcome = done(&format!("ms={ms} warm_ms=5 order=sequential block=64K"), 2);
        assert!(outcome.ticks > 0);
        outcome.seen.times.count() > 0
    }));
}

#[test]
fn threads_begin_one_after_the_other_over_the_ramp() {
    let begun = std::time::Instant::now();
    done("count=1 warm_ms=0 ramp_ms=200", 2);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(100));
}

#[test]
fn what_is_verified_matches() {
    let outcome = done("count=2000 warm_ms=0 read=50 verify=on block=512", 4);
    assert_eq!((outcome.seen.mismatches, outcome.seen.errors), (0, 0));
    assert!(outcome.device.completions >= 2000);
}

#[test]
fn a_committer_flushes_beside_the_readers() {
    assert!(patient(|ms| {
        let outcome = done(&format!("ms={ms} warm_ms=0 committer=on"), 2);
        assert_eq!(outcome.seen.commits.count(), outcome.seen.flushes.count());
        outcome.seen.flushes.count() > 0
    }));
    let outcome = done("count=100 warm_ms=0 read=0 flush_every=10", 1);
    assert!((9..=10).contains(&outcome.seen.flushes.count()));
}

#[test]
fn a_pace_is_kept() {
    let begun = std::time::Instant::now();
    let outcome = done("count=40 warm_ms=0 rate=200", 4);
    assert_eq!(outcome.seen.times.count(), 40);
    // The last is due 39 intervals of 5 ms after the first, however busy the machine is.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(195));
}

#[test]
fn jobs_that_cannot_be_done_are_refused() {
    let refused = |line: &str, access| run(&job(line), &disk(access), 300, |_| {}).unwrap_err();
    assert_eq!(
        refused("read=50", Access::ReadOnly),
        RunError::ReadOnly("disk0".into())
    );
    assert_eq!(
        refused("committer=on", Access::ReadOnly),
        RunError::ReadOnly("disk0".into())
    );
    let small = refused("read=50 verify=on", Access::ReadWrite);
    assert!(matches!(
        small,
        RunError::TooSmall {
            blocks: 256,
            wanted: 300,
            ..
        }
    ));
}

#[test]
fn the_line_has_all_figures() {
    let line = report::line(&done("count=50 warm_ms=0", 1));
    for key in [
        "\"cif\":1,",
        "\"completed\":50,",
        "\"iops\":",
        "\"flush_ns\":null",
        "\"p99\":",
    ] {
        assert!(line.contains(key), "{line}");
    }
}
