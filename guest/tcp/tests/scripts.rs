//! One script a rule: what arrives, and what must be sent for it.

mod script;

use script::{ACK, FIN, RST, SYN, Script, modern};
use tare_tcp::options::{Options, Timestamps};
use tare_tcp::segment::Segment;
use tare_tcp::time::Instant;
use tare_tcp::{IoError, Loss, Pool, Seq, State};

fn with_timestamps() -> Options {
    Options {
        timestamps: Some(Timestamps { value: 0, echo: 0 }),
        ..modern()
    }
}

#[test]
fn rfc5961_a_reset_counts_at_exactly_the_next_number() {
    let mut script = Script::open(modern());
    for offset in [1, 1000, 60_000] {
        script.wait(600);
        script.inject(RST, 1 + offset, 1, b"");
        assert_eq!(script.tcp.state(), State::Established, "offset {offset}");
        script.expect(ACK, 1, 1, 0);
    }
    script.inject(RST, 70_000_000, 1, b"");
    script.nothing();
    script.inject(RST, 1, 1, b"");
    assert_eq!(
        (script.tcp.state(), script.tcp.loss()),
        (State::Closed, Some(Loss::Reset))
    );
}

#[test]
fn rfc5961_challenges_are_limited_in_rate() {
    let mut script = Script::open(modern());
    for _ in 0..100 {
        script.inject(RST, 100, 1, b"");
    }
    script.expect(ACK, 1, 1, 0);
    script.nothing();
    script.wait(499);
    script.inject(RST, 100, 1, b"");
    script.nothing();
    script.wait(1);
    script.inject(RST, 100, 1, b"");
    script.expect(ACK, 1, 1, 0);
}

#[test]
fn rfc5961_a_syn_on_a_live_connection_is_answered_by_an_acknowledgement() {
    for seq in [1, 0u32.wrapping_sub(77_777), 5000, 900_000_000] {
        let mut script = Script::open(modern());
        script.inject(SYN, seq, 0, b"");
        script.expect(ACK, 1, 1, 0);
        // The peer that knows nothing of the connection answers that with a reset.
        script.inject(RST, 1, 0, b"");
        assert_eq!(script.tcp.state(), State::Closed);
    }
}

#[test]
fn rfc5961_an_acknowledgement_of_data_never_sent_is_refused() {
    let mut script = Script::open(modern());
    script.send(500);
    script.expect(ACK, 1, 1, 500);
    script.inject(ACK, 1, 502, b"spoofed");
    script.expect(ACK, 501, 1, 0);
    assert_eq!(script.tcp.recv_queue(), 0);
    assert_eq!(script.tcp.send_queue(), 500);
}

#[test]
fn rfc5961_an_acknowledgement_older_than_any_window_is_refused() {
    let mut script = Script::open(modern());
    script.inject(ACK, 1, 1u32.wrapping_sub(100_000), b"spoofed");
    script.expect(ACK, 1, 1, 0);
    assert_eq!(script.tcp.recv_queue(), 0);
}

#[test]
fn rfc9293_data_with_an_older_acknowledgement_is_taken() {
    let mut script = Script::open(modern());
    script.send(500);
    script.expect(ACK, 1, 1, 500);
    script.inject(ACK, 1, 501, b"");
    script.inject(ACK, 1, 1, b"reordered");
    assert_eq!(script.tcp.recv_queue(), 9);
    assert_eq!(script.tcp.send_queue(), 0);
}

#[test]
fn rfc9293_a_wrong_third_segment_is_reset_and_the_right_one_still_opens() {
    let mut script = Script::half_open(modern());
    script.inject(ACK, 1, 0, b"");
    script.expect(RST, 0, 0u32.wrapping_sub(0xffff_ff00), 0);
    script.inject(ACK, 1, 1, b"");
    assert_eq!(script.tcp.state(), State::Established);
}

#[test]
fn rfc9293_a_repeated_syn_gets_the_syn_ack_again() {
    let mut script = Script::half_open(modern());
    script.nothing();
    script.inject(SYN, 0, 0, b"");
    script.expect(SYN | ACK, 0, 1, 0);
    script.nothing();
}

