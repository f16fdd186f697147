//! From the guest to the link.

use super::*;

fn sent(machine: &TestMachine) -> Vec<(NetHeader, Vec<u8>)> {
    link(machine, |link| std::mem::take(&mut link.outgoing))
}

#[test]
fn a_frame_arrives_whole_from_any_number_of_buffers() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    let frame = frame(7, 200);
    put(&machine.memory, BUFFERS, &[0; HEADER_LEN]);
    put(&machine.memory, BUFFERS + HEADER_LEN as u64, &frame);
    let cuts = [(0, 5), (5, 10), (15, 100), (115, 97)];
    tx.offer(&cuts.map(|(at, len)| (BUFFERS + at, len, 0)));
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(sent(&machine), [(NetHeader::default(), frame)]);
    assert_eq!(tx.take_used(), Some((0, 0)));
    assert_eq!(machine.counter("tx_frames"), 1);
    assert_eq!(machine.counter("tx_bytes"), 200);
}

#[test]
fn a_batch_is_flushed_once_and_interrupts_once() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    take(&machine.recorder.signals);
    for n in 0..10 {
        send(&machine, &mut tx, NetHeader::default(), &frame(n, 60));
    }
    let _ = notified(&machine, TX);
    assert_eq!(sent(&machine).len(), 10);
    assert!(!link(&machine, |link| link.has_unsent()));
    assert_eq!(take(&machine.recorder.signals), [TX]);
}

#[test]
fn between_looks_no_notification_is_wanted_and_the_last_one_asks_for_them_again() {
    for features in [0, EVENT_IDX] {
        let machine = machine(LinkOffload::None);
        let (_rx, mut tx) = start(&machine, features);
        let look = |look| machine.io(|device| device.look(look));
        let at_first = machine.counter("notifications");
        send(&machine, &mut tx, NetHeader::default(), &frame(1, 60));
        assert_eq!(notified(&machine, TX), Progress::Done);
        assert_eq!(look(Look::Again), Progress::Done);
        let before = tx.available_index;
        send(&machine, &mut tx, NetHeader::default(), &frame(2, 60));
        assert!(!tx.notification_wanted(before));
        assert_eq!(look(Look::Again), Progress::More);
        // What is sent meanwhile by an event keeps that up.
        send(&machine, &mut tx, NetHeader::default(), &frame(3, 60));
        assert_eq!(ready(&machine), Progress::Done);
        let before = tx.available_index;
        send(&machine, &mut tx, NetHeader::default(), &frame(4, 60));
        assert!(!tx.notification_wanted(before));
        assert_eq!(look(Look::Last), Progress::More);
        assert_eq!(look(Look::Last), Progress::Done);
        assert_eq!(sent(&machine).len(), 4);
        let before = tx.available_index;
        send(&machine, &mut tx, NetHeader::default(), &frame(5, 60));
        assert!(tx.notification_wanted(before));
        assert_eq!(machine.counter("notifications") - at_first, 1);
    }
}

#[test]
fn a_blocked_link_holds_frames_back_in_order() {
    for features in [0, EVENT_IDX] {
        let machine = machine(LinkOffload::None);
        let (_rx, mut tx) = start(&machine, features);
        link(&machine, |link| link.room = 3);
        for n in 0..5 {
            send(&machine, &mut tx, NetHeader::default(), &frame(n, 60));
        }
        assert_eq!(notified(&machine, TX), Progress::Done);
        assert_eq!(tx.used_index(), 3);
        assert!(interest(&machine).writable);
        assert_eq!(machine.counter("tx_backpressure"), 1);
        let before = tx.available_index;
        send(&machine, &mut tx, NetHeader::default(), &frame(5, 60));
        assert!(!tx.notification_wanted(before), "the link comes first");
        assert_eq!(notified(&machine, TX), Progress::Done);
        assert_eq!(tx.used_index(), 3, "blocked is blocked");
        link(&machine, |link| link.room = usize::MAX);
        assert_eq!(ready(&machine), Progress::Done);
        let frames: Vec<_> = sent(&machine).into_iter().map(|(_, bytes)| bytes).collect();
        let expected: Vec<_> = (0..6).map(|n| frame(n, 60)).collect();
        assert_eq!(frames, expected);
        assert!(!interest(&machine).writable);
        assert_eq!(machine.counter("tx_dropped"), 0);
    }
}

