//! Limits of frames and bytes: frames wait where they are, go on at the limit's rate, and at
//! once when the limit goes away. Each direction has its own.

use std::sync::atomic::Ordering;

use super::*;
use crate::clock::TestClock;

const FRAMES: NetLimits = NetLimits {
    frames_per_s: 100,
    bytes_per_s: 0,
};

fn limited(limits: NetLimits, clock: &TestClock) -> TestMachine {
    let settings = NetSettings {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        limits,
    };
    let link = Memory::new(LinkOffload::None);
    MockMachine::new(Net::with_clock(settings, link, Box::new(clock.clone())))
}

/// Offers 15 frames and notifies the queue.
fn send_fifteen(machine: &TestMachine, tx: &mut Ring<'_>) {
    for n in 0..15 {
        send(machine, tx, NetHeader::default(), &frame(n, 60));
    }
    assert_eq!(notified(machine, TX), Progress::Done);
}

fn sent(machine: &TestMachine) -> usize {
    link(machine, |link| link.outgoing.len())
}

/// Moves the clock to the device's deadline.
fn at_deadline(machine: &TestMachine, clock: &TestClock) -> u64 {
    let due_ns = machine.io(|device| device.deadline_ns()).unwrap();
    clock.0.fetch_max(due_ns, Ordering::Relaxed);
    machine.io(|device| device.deadline_passed());
    due_ns
}

fn deadline(machine: &TestMachine) -> Option<u64> {
    machine.io(|device| device.deadline_ns())
}

#[test]
fn frames_beyond_the_limit_wait_in_the_queue_and_go_on_at_its_rate() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (_rx, mut tx) = start(&machine, 0);
    send_fifteen(&machine, &mut tx);
    // The bucket's ten, and the one that begins with something still in it.
    assert_eq!(sent(&machine), 11);
    assert_eq!(tx.used_index(), 11);
    for number in 1..=4 {
        assert_eq!(at_deadline(&machine, &clock), number * 10_000_000);
        assert_eq!(sent(&machine), 11 + number as usize);
    }
    // The queue is empty: nothing waits, and the bucket fills again.
    assert_eq!(deadline(&machine), None);
    assert_eq!(machine.counter("tx_limited"), 4);
    assert_eq!(machine.counter("tx_frames"), 15);
    assert_eq!(machine.counter("tx_backpressure"), 0);
}

#[test]
fn received_frames_beyond_the_limit_wait_in_the_link() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (mut rx, _tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    link(&machine, |link| {
        let frames = (0..15).map(|n| (NetHeader::default(), frame(n, 60)));
        link.incoming.extend(frames);
    });
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(rx.used_index(), 11);
    assert!(
        !interest(&machine).readable,
        "not polled before the limit allows it"
    );
    // A notification changes nothing.
    assert_eq!(notified(&machine, RX), Progress::Done);
    assert_eq!(rx.used_index(), 11);
    for number in 1..=4 {
        assert_eq!(at_deadline(&machine, &clock), number * 10_000_000);
        assert_eq!(rx.used_index(), 11 + number as u16);
    }
    assert_eq!(deadline(&machine), None, "the link is empty: nothing waits");
    assert!(interest(&machine).readable);
    // After the batch, at the notification, and three times at the deadline.
    assert_eq!(machine.counter("rx_limited"), 5);
    assert_eq!(link(&machine, |link| link.incoming.len()), 0);
    assert_eq!(machine.counter("rx_frames"), 15);
    assert_eq!(machine.counter("rx_dropped"), 0);
}