#[test]
fn rfc6298_a_syn_ack_is_sent_again_five_times_with_doubled_timeouts() {
    let mut script = Script::half_open(modern());
    script.wait_for_deadline();
    for due in [2000, 4000, 8000, 16_000, 32_000] {
        script.expect(SYN | ACK, 0, 1, 0);
        script.nothing();
        assert_eq!(script.wait_for_deadline(), due);
    }
    script.expect(RST | ACK, 1, 1, 0);
    assert_eq!(script.tcp.loss(), Some(Loss::TimedOut));
}

#[test]
fn rfc6298_a_lone_segment_is_sent_again_after_200_ms_and_then_less_often() {
    let mut script = Script::open(Options {
        sack_permitted: false,
        ..modern()
    });
    script.send(100);
    script.expect(ACK, 1, 1, 100);
    // The handshake measured 10 ms.
    for due in [210, 420, 840, 1680] {
        assert_eq!(script.wait_for_deadline(), due);
        script.expect(ACK, 1, 1, 100);
        script.nothing();
    }
    script.inject(ACK, 1, 101, b"");
    assert_eq!(script.tcp.next_deadline(), None);
}

#[test]
fn rfc6928_ten_segments_begin() {
    let mut script = Script::open(modern());
    script.send(16_000);
    let sent = script.data();
    assert_eq!(sent.len(), 10);
    assert_eq!(sent[9], (1 + 9 * 1012, 1012));
}

