use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread;

use tare_hal::virtio::{DeviceSide, Doorbell, Registers, Transport};
use tare_net::checksum::Sum;
use tare_net::frame::{self, Checksums, Frame, PartialChecksum};
use tare_net::link::Link as _;

use super::{OpenError, VirtioNet, features, header};

#[test]
fn the_header_says_where_the_checksum_goes() {
    let mut bytes = [0xff; header::LEN];
    let checksum = PartialChecksum {
        start: 34,
        offset: 16,
    };
    header::write(&mut bytes, Some(checksum));
    assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
    header::write(&mut bytes[..header::LEGACY_LEN], None);
    assert_eq!(bytes[..10], [0; 10]);
}

#[test]
fn only_what_the_device_vouches_for_is_trusted() {
    for (flags, expected) in [
        (0, Checksums::Unverified),
        (1, Checksums::Trusted),
        (2, Checksums::Trusted),
        (4, Checksums::Unverified),
    ] {
        assert_eq!(header::checksums(&[flags; 12]), expected);
    }
}

/// What the device does with a partial checksum.
fn finish(frame: &mut [u8], at: PartialChecksum) {
    let (start, field) = (usize::from(at.start), usize::from(at.start + at.offset));
    let sum = Sum::new().plus(&frame[start..]).finish();
    frame[field..field + 2].copy_from_slice(&[!sum[0], !sum[1]]);
}

#[test]
fn a_checksum_that_the_device_finishes_is_right() {
    for (protocol, header_len) in [(6u8, 20usize), (17, 8)] {
        for payload in [0usize, 1, 7, 1000] {
            let total = 20 + header_len + payload;
            let mut bytes = vec![0; 14 + total];
            bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            bytes[16..18].copy_from_slice(&(total as u16).to_be_bytes());
            bytes[22..24].copy_from_slice(&[64, protocol]);
            bytes[26..34].copy_from_slice(&[10, 0, 2, 15, 10, 0, 2, 2]);
            let sum = Sum::new().plus(&bytes[14..34]).finish();
            bytes[24..26].copy_from_slice(&[!sum[0], !sum[1]]);
            bytes[34..38].copy_from_slice(&[0, 80, 0xc0, 1]);
            match protocol {
                6 => bytes[46] = 0x50,
                _ => bytes[38..40].copy_from_slice(&((8 + payload) as u16).to_be_bytes()),
            }
            bytes[34 + header_len..].fill(0xa5);
            let Some(partial) = frame::leave_checksum_to_device(&mut bytes) else {
                panic!("left alone");
            };
            let mut completed = bytes.clone();
            frame::complete_checksum(&mut completed);
            finish(&mut bytes, partial);
            assert_eq!(completed, bytes);
            match frame::parse(&bytes) {
                Ok(Frame::Tcp(_) | Frame::Udp(_)) => {}
                other => panic!("protocol {protocol}, {payload} bytes: {other:?}"),
            }
        }
    }
}

/// A driver of a device that takes nothing, with queues of this many descriptors.
fn driver(descriptors: u32) -> Result<VirtioNet, OpenError> {
    // Checksums in the lower half, VERSION_1 in the upper one.
    notifying(descriptors, 1).0
}

/// The same with other features, and where it notifies the device.
fn notifying(descriptors: u32, features: u32) -> (Result<VirtioNet, OpenError>, Doorbell) {
    const NETWORK: u32 = 1;
    let (registers, doorbell) = Registers::new(NETWORK, features, descriptors).leak();
    let transport = Transport::in_memory(registers).expect("a device");
    (VirtioNet::new(transport, &|| ()), doorbell)
}

/// Takes a frame and gives its buffer back, as the stack does.
fn take_one(net: &mut VirtioNet) -> bool {
    let frame = net.receive();
    frame.map(|it| net.recycle(it.buffer)).is_some()
}

#[test]
fn a_device_that_asks_before_it_shows_its_last_frames_gets_buffers() {
    const EVENT_IDX: u32 = 1 << 29;
    for shown in [1, 5, 8] {
        let (net, doorbell) = notifying(8, 1 | EVENT_IDX);
        let mut net = net.unwrap();
        assert_eq!(doorbell.take(), Some(0), "the first buffers");
        let mut device = net.receive.device_side();
        // Past the point where indices begin anew.
        for round in 0..10_000 {
            let tokens: Vec<_> = core::iter::from_fn(|| device.take_next()).collect();
            assert_eq!(tokens.len(), 8, "round {round}");
            device.ask_at(device.published());
            let (first, last) = tokens.split_at(shown);
            for (part, notified) in [(first, Some(0)), (last, None)] {
                for token in part {
                    device.complete(u32::from(*token), 60);
                }
                while take_one(&mut net) {}
                assert_eq!(doorbell.take(), notified, "round {round}, {shown} shown");
            }
        }
    }
}