#[test]
fn nothing_waits_for_the_limit_in_an_empty_queue_or_link() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (mut rx, mut tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    for n in 0..11 {
        send(&machine, &mut tx, NetHeader::default(), &frame(n, 60));
    }
    link(&machine, |link| {
        let frames = (0..11).map(|n| (NetHeader::default(), frame(n, 60)));
        link.incoming.extend(frames);
    });
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!((sent(&machine), rx.used_index()), (11, 11));
    assert_eq!(deadline(&machine), None);
    assert_eq!(machine.counter("tx_limited"), 0);
    assert_eq!(machine.counter("rx_limited"), 0);
    // Both buckets are empty: the next frame of each direction waits, and is noticed.
    send(&machine, &mut tx, NetHeader::default(), &frame(0, 60));
    assert_eq!(notified(&machine, TX), Progress::Done);
    link(&machine, |link| {
        link.incoming
            .push_back((NetHeader::default(), frame(0, 60)))
    });
    assert!(interest(&machine).readable);
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(machine.counter("tx_limited"), 1);
    assert_eq!(machine.counter("rx_limited"), 1);
    assert_eq!(at_deadline(&machine, &clock), 10_000_000);
    assert_eq!((sent(&machine), rx.used_index()), (12, 12));
}

#[test]
fn bytes_count_and_directions_do_not_share() {
    let clock = TestClock::default();
    let limits = NetLimits {
        frames_per_s: 0,
        bytes_per_s: 1_000,
    };
    let machine = limited(limits, &clock);
    let (mut rx, mut tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    // Larger than what the bucket holds (a tenth of a second's).
    for n in 0..2 {
        send(&machine, &mut tx, NetHeader::default(), &frame(n, 600));
    }
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(sent(&machine), 1);
    link(&machine, |link| {
        link.incoming
            .push_back((NetHeader::default(), frame(0, 60)));
    });
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(rx.used_index(), 1, "what was sent is not what was received");
    assert_eq!(at_deadline(&machine, &clock), 500_000_000);
    assert_eq!(sent(&machine), 2);
}

#[test]
fn frames_that_go_nowhere_count_too() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (_rx, mut tx) = start(&machine, 0);
    for _ in 0..15 {
        // Shorter than a header.
        tx.offer(&[(BUFFERS, 4, 0)]);
    }
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(machine.counter("malformed"), 11);
}

#[test]
fn a_limit_that_goes_away_lets_frames_of_both_directions_go_on() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (mut rx, mut tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    send_fifteen(&machine, &mut tx);
    link(&machine, |link| {
        let frames = (0..15).map(|n| (NetHeader::default(), frame(n, 60)));
        link.incoming.extend(frames);
    });
    assert_eq!(ready(&machine), Progress::Done);
    machine.io(|device| device.device_mut().set_limits(NetLimits::default()));
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(at_deadline(&machine, &clock), 0, "it has passed");
    assert_eq!((sent(&machine), rx.used_index()), (15, 15));
    assert_eq!(deadline(&machine), None);
}

#[test]
fn a_batch_that_ends_early_goes_on_at_once() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let mut rings = Driver::new(&machine).start(VERSION_1, QUEUE_SIZE);
    machine.serve_kicks();
    let tx = &mut rings[1];
    put(&machine.memory, BUFFERS, &[0; 100]);
    for _ in 0..200 {
        tx.offer(&[(BUFFERS, 72, 0)]);
    }
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(tx.used_index(), 11);
    machine.io(|device| device.device_mut().set_limits(NetLimits::default()));
    for sent in [11 + BATCH, 11 + 2 * BATCH, 200] {
        assert_eq!(at_deadline(&machine, &clock), 0);
        assert_eq!(usize::from(tx.used_index()), sent);
    }
    assert_eq!(deadline(&machine), None);
}

#[test]
fn a_reset_forgets_which_frames_wait_and_keeps_the_limit() {
    let clock = TestClock::default();
    let machine = limited(FRAMES, &clock);
    let (_rx, mut tx) = start(&machine, 0);
    send_fifteen(&machine, &mut tx);
    Driver::new(&machine).reset();
    assert_eq!(deadline(&machine), None);
    let (_rx, mut tx) = start(&machine, 0);
    send_fifteen(&machine, &mut tx);
    assert_eq!(sent(&machine), 11, "the bucket is empty still");
}
