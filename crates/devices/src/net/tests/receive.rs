//! From the link to the guest.

use super::*;

fn arrive(machine: &TestMachine, header: NetHeader, bytes: Vec<u8>) {
    link(machine, |link| link.incoming.push_back((header, bytes)));
}

fn waiting(machine: &TestMachine) -> usize {
    link(machine, |link| link.incoming.len())
}

#[test]
fn a_frame_arrives_whole_in_one_buffer() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, 0);
    offer(&mut rx, 2, 2048);
    let _ = notified(&machine, RX);
    take(&machine.recorder.signals);
    arrive(&machine, NetHeader::default(), frame(1, 700));
    assert_eq!(ready(&machine), Progress::Done);
    let (header, bytes) = received(&machine, &mut rx).unwrap();
    assert_eq!(bytes, frame(1, 700));
    assert_eq!((header.flags, header.num_buffers), (0, 1));
    assert_eq!(take(&machine.recorder.signals), [RX]);
    assert_eq!(machine.counter("rx_frames"), 1);
    assert_eq!(machine.counter("rx_bytes"), 700);
}

#[test]
fn many_frames_cause_one_interrupt() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    take(&machine.recorder.signals);
    for n in 0..10 {
        arrive(&machine, NetHeader::default(), frame(n, 60));
    }
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(take(&machine.recorder.signals), [RX]);
    for n in 0..10 {
        assert_eq!(received(&machine, &mut rx).unwrap().1, frame(n, 60));
    }
}

#[test]
fn frames_that_came_together_become_visible_together() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, 0);
    offer(&mut rx, 16, 2048);
    for n in 0..3 {
        arrive(&machine, NetHeader::default(), frame(n, 60));
    }
    let used_index = rx.used + 2;
    link(&machine, |link| {
        link.watched = Some((machine.memory.clone(), used_index));
    });
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(link(&machine, take_seen), [0; 4]);
    assert_eq!(rx.used_index(), 3);
}

#[test]
fn a_flood_becomes_visible_in_parts() {
    let machine = machine(LinkOffload::None);
    let mut rings = Driver::new(&machine).start(VERSION_1, QUEUE_SIZE);
    for _ in 0..QUEUE_SIZE {
        rings[0].offer(&[(BUFFERS, 2048, WRITE)]);
    }
    for _ in 0..BATCH {
        arrive(&machine, NetHeader::default(), frame(0, 60));
    }
    let used_index = rings[0].used + 2;
    link(&machine, |link| {
        link.watched = Some((machine.memory.clone(), used_index));
    });
    assert_eq!(ready(&machine), Progress::More);
    let seen = link(&machine, take_seen);
    assert_eq!(seen[31..33], [0, 32], "{seen:?}");
}

fn take_seen(link: &mut Memory) -> Vec<u16> {
    std::mem::take(&mut link.seen)
}

#[test]
fn without_buffers_frames_stay_in_the_link() {
    for features in [0, EVENT_IDX] {
        let machine = machine(LinkOffload::None);
        let (mut rx, _tx) = start(&machine, features);
        for n in 0..3 {
            arrive(&machine, NetHeader::default(), frame(n, 60));
        }
        assert_eq!(ready(&machine), Progress::Done);
        assert_eq!(waiting(&machine), 3);
        assert!(!interest(&machine).readable, "reading would not help");
        assert_eq!(machine.counter("rx_backpressure"), 1);
        let before = rx.available_index;
        offer(&mut rx, 2, 2048);
        assert!(rx.notification_wanted(before));
        assert_eq!(notified(&machine, RX), Progress::Done);
        assert_eq!(waiting(&machine), 1);
        offer(&mut rx, 8, 2048);
        assert_eq!(notified(&machine, RX), Progress::Done);
        assert!(interest(&machine).readable);
        for n in 0..3 {
            assert_eq!(received(&machine, &mut rx).unwrap().1, frame(n, 60));
        }
        let before = rx.available_index;
        offer(&mut rx, 1, 2048);
        assert!(!rx.notification_wanted(before), "there are buffers");
        assert_eq!(machine.counter("rx_dropped"), 0);
    }
}

