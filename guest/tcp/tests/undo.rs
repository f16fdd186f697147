//! Reports of duplicates that undo a reduction of the congestion window, or must not
//! (RFC 3708; Linux: `tcp_try_undo_dsack`).

mod script;

use script::{Script, modern};

/// Where the segment of that number begins.
fn at(n: u32) -> u32 {
    1 + n * 1012
}

/// A connection with this many segments in flight.
fn in_flight(segments: usize) -> Script {
    let mut script = Script::open(modern());
    script.send(segments * 1012);
    assert_eq!(script.data().len(), segments);
    script
}

/// How many segments go at once after ten of which one was sent again because it was late;
/// whether the peer reports that it arrived twice.
fn window_after_reordering(reports: bool) -> usize {
    let mut script = in_flight(10);
    script.wait(10);
    script.sack(1, &[(at(1), at(4))]);
    assert_eq!(script.data(), [(1, 1012)]);
    script.wait(1);
    script.sack(at(10), &[]);
    if reports {
        script.wait(10);
        script.sack(at(10), &[(1, at(1))]);
    }
    script.send(16 * 1012);
    script.data().len()
}

#[test]
fn rfc3708_a_repair_that_was_for_nothing_is_undone() {
    let windows = [true, false].map(window_after_reordering);
    assert_eq!(windows, [10, 7]);
}

/// One of three segments was sent again for nothing; the other two are really missing.
#[test]
fn rfc3708_an_undo_leaves_real_losses_to_loss_detection() {
    let mut script = in_flight(10);
    script.wait(10);
    for n in 3..6 {
        script.sack(1, &[(at(3), at(n + 1))]);
    }
    assert_eq!(script.data(), [(1, 1012)]);
    script.wait(1);
    script.sack(at(1), &[(1, at(1)), (at(3), at(6))]);
    assert_eq!(script.data()[0], (at(1), 1012));
    script.wait(10);
    script.sack(at(10), &[]);
    script.send(16 * 1012);
    assert_eq!(script.data().len(), 7, "the window is reduced");
}

/// How many segments go at once after a repair that began while a probe's copy was on its
/// way, of which the peer reports that it arrived twice; whether it reports the repair's too.
fn window_after_probe_and_repair(reports_repair: bool) -> usize {
    let mut script = in_flight(4);
    script.wait_for_deadline();
    assert_eq!(script.data(), [(at(3), 1012)]);
    // The originals arrive late, without the first.
    script.wait(1);
    script.sack(1, &[(at(1), at(4))]);
    assert_eq!(script.data(), [(1, 1012)]);
    script.wait(1);
    script.sack(1, &[(at(3), at(4)), (at(1), at(4))]);
    assert_eq!(script.data(), []);
    script.wait(10);
    script.sack(at(4), &[]);
    if reports_repair {
        script.sack(at(4), &[(1, at(1))]);
    }
    script.send(16 * 1012);
    script.data().len()
}

#[test]
fn rfc3708_a_report_about_a_probe_undoes_no_repair() {
    let windows = [false, true].map(window_after_probe_and_repair);
    assert_eq!(windows, [7, 10]);
}

#[test]
fn rfc3708_a_report_after_a_pause_undoes_nothing() {
    let mut script = in_flight(10);
    script.wait(10);
    script.sack(1, &[(at(1), at(4))]);
    assert_eq!(script.data(), [(1, 1012)]);
    script.wait(1);
    script.sack(at(10), &[]);
    script.wait(2000);
    script.send(16 * 1012);
    assert_eq!(script.data().len(), 7);
    script.sack(at(10), &[(1, at(1))]);
    assert_eq!(script.data(), []);
}