/// Such a descriptor is never writable: a guest that offers no receive buffers would not be heard
/// again.
#[test]
fn a_blocked_set_is_watched_for_input() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    link(&machine, |link| (link.room, link.is_set) = (1, true));
    // Without a buffer, a frame waits in the link.
    link(&machine, |link| {
        link.incoming
            .push_back((NetHeader::default(), frame(9, 60)))
    });
    let _ = ready(&machine);
    assert_eq!(interest(&machine), Interest::default());
    for n in 0..2 {
        send(&machine, &mut tx, NetHeader::default(), &frame(n, 60));
    }
    let _ = notified(&machine, TX);
    assert_eq!(interest(&machine), Interest::READ);
    link(&machine, |link| link.room = usize::MAX);
    let _ = ready(&machine);
    assert_eq!(
        (sent(&machine).len(), interest(&machine)),
        (2, Interest::default())
    );
}

/// With event indexes the driver notifies once for each time that it was asked to: what a batch
/// leaves in the queue when the link takes more again is sent without another notification.
#[test]
fn a_queue_longer_than_a_batch_is_sent_after_a_block() {
    for features in [0, EVENT_IDX] {
        let machine = machine(LinkOffload::None);
        let mut rings = Driver::new(&machine).start(VERSION_1 | features, QUEUE_SIZE);
        machine.serve_kicks();
        let tx = &mut rings[1];
        put(&machine.memory, BUFFERS, &[0; 100]);
        link(&machine, |link| link.room = 1);
        for _ in 0..2 * BATCH + 2 {
            tx.offer(&[(BUFFERS, 72, 0)]);
        }
        assert_eq!(notified(&machine, TX), Progress::Done);
        assert_eq!(tx.used_index(), 1);
        link(&machine, |link| link.room = usize::MAX);
        for batches in 1..=2 {
            assert_eq!(ready(&machine), Progress::More);
            assert_eq!(usize::from(tx.used_index()), 1 + batches * BATCH);
        }
        assert_eq!(ready(&machine), Progress::Done);
        assert_eq!(usize::from(tx.used_index()), 2 * BATCH + 2);
        let before = tx.available_index;
        tx.offer(&[(BUFFERS, 72, 0)]);
        assert!(tx.notification_wanted(before));
    }
}

#[test]
fn a_flood_is_sent_in_batches() {
    let machine = machine(LinkOffload::None);
    let mut rings = Driver::new(&machine).start(VERSION_1, QUEUE_SIZE);
    machine.serve_kicks();
    let tx = &mut rings[1];
    put(&machine.memory, BUFFERS, &[0; 100]);
    for _ in 0..BATCH + 1 {
        tx.offer(&[(BUFFERS, 72, 0)]);
    }
    assert_eq!(notified(&machine, TX), Progress::More);
    assert_eq!(usize::from(tx.used_index()), BATCH);
    assert_eq!(notified(&machine, TX), Progress::Done);
    assert_eq!(usize::from(tx.used_index()), BATCH + 1);
}

#[test]
fn frames_that_no_link_carries_are_dropped_and_counted() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    for (len, malformed) in [(MAX_FRAME + 1, 0), (0, 1)] {
        let before = machine.counter("malformed");
        send(&machine, &mut tx, NetHeader::default(), &frame(0, len));
        let _ = notified(&machine, TX);
        assert_eq!(machine.counter("malformed") - before, malformed, "{len}");
    }
    tx.offer(&[(BUFFERS, 11, 0)]);
    let _ = notified(&machine, TX);
    assert_eq!(tx.used_index(), 3);
    assert_eq!(machine.counter("tx_dropped"), 3);
    assert_eq!(sent(&machine), []);
    send(
        &machine,
        &mut tx,
        NetHeader::default(),
        &frame(0, MAX_FRAME),
    );
    let _ = notified(&machine, TX);
    assert_eq!(sent(&machine).len(), 1);
}