#[test]
fn a_flood_is_received_in_batches() {
    let machine = machine(LinkOffload::None);
    let mut rings = Driver::new(&machine).start(VERSION_1, QUEUE_SIZE);
    for _ in 0..QUEUE_SIZE {
        rings[0].offer(&[(BUFFERS, 2048, WRITE)]);
    }
    for _ in 0..BATCH + 1 {
        arrive(&machine, NetHeader::default(), frame(0, 60));
    }
    assert_eq!(ready(&machine), Progress::More);
    assert_eq!(waiting(&machine), 1);
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(waiting(&machine), 0);
}

#[test]
fn a_frame_too_long_for_its_buffer_is_dropped_and_the_buffer_kept() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, 0);
    offer(&mut rx, 1, 100);
    arrive(&machine, NetHeader::default(), frame(1, 89));
    arrive(&machine, NetHeader::default(), frame(2, 88));
    let _ = ready(&machine);
    assert_eq!(machine.counter("rx_dropped"), 1);
    assert_eq!(received(&machine, &mut rx).unwrap().1, frame(2, 88));
}

#[test]
fn merged_buffers_hold_a_long_frame() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, MRG_RXBUF);
    offer(&mut rx, 10, 200);
    arrive(&machine, NetHeader::default(), frame(5, 1000));
    let _ = ready(&machine);
    let (header, bytes) = received(&machine, &mut rx).unwrap();
    assert_eq!(header.num_buffers, 6);
    assert_eq!(bytes, frame(5, 1000));
    assert_eq!(machine.counter("rx_frames"), 1);
}

#[test]
fn a_long_frame_waits_until_enough_buffers_can_be_merged() {
    for features in [MRG_RXBUF, MRG_RXBUF | EVENT_IDX] {
        let machine = machine(LinkOffload::None);
        let (mut rx, _tx) = start(&machine, features);
        arrive(&machine, NetHeader::default(), frame(5, 1000));
        let _ = ready(&machine);
        for _ in 0..5 {
            let before = rx.available_index;
            offer(&mut rx, 1, 200);
            assert!(rx.notification_wanted(before));
            assert_eq!(notified(&machine, RX), Progress::Done);
            assert_eq!(rx.used_index(), 0, "nothing is given by halves");
        }
        offer(&mut rx, 1, 200);
        assert_eq!(notified(&machine, RX), Progress::Done);
        assert_eq!(received(&machine, &mut rx).unwrap().1, frame(5, 1000));
    }
}

#[test]
fn a_frame_that_all_buffers_together_cannot_hold_is_dropped() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, MRG_RXBUF);
    offer(&mut rx, 16, 20);
    arrive(&machine, NetHeader::default(), frame(5, 1000));
    arrive(&machine, NetHeader::default(), frame(6, 100));
    let _ = ready(&machine);
    assert_eq!(machine.counter("rx_dropped"), 1);
    assert_eq!(received(&machine, &mut rx).unwrap().1, frame(6, 100));
}

#[test]
fn buffers_that_cannot_be_used_break_the_queue() {
    for chain in [
        vec![(BUFFERS, 2048, 0)],
        vec![(BUFFERS, 12, 0), (BUFFERS, 2048, WRITE)],
        vec![(BUFFERS, 11, WRITE)],
    ] {
        let machine = machine(LinkOffload::None);
        let (mut rx, _tx) = start(&machine, MRG_RXBUF);
        arrive(&machine, NetHeader::default(), frame(1, 60));
        rx.offer(&chain);
        let _ = notified(&machine, RX);
        assert_eq!(Driver::new(&machine).status() & 64, 64, "{chain:?}");
        assert_eq!(machine.counter("malformed"), 1);
        assert_eq!(waiting(&machine), 1);
    }
}

#[test]
fn a_header_may_be_cut_into_buffers() {
    let machine = machine(LinkOffload::None);
    let (mut rx, _tx) = start(&machine, 0);
    rx.offer(&[(BUFFERS, 7, WRITE), (BUFFERS + 7, 2041, WRITE)]);
    arrive(&machine, NetHeader::default(), frame(1, 300));
    let _ = ready(&machine);
    assert_eq!(received(&machine, &mut rx).unwrap().1, frame(1, 300));
}