/// Between a driver and a device in another thread.
#[derive(Default)]
struct Signals {
    /// Frames for which the device has looked whether they are to interrupt.
    looked: AtomicU32,
    interrupt: AtomicBool,
    driver_ended: AtomicBool,
}

impl Signals {
    /// Shows frames until the driver has ended, and interrupts for those that it wants that for.
    fn show(&self, mut device: DeviceSide) {
        let mut shown = 0_u32;
        while !self.driver_ended.load(Ordering::Relaxed) {
            let Some(token) = device.take_next() else {
                thread::yield_now();
                continue;
            };
            // Some come while the driver looks for the last time.
            (0..shown * 7 % 61).for_each(|_| core::hint::spin_loop());
            device.complete(token.into(), 60);
            fence(Ordering::SeqCst);
            if device.interrupts_at() == shown as u16 {
                self.interrupt.store(true, Ordering::Release);
            }
            shown += 1;
            self.looked.store(shown, Ordering::Release);
        }
    }

    /// Waits for an interrupt; false if none comes though a frame is there.
    fn wait(&self, taken: u32) -> bool {
        loop {
            let looked = self.looked.load(Ordering::Acquire);
            if self.interrupt.swap(false, Ordering::Acquire) {
                return true;
            }
            if looked > taken {
                return false;
            }
            thread::yield_now();
        }
    }
}

#[test]
fn a_frame_that_comes_during_the_last_look_is_seen_or_interrupts() {
    const EVENT_IDX: u32 = 1 << 29;
    const FRAMES: u32 = 100_000;
    let (net, _) = notifying(8, 1 | EVENT_IDX);
    let mut net = net.unwrap();
    let device = net.receive.device_side();
    let signals = Signals::default();
    let taken = thread::scope(|scope| {
        scope.spawn(|| signals.show(device));
        let mut taken = 0;
        loop {
            while take_one(&mut net) {
                taken += 1;
            }
            if taken >= FRAMES || !signals.wait(taken) {
                signals.driver_ended.store(true, Ordering::Relaxed);
                break taken;
            }
        }
    });
    assert!(taken >= FRAMES, "frame {taken} waits without an interrupt");
}

#[test]
fn a_frame_in_several_buffers_is_put_together() {
    const GUEST_CSUM: u32 = 1 << 1;
    const MRG_RXBUF: u32 = 1 << 15;
    let (net, _) = notifying(8, 1 | GUEST_CSUM | MRG_RXBUF);
    let mut net = net.unwrap();
    let mut device = net.receive.device_side();
    let mut show = |net: &mut VirtioNet, count: u8, parts: &[&[u8]]| {
        for (place, part) in parts.iter().enumerate() {
            let token = device.take_next().expect("a buffer");
            let buffer = net.receiving[usize::from(token)].as_mut().unwrap();
            let start = if place == 0 { header::LEN } else { 0 };
            buffer.bytes[..start].fill(0);
            if place == 0 {
                (buffer.bytes[0], buffer.bytes[10]) = (1, count);
            }
            buffer.bytes[start..start + part.len()].copy_from_slice(part);
            device.complete(token.into(), (start + part.len()) as u32);
        }
    };
    // More often than there are buffers.
    for round in 0..20_u8 {
        show(&mut net, 1, &[&[round; 60]]);
        show(&mut net, 3, &[&[1; 1500], &[2; 1536], &[round; 10]]);
        let single = net.receive().unwrap();
        assert_eq!(single.buffer.as_ref(), [round; 60]);
        net.recycle(single.buffer);
        let merged = net.receive().unwrap();
        assert_eq!(merged.checksums, Checksums::Trusted);
        let expected = [&[1; 1500][..], &[2; 1536], &[round; 10]].concat();
        assert_eq!(merged.buffer.as_ref(), expected);
        net.recycle(merged.buffer);
        assert!(net.receive().is_none());
    }
    // A device that leaves parts out: what there is of the frame is dropped, and its buffers are not
    // lost.
    for _ in 0..20 {
        show(&mut net, 5, &[&[1; 1500], &[2; 1536]]);
        assert!(net.receive().is_none());
    }
    show(&mut net, 1, &[&[9; 60]]);
    assert!(take_one(&mut net) && !take_one(&mut net));
}

#[test]
fn long_frames_are_taken_in_merged_buffers_alone() {
    const GUEST_CSUM: u64 = 1 << 1;
    const TSO: u64 = 1 << 7 | 1 << 8;
    const MRG_RXBUF: u64 = 1 << 15;
    for (offered, chosen) in [
        (GUEST_CSUM | TSO | MRG_RXBUF, GUEST_CSUM | TSO | MRG_RXBUF),
        (GUEST_CSUM | TSO, GUEST_CSUM),
        (TSO | MRG_RXBUF, 0),
        (1 << 63 | 1 << 14, 0),
    ] {
        assert_eq!(features::choose(offered), chosen);
    }
}