#[test]
fn rfc8985_one_lost_segment_is_sent_again_on_the_third_sack() {
    let mut script = Script::open(modern());
    script.send(10 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait(10);
    let at = |n: u32| 1 + n * 1012;
    script.sack(1, &[(at(1), at(2))]);
    assert_eq!(script.data(), []);
    script.sack(1, &[(at(1), at(3))]);
    assert_eq!(script.data(), []);
    script.sack(1, &[(at(1), at(4))]);
    assert_eq!(script.data(), [(1, 1012)]);
    // Only what is missing: the peer has the rest.
    script.wait(10);
    script.inject(ACK, 1, at(10), b"");
    assert_eq!((script.data(), script.tcp.send_queue()), (vec![], 0));
    assert_eq!(script.tcp.statistics().timeouts, 0);
}

/// A copy that went out in the same instant as new data, and after it, is not lost because
/// that data arrived.
#[test]
fn rfc8985_a_copy_counts_as_later_than_what_went_before_it_at_the_same_time() {
    let mut script = Script::open(modern());
    script.send(20 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait(10);
    let at = |n: u32| 1 + n * 1012;
    // The first arrived, and lets new data go; then three SACKs show that the second is lost.
    script.sack(at(1), &[]);
    assert_eq!(script.data(), [(at(10), 1012), (at(11), 1012)]);
    script.sack(at(1), &[(at(2), at(5))]);
    assert_eq!(script.data()[0], (at(1), 1012));
    script.wait(10);
    script.sack(at(1), &[(at(2), at(12))]);
    let again = script.data();
    assert!(!again.contains(&(at(1), 1012)), "{again:?}");
    script.sack(at(12), &[]);
    assert_eq!(script.tcp.statistics().segments_retransmitted, 1);
}

/// One acknowledgement that covers a segment and reports later ones reordered nothing: a
/// loss after it is found by three SACKs, without a timer.
#[test]
fn rfc8985_what_one_acknowledgement_reports_was_not_reordered() {
    let mut script = Script::open(modern());
    script.send(20 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait(10);
    let at = |n: u32| 1 + n * 1012;
    script.sack(at(2), &[(at(3), at(6))]);
    assert_eq!(script.data()[0], (at(2), 1012));
}

/// The original of a segment that was sent again arrives late, which its timestamp shows: it
/// says nothing of what was sent before the copy.
#[test]
fn rfc8985_an_original_that_arrives_after_its_copy_was_sent_loses_no_flight() {
    let mut script = Script::open(with_timestamps());
    script.send(20_000);
    let sent: Vec<_> = std::iter::from_fn(|| script.sent()).collect();
    assert_eq!(sent.len(), 10);
    let stamp = sent[0].options.timestamps.expect("timestamps").value;
    let at = |n: u32| 1 + n * 1000;
    script.wait(20);
    // The first is late: three SACKs, and it goes again, behind new data.
    script.sack(1, &[(at(1), at(4))]);
    let flight = script.data();
    assert_eq!(flight[0], (1, 1000));
    // Longer than the shortest round trip of 10 ms, and less than this flight's.
    script.wait(12);
    let mut late = script.segment(ACK, 1, at(4), b"");
    late.options.timestamps = Some(Timestamps {
        echo: stamp,
        ..late.options.timestamps.expect("timestamps")
    });
    let iss = late.ack - at(4);
    late.options.sack.push(iss + at(9), iss + at(10));
    script.tcp.on_segment(script.now, &late);
    let again: Vec<_> = script
        .data()
        .into_iter()
        .filter(|it| it.0 < at(10))
        .collect();
    assert_eq!(again, []);
}

#[test]
fn rfc8985_sacks_count_whatever_their_windows() {
    let mut script = Script::open(modern());
    script.send(10 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait(10);
    let at = |n: u32| 1 + n * 1012;
    for n in 2..5 {
        let mut segment = script.segment(ACK, 1, 1, b"");
        segment.window = 60_000 + n as u16;
        let iss = segment.ack - 1;
        segment.options.sack.push(iss + at(1), iss + at(n));
        script.tcp.on_segment(script.now, &segment);
    }
    assert_eq!(script.data(), [(1, 1012)]);
}

#[test]
fn rfc8985_a_lost_tail_is_probed_before_the_timeout() {
    let mut script = Script::open(modern());
    script.send(3 * 1012);
    assert_eq!(script.data().len(), 3);
    // Twice the round trip of 10 ms.
    assert_eq!(script.wait_for_deadline(), 20);
    assert_eq!(script.data(), [(1 + 2 * 1012, 1012)]);
    script.wait(10);
    script.sack(1, &[(1 + 2 * 1012, 1 + 3 * 1012)]);
    let mut again = script.data();
    while again.len() < 2 {
        script.wait_for_deadline();
        again.extend(script.data());
    }
    assert_eq!(again, [(1, 1012), (1013, 1012)]);
    assert_eq!(script.tcp.statistics().timeouts, 0);
}

#[test]
fn rfc6582_without_sack_three_duplicates_repair_one_loss_each_round_trip() {
    let mut script = Script::open(Options {
        sack_permitted: false,
        ..modern()
    });
    script.send(10 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait(10);
    for _ in 0..2 {
        script.inject(ACK, 1, 1, b"");
        assert_eq!(script.data(), []);
    }
    script.inject(ACK, 1, 1, b"");
    assert_eq!(script.data(), [(1, 1012)]);
    script.wait(10);
    script.inject(ACK, 1, 1013, b"");
    assert_eq!(
        script.data()[0],
        (1013, 1012),
        "the partial acknowledgement shows the next"
    );
}

#[test]
fn rfc5681_after_a_timeout_one_segment_goes_and_then_two() {
    let mut script = Script::open(Options {
        sack_permitted: false,
        ..modern()
    });
    script.send(10 * 1012);
    assert_eq!(script.data().len(), 10);
    script.wait_for_deadline();
    assert_eq!(script.data(), [(1, 1012)]);
    script.inject(ACK, 1, 1013, b"");
    assert_eq!(script.data(), [(1013, 1012), (2025, 1012)]);
}

/// How many segments go out after a timeout that is answered by an echo of the
/// original's timestamp or of the copy's.
fn sent_after_timeout(echo_of_copy: bool) -> usize {
    let mut script = Script::open(with_timestamps());
    script.send(8000);
    let first = script
        .sent()
        .expect("data")
        .options
        .timestamps
        .expect("timestamps")
        .value;
    assert_eq!(script.data().len(), 7);
    let copy = loop {
        script.wait_for_deadline();
        if let Some(sent) = script.sent()
            && script.tcp.statistics().timeouts > 0
        {
            break sent.options.timestamps.expect("timestamps").value;
        }
    };
    let mut answer = script.segment(ACK, 1, 8001, b"");
    let echo = if echo_of_copy { copy } else { first };
    answer.options.timestamps = Some(Timestamps {
        echo,
        ..answer.options.timestamps.expect("timestamps")
    });
    script.tcp.on_segment(script.now, &answer);
    script.send(8000);
    script.data().len()
}

#[test]
fn rfc4015_a_timeout_that_was_for_nothing_is_undone() {
    assert_eq!(
        (sent_after_timeout(false), sent_after_timeout(true)),
        (8, 2)
    );
}

#[test]
fn rfc7323_old_timestamps_are_dropped_and_answered() {
    let mut script = Script::open(with_timestamps());
    let mut old = script.segment(ACK, 1, 1, b"old");
    script.wait(1000);
    script.inject(ACK, 1, 1, b"");
    old.options.timestamps = Some(Timestamps { value: 5, echo: 0 });
    script.tcp.on_segment(script.now, &old);
    assert_eq!(script.tcp.recv_queue(), 0);
    let answer = script.expect(ACK, 1, 1, 0);
    assert_eq!(answer.options.timestamps.unwrap().echo, 11_010);
}

#[test]
fn rfc7323_segments_carry_timestamps_and_less_payload() {
    let mut script = Script::open(with_timestamps());
    script.send(5000);
    let sent = script.expect(ACK, 1, 1, 1000);
    assert_eq!(sent.options.timestamps.unwrap().echo, 10_010);
}

#[test]
fn rfc2018_what_is_missing_is_reported_with_the_latest_first() {
    let mut script = Script::open(modern());
    script.inject(ACK, 101, 1, &[1; 100]);
    let sent = script.expect(ACK, 1, 1, 0);
    assert_eq!(script.blocks(&sent), [(101, 201)]);
    script.inject(ACK, 301, 1, &[3; 100]);
    let sent = script.expect(ACK, 1, 1, 0);
    assert_eq!(script.blocks(&sent), [(301, 401), (101, 201)]);
    script.inject(ACK, 1, 1, &[0; 100]);
    let sent = script.expect(ACK, 1, 201, 0);
    assert_eq!(script.blocks(&sent), [(301, 401)]);
    // RFC 2883: a duplicate is reported once.
    script.inject(ACK, 1, 1, &[0; 100]);
    let sent = script.expect(ACK, 1, 201, 0);
    assert_eq!(script.blocks(&sent), [(1, 101), (301, 401)]);
}

#[test]
fn rfc9293_every_second_full_segment_is_acknowledged_and_others_wait() {
    let mut script = Script::open(modern());
    script.inject(ACK, 1, 1, &[0; 1012]);
    script.nothing();
    script.inject(ACK, 1013, 1, &[0; 1012]);
    script.expect(ACK, 1, 2025, 0);
    script.inject(ACK, 2025, 1, b"request");
    script.nothing();
    assert_eq!(script.wait_for_deadline(), 40);
    script.expect(ACK, 1, 2032, 0);
}

#[test]
fn rfc9293_a_closed_window_is_probed_and_the_reader_goes_on() {
    let mut script = Script::open(modern());
    let mut closed = script.segment(ACK, 1, 1, b"");
    closed.window = 0;
    script.tcp.on_segment(script.now, &closed);
    script.send(2024);
    script.nothing();
    for due in [210, 420, 840] {
        assert_eq!(script.wait_for_deadline(), due);
        script.expect(ACK, 0, 1, 0);
        script.tcp.on_segment(script.now, &closed);
        script.nothing();
    }
    script.inject(ACK, 1, 1, b"");
    assert_eq!(script.data(), [(1, 1012), (1013, 1012)]);
}

/// A peer need not announce that a small window has grown, and some answer data alone.
#[test]
fn rfc9293_a_window_smaller_than_a_segment_is_used_after_a_while() {
    let mut script = Script::open(modern());
    let mut small = script.segment(ACK, 1, 1, b"");
    small.window = 300;
    script.tcp.on_segment(script.now, &small);
    script.send(1500);
    script.nothing();
    assert_eq!(script.wait_for_deadline(), 210);
    assert_eq!(script.data(), [(1, 300)]);
    let mut again = script.segment(ACK, 1, 301, b"");
    again.window = 200;
    script.tcp.on_segment(script.now, &again);
    script.nothing();
    script.wait_for_deadline();
    assert_eq!(
        script.data(),
        [(301, 200)],
        "once for each time that it waited"
    );
    script.inject(ACK, 1, 501, b"");
    assert_eq!(script.data(), [(501, 1000)]);
}

#[test]
fn rfc9293_a_reader_that_stalls_but_answers_is_kept() {
    let mut script = Script::open(modern());
    let mut closed = script.segment(ACK, 1, 1, b"");
    closed.window = 0;
    script.tcp.on_segment(script.now, &closed);
    script.send(2000);
    for _ in 0..30 {
        script.data();
        script.wait_for_deadline();
        script.data();
        script.tcp.on_segment(script.now, &closed);
    }
    assert_eq!(script.tcp.state(), State::Established);
    for _ in 0..30 {
        script.data();
        if script.tcp.next_deadline().is_some() {
            script.wait_for_deadline();
        }
    }
    assert_eq!(
        script.tcp.loss(),
        Some(Loss::TimedOut),
        "one that does not answer is not"
    );
}

#[test]
fn rfc9293_both_sides_close() {
    let mut script = Script::open(modern());
    script.send(5);
    script.tcp.close();
    script.expect(ACK | FIN, 1, 1, 5);
    script.inject(ACK, 1, 7, b"");
    assert_eq!(script.tcp.state(), State::FinWait2);
    script.inject(ACK | FIN, 1, 7, b"last");
    assert_eq!(script.tcp.state(), State::TimeWait);
    script.expect(ACK, 7, 6, 0);
    assert_eq!(script.tcp.recv(&mut [0; 9], script.now), Ok(4));
    assert_eq!(script.wait_for_deadline(), 60_000);
    script.nothing();
    assert_eq!(
        (script.tcp.state(), script.tcp.loss()),
        (State::Closed, None)
    );
    assert_eq!(
        script.pool.used(),
        1024,
        "the receive buffer goes with the connection"
    );
}

#[test]
fn rfc9293_both_sides_close_at_once() {
    let mut script = Script::open(modern());
    script.tcp.close();
    script.expect(ACK | FIN, 1, 1, 0);
    script.inject(ACK | FIN, 1, 1, b"");
    assert_eq!(script.tcp.state(), State::Closing);
    script.expect(ACK, 2, 2, 0);
    script.inject(ACK, 2, 2, b"");
    assert_eq!(script.tcp.state(), State::TimeWait);
}

#[test]
fn rfc9293_a_fin_before_its_data_waits_for_it() {
    let mut script = Script::open(modern());
    script.inject(ACK | FIN, 4, 1, b"def");
    assert_eq!(script.tcp.state(), State::Established);
    assert!(!script.tcp.is_finished());
    script.inject(ACK, 1, 1, b"abc");
    assert_eq!(script.tcp.state(), State::CloseWait);
    let mut buf = [0; 9];
    assert_eq!(script.tcp.recv(&mut buf, script.now), Ok(6));
    assert_eq!(&buf[..6], b"abcdef");
    assert!(script.tcp.is_finished());
}

fn in_time_wait(options: Options) -> Script {
    let mut script = Script::open(options);
    script.tcp.close();
    script.expect(ACK | FIN, 1, 1, 0);
    script.inject(ACK | FIN, 1, 2, b"");
    script.expect(ACK, 2, 2, 0);
    assert_eq!(script.tcp.state(), State::TimeWait);
    script
}

#[test]
fn rfc1337_a_reset_does_not_end_time_wait() {
    let mut script = in_time_wait(modern());
    script.inject(RST, 2, 2, b"");
    assert_eq!(script.tcp.state(), State::TimeWait);
    // The peer's FIN again: its acknowledgement was lost.
    script.inject(ACK | FIN, 1, 2, b"");
    script.expect(ACK, 2, 2, 0);
}

#[test]
fn rfc6191_only_a_newer_syn_reopens_time_wait() {
    let script = in_time_wait(modern());
    let syn = |seq| script.segment(SYN, seq, 0, b"");
    assert!(script.tcp.may_reopen(&syn(100)));
    assert!(!script.tcp.may_reopen(&syn(2)));
    assert!(!script.tcp.may_reopen(&syn(0u32.wrapping_sub(5000))));
    let mut stamped = in_time_wait(with_timestamps());
    let old = stamped.segment(SYN, 0u32.wrapping_sub(5000), 0, b"");
    assert!(
        !stamped.tcp.may_reopen(&old),
        "the same tick and an older number"
    );
    stamped.wait(1);
    let newer = stamped.segment(SYN, 0u32.wrapping_sub(5000), 0, b"");
    assert!(
        stamped.tcp.may_reopen(&newer),
        "a newer timestamp counts whatever the number"
    );
}

#[test]
fn rfc1191_a_report_about_what_is_outstanding_makes_segments_smaller() {
    let mut script = Script::open(modern());
    script.send(3 * 1012);
    assert_eq!(script.data().len(), 3);
    let iss = script.segment(ACK, 1, 0, b"").ack;
    script.tcp.on_packet_too_big(iss + 900_000, 600, script.now);
    assert_eq!(script.data(), [], "a forged one changes nothing");
    script.tcp.on_packet_too_big(iss + 1, 600, script.now);
    let again = script.data();
    assert_eq!(again[..2], [(1, 600), (601, 412)]);
    assert_eq!(again.iter().map(|(_, len)| len).sum::<usize>(), 3 * 1012);
}

#[test]
fn rfc1191_no_report_makes_segments_tiny() {
    let mut script = Script::open(modern());
    script.send(3 * 1012);
    script.data();
    let iss = script.segment(ACK, 1, 0, b"").ack;
    script.tcp.on_packet_too_big(iss + 1, 28, script.now);
    assert_eq!(script.data()[0], (1, 512));
}

#[test]
fn memory_runs_out_and_what_was_acknowledged_is_kept() {
    let mut script = Script::open_in(modern(), Pool::new(8 << 10));
    // A gap first: what is beyond it gives way to what is in order.
    script.inject(ACK, 1001, 1, &[9; 1000]);
    for at in (1..20_000).step_by(1000) {
        script.inject(ACK, at, 1, &[9; 1000]);
        script.data();
    }
    assert!(script.pool.used() <= 8 << 10);
    let queued = script.tcp.recv_queue();
    assert!(queued >= 4000, "{queued}");
    script.wait(1000);
    script.inject(ACK, 1, 1, &[9; 10]);
    script.expect(ACK, 1, 1 + queued as u32, 0);
    assert!(script.tcp.statistics().dropped > 0);
    // Nothing is left for sending: the application learns it.
    let mut other = Script::open_in(modern(), Pool::new(100));
    assert_eq!(other.tcp.send(b"x"), Err(IoError::NoMemory));
}

#[test]
fn small_and_absent_segment_sizes_are_bounded() {
    for (mss, payload) in [(Some(1), 48), (None, 536), (Some(65_535), 1012)] {
        let mut script = Script::open(Options { mss, ..modern() });
        script.send(5000);
        assert_eq!(script.data()[0].1, payload, "{mss:?}");
    }
}

#[test]
fn a_stray_segment_is_answered_by_its_own_reset() {
    let script = Script::open(modern());
    let stray: Segment<'_> = script.segment(ACK, 1, 77, b"x");
    let reset = stray.reset().unwrap();
    assert_eq!((reset.flags, reset.seq), (RST, stray.ack));
    assert_eq!(reset.ack, Seq(0));
    let _: Instant = script.now;
}

/// The acknowledgement of an end is lost: the peer says it again.
#[test]
fn rfc9293_a_fin_that_comes_again_is_acknowledged_again() {
    let mut script = Script::open(modern());
    script.inject(ACK | FIN, 1, 1, b"last");
    script.expect(ACK, 1, 6, 0);
    script.inject(ACK | FIN, 1, 1, b"last");
    script.expect(ACK, 1, 6, 0);
    script.inject(ACK | FIN, 5, 1, b"");
    script.expect(ACK, 1, 6, 0);
    let mut script = in_time_wait(modern());
    script.wait(50_000);
    script.inject(ACK | FIN, 1, 2, b"");
    script.expect(ACK, 2, 2, 0);
    assert_eq!(script.wait_for_deadline(), 60_000);
}