#[test]
fn a_buffer_to_write_in_the_transmit_queue_breaks_it() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    tx.offer(&[(BUFFERS, 72, 0), (BUFFERS, 16, WRITE)]);
    let _ = notified(&machine, TX);
    assert_eq!(Driver::new(&machine).status() & 64, 64);
    assert_eq!(machine.counter("malformed"), 1);
    assert_eq!(interest(&machine), Interest::default());
}

/// A frame whose checksum field, at 40 + 6, holds the pseudo header's sum.
fn partial() -> (NetHeader, Vec<u8>) {
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: 40,
        csum_offset: 6,
        ..NetHeader::default()
    };
    (header, frame(3, 101))
}

#[test]
fn a_partial_checksum_is_completed_for_a_plain_link() {
    let machine = machine(LinkOffload::TrustedRx);
    let (_rx, mut tx) = start(&machine, CSUM);
    let (header, frame) = partial();
    send(&machine, &mut tx, header, &frame);
    let _ = notified(&machine, TX);
    let mut expected = frame.clone();
    checksum::complete(&header, &mut expected).unwrap();
    assert_ne!(expected, frame);
    assert_eq!(sent(&machine), [(NetHeader::default(), expected)]);
    assert_eq!(machine.counter("checksums"), 1);
}

#[test]
fn a_tap_gets_partial_checksums_and_segments_as_they_are() {
    let machine = machine(LinkOffload::VnetHeader);
    let (_rx, mut tx) = start(&machine, CSUM | HOST_TSO4);
    let (header, _) = partial();
    let header = NetHeader {
        gso_type: GSO_TCPV4,
        gso_size: 1460,
        hdr_len: 54,
        ..header
    };
    let frame = frame(9, 0xf00);
    send(&machine, &mut tx, header, &frame);
    let _ = notified(&machine, TX);
    assert_eq!(sent(&machine), [(header, frame)]);
    assert_eq!(machine.counter("checksums"), 0);
}

#[test]
fn offloads_that_make_no_sense_are_dropped_and_counted() {
    let machine = machine(LinkOffload::VnetHeader);
    let (_rx, mut tx) = start(&machine, CSUM | HOST_TSO4);
    let (partial, frame) = partial();
    let tso = NetHeader {
        gso_type: GSO_TCPV4,
        gso_size: 1460,
        ..partial
    };
    let wrong = [
        NetHeader {
            csum_start: 100,
            ..partial
        },
        NetHeader {
            csum_offset: 0xffff,
            ..partial
        },
        NetHeader { gso_size: 0, ..tso },
        NetHeader { flags: 0, ..tso },
        NetHeader {
            gso_type: GSO_TCPV6,
            ..tso
        },
        NetHeader {
            gso_type: GSO_TCPV4 | GSO_ECN,
            ..tso
        },
        NetHeader { gso_type: 3, ..tso },
    ];
    for header in wrong {
        send(&machine, &mut tx, header, &frame);
        let _ = notified(&machine, TX);
    }
    assert_eq!(sent(&machine), []);
    assert_eq!(machine.counter("malformed"), wrong.len() as u64);
    assert_eq!(machine.counter("tx_dropped"), wrong.len() as u64);
    assert_eq!(usize::from(tx.used_index()), wrong.len());
}

#[test]
fn checksums_that_were_not_negotiated_are_refused() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    let (header, frame) = partial();
    send(&machine, &mut tx, header, &frame);
    let _ = notified(&machine, TX);
    assert_eq!(machine.counter("malformed"), 1);
}

#[test]
fn a_reset_while_blocked_forgets_the_frames() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    link(&machine, |link| link.room = 0);
    send(&machine, &mut tx, NetHeader::default(), &frame(1, 60));
    let _ = notified(&machine, TX);
    Driver::new(&machine).reset();
    link(&machine, |link| link.room = usize::MAX);
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(sent(&machine), []);
    let (_rx, mut tx) = start(&machine, 0);
    send(&machine, &mut tx, NetHeader::default(), &frame(2, 60));
    let _ = notified(&machine, TX);
    assert_eq!(sent(&machine), [(NetHeader::default(), frame(2, 60))]);
}
