#![allow(clippy::unwrap_used)]

use tare_hal::virtio::{Registers, Sight, Transport};
use tare_net::checksum::Sum;
use tare_net::frame::{self, Checksums, Frame, PartialChecksum};
use tare_net::link::Link as _;

use super::{OpenError, VirtioNet, header};

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

/// A device that takes nothing, with queues of this many descriptors.
fn device(descriptors: u32) -> Result<VirtioNet, OpenError> {
    watched(descriptors).0
}

/// The same, and how far it sees the queue that was set up last: the one that transmits.
fn watched(descriptors: u32) -> (Result<VirtioNet, OpenError>, Sight) {
    const NETWORK: u32 = 1;
    // Checksums in the lower half, VERSION_1 in the upper one.
    let (registers, sight) = Registers::new(NETWORK, 1, descriptors).leak();
    let transport = Transport::in_memory(registers).expect("a device");
    (VirtioNet::new(transport, &|| ()), sight)
}

#[test]
fn frames_are_seen_together_when_the_link_is_flushed() {
    let (net, sight) = watched(16);
    let mut net = net.unwrap();
    for frames in (0..16).step_by(2) {
        net.send(60, |frame| frame.fill(0));
        net.send(60, |frame| frame.fill(0));
        assert_eq!(sight.published(), frames);
        net.flush();
        assert_eq!(sight.published(), frames + 2);
    }
}

#[test]
fn a_full_queue_is_seen_before_anything_waits_for_room() {
    let (net, sight) = watched(8);
    let mut net = net.unwrap();
    (0..8).for_each(|_| net.send(60, |frame| frame.fill(0)));
    assert_eq!(sight.published(), 0);
    assert!(!net.send_ready());
    assert_eq!(sight.published(), 8);
}

#[test]
fn a_long_batch_is_seen_before_its_end() {
    let (net, sight) = watched(64);
    let mut net = net.unwrap();
    (0..50).for_each(|_| net.send(60, |frame| frame.fill(0)));
    assert_eq!(sight.published(), 48);
    net.flush();
    assert_eq!(sight.published(), 50);
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
        let mut net = device(offered).unwrap();
        assert_eq!((net.send_room(), net.send_room_max()), (len, len));
        let mut sent = 0;
        while net.send_ready() {
            net.send(60, |frame| frame.fill(0));
            sent += 1;
        }
        assert_eq!((sent, net.send_room()), (len, 0), "{offered}");
        assert!(net.receive().is_none());
    }
    let error = device(0).err().expect("no queue");
    assert_eq!(error.to_string(), "the network device has no queue 0");
}