#[test]
fn checksums_are_vouched_for_only_to_drivers_that_asked() {
    let vouched = NetHeader {
        flags: FLAG_DATA_VALID,
        ..NetHeader::default()
    };
    for (features, flags) in [(0, 0), (GUEST_CSUM, FLAG_DATA_VALID)] {
        let machine = machine(LinkOffload::TrustedRx);
        let (mut rx, _tx) = start(&machine, features);
        offer(&mut rx, 1, 2048);
        arrive(&machine, vouched, frame(1, 60));
        let _ = ready(&machine);
        assert_eq!(received(&machine, &mut rx).unwrap().0.flags, flags);
    }
}

#[test]
fn a_trusted_link_need_not_mark_its_frames() {
    let machine = machine(LinkOffload::TrustedRx);
    let (mut rx, _tx) = start(&machine, GUEST_CSUM);
    offer(&mut rx, 1, 2048);
    arrive(&machine, NetHeader::default(), frame(1, 60));
    let _ = ready(&machine);
    let (header, _) = received(&machine, &mut rx).unwrap();
    assert_eq!(header.flags, FLAG_DATA_VALID);
    // One from a published port, whose checksum the driver is to make.
    let partial = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    offer(&mut rx, 1, 2048);
    arrive(&machine, partial, frame(1, 60));
    let _ = ready(&machine);
    let (header, _) = received(&machine, &mut rx).unwrap();
    assert_eq!(header.flags, FLAG_NEEDS_CSUM);
}

#[test]
fn segments_reach_only_drivers_that_asked() {
    let segment = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: 1448,
        hdr_len: 66,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    let accepting = GUEST_CSUM | GUEST_TSO4 | MRG_RXBUF;
    for (features, frames, dropped) in [(accepting, 1, 0), (GUEST_CSUM, 0, 1), (0, 0, 1)] {
        let machine = machine(LinkOffload::VnetHeader);
        let (mut rx, _tx) = start(&machine, features);
        offer(&mut rx, 16, 0x1000);
        arrive(&machine, segment, frame(1, 40_000));
        let _ = ready(&machine);
        assert_eq!(machine.counter("rx_frames"), frames);
        assert_eq!(machine.counter("rx_dropped"), dropped);
        if frames == 1 {
            let (header, bytes) = received(&machine, &mut rx).unwrap();
            let expected = NetHeader {
                num_buffers: 10,
                ..segment
            };
            assert_eq!(header, expected);
            assert_eq!(bytes, frame(1, 40_000));
        }
    }
}

#[test]
fn a_receive_queue_that_was_not_enabled_receives_nothing() {
    let machine = machine(LinkOffload::None);
    let driver = Driver::new(&machine);
    driver.negotiate(VERSION_1);
    driver.add_queue(1, 16, VERSION_1);
    driver.add_status(4);
    arrive(&machine, NetHeader::default(), frame(1, 60));
    assert_eq!(ready(&machine), Progress::Done);
    assert_eq!(waiting(&machine), 1);
    assert!(!interest(&machine).readable);
}

proptest! {
    #[test]
    fn frames_of_any_length_pass_through_buffers_of_any_length(
        lens in proptest::collection::vec(1usize..MAX_FRAME, 1..10),
        room in 100u32..2048,
    ) {
        let machine = machine(LinkOffload::None);
        let (mut rx, _tx) = start(&machine, MRG_RXBUF | EVENT_IDX);
        for (n, len) in lens.iter().enumerate() {
            arrive(&machine, NetHeader::default(), frame(n as u8, *len));
        }
        let mut got = 0;
        offer(&mut rx, 16, room);
        let _ = notified(&machine, RX);
        for _ in 0..lens.len() * 16 {
            while let Some((header, bytes)) = received(&machine, &mut rx) {
                prop_assert_eq!(bytes, frame(got as u8, lens[got]));
                got += 1;
                offer(&mut rx, header.num_buffers.into(), room);
            }
            let _ = notified(&machine, RX);
        }
        let dropped = machine.counter("rx_dropped") as usize;
        prop_assert_eq!(got + dropped, lens.len());
        prop_assert_eq!(dropped, 0);
    }
}