#[test]
fn a_device_that_does_not_ask_for_buffers_is_left_alone() {
    const NO_NOTIFY: u16 = 1;
    let (net, doorbell) = notifying(8, 1);
    let mut net = net.unwrap();
    let mut device = net.receive.device_side();
    assert_eq!(doorbell.take(), Some(0));
    for (flags, notified) in [(NO_NOTIFY, None), (0, Some(0))] {
        device.set_flags(flags);
        let token = device.take_next().unwrap();
        device.complete(token.into(), 60);
        assert!(take_one(&mut net) && !take_one(&mut net));
        assert_eq!(doorbell.take(), notified);
        assert!(!take_one(&mut net));
        assert_eq!(doorbell.take(), None, "it has all buffers");
    }
}

#[test]
fn frames_are_seen_together_when_the_link_is_flushed() {
    let mut net = driver(16).unwrap();
    for frames in (0..16).step_by(2) {
        net.send(60, 0, |frame| frame.fill(0));
        net.send(60, 0, |frame| frame.fill(0));
        assert_eq!(net.transmit.device_side().published(), frames);
        net.flush();
        assert_eq!(net.transmit.device_side().published(), frames + 2);
    }
}

#[test]
fn a_full_queue_is_seen_before_anything_waits_for_room() {
    let mut net = driver(8).unwrap();
    (0..8).for_each(|_| net.send(60, 0, |frame| frame.fill(0)));
    assert_eq!(net.transmit.device_side().published(), 0);
    assert!(!net.send_ready());
    assert_eq!(net.transmit.device_side().published(), 8);
}

#[test]
fn only_a_device_that_cuts_gets_a_long_segment() {
    const CSUM: u32 = 1;
    const TSO: u32 = 1 << 11 | 1 << 12;
    for (features, together) in [(CSUM, 0), (CSUM | 1 << 11, 0), (CSUM | TSO, 16 << 10)] {
        let (net, _) = notifying(8, features);
        assert_eq!(net.unwrap().properties().together, together);
    }
    let (net, _) = notifying(8, CSUM | TSO);
    let mut net = net.unwrap();
    let len = 54 + (16 << 10);
    let write = |frame: &mut [u8]| {
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        (frame[23], frame[46]) = (6, 0x50);
    };
    for _ in 0..8 {
        assert!(net.send_ready());
        net.send(len, 1460, write);
    }
    assert!(!net.send_ready());
    let mut device = net.transmit.device_side();
    while let Some(token) = device.take_next() {
        device.complete(token.into(), 0);
    }
    assert!(net.send_ready());
    net.send(len, 1460, write);
    net.flush();
    assert_eq!(device.published(), 9);
}

#[test]
fn the_header_says_how_a_segment_is_cut() {
    for (ethertype, tcp_at, gso) in [([8, 0], 34_u16, 1), ([0x86, 0xdd], 54, 4)] {
        let mut frame = [0; 100];
        frame[12..14].copy_from_slice(&ethertype);
        frame[usize::from(tcp_at) + 12] = 0x80;
        let mut bytes = [0; header::LEN];
        header::write_cut(&mut bytes, &frame, tcp_at, 1448);
        let headers = (tcp_at as u8) + 32;
        assert_eq!(bytes[..6], [0, gso, headers, 0, 0xa8, 5]);
    }
}

#[test]
fn a_long_batch_is_seen_before_its_end() {
    let mut net = driver(64).unwrap();
    (0..50).for_each(|_| net.send(60, 0, |frame| frame.fill(0)));
    assert_eq!(net.transmit.device_side().published(), 48);
    net.flush();
    assert_eq!(net.transmit.device_side().published(), 50);
}

#[test]
fn queues_are_as_long_as_the_device_has_them() {
    for (offered, len) in [
        (1, 1),
        (8, 8),
        (16, 16),
        (32, 32),
        (63, 32),
        (64, 64),
        (256, 64),
    ] {
        let mut net = driver(offered).unwrap();
        assert_eq!((net.send_room(), net.send_room_max()), (len, len));
        let mut sent = 0;
        while net.send_ready() {
            net.send(60, 0, |frame| frame.fill(0));
            sent += 1;
        }
        assert_eq!((sent, net.send_room()), (len, 0), "{offered}");
        assert!(net.receive().is_none());
    }
    let error = driver(0).err().expect("no queue");
    assert_eq!(error.to_string(), "the network device has no queue 0");
}
