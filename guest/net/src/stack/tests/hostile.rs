use alloc::vec::Vec;
use core::net::Ipv4Addr;

use proptest::prelude::*;
use smoltcp::time::Duration;

use super::world::{CLAIMS, CLIENT, SERVER, World, write};
use crate::checksum::Sum;
use crate::frame::{self, Frame, FrameError, flags};

/// An Ethernet frame with a TCP segment from 10.0.0.2.
pub(super) fn segment(from: Ipv4Addr, port: u16, bits: u8, seq: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let mut ip = Vec::from([0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    ip.extend(from.octets());
    ip.extend(SERVER.octets());
    let sum = Sum::new().plus(&ip).finish();
    ip[10..12].copy_from_slice(&[!sum[0], !sum[1]]);
    let mut tcp = Vec::new();
    tcp.extend(port.to_be_bytes());
    tcp.extend(80u16.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, bits, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = Sum::new()
        .plus_pseudo_header(from.octets(), SERVER.octets(), 6, 20)
        .plus(&tcp)
        .finish();
    tcp[16..18].copy_from_slice(&[!sum[0], !sum[1]]);
    frame.extend(ip);
    frame.extend(tcp);
    frame
}

#[test]
fn a_well_formed_segment_parses() {
    let bytes = segment(CLIENT, 1234, flags::SYN, 1);
    let Ok(Frame::Tcp(parsed)) = frame::parse(&bytes) else {
        panic!("{:?}", frame::parse(&bytes));
    };
    assert!(parsed.opens());
    assert_eq!(parsed.flow.remote, (CLIENT, 1234).into());
    assert_eq!(parsed.flow.local, (SERVER, 80).into());
    for len in 0..bytes.len() {
        assert!(frame::parse(&bytes[..len]).is_err(), "{len} bytes");
    }
    let mut padded = bytes.clone();
    padded.resize(60, 0xee);
    assert_eq!(frame::parse(&padded), frame::parse(&bytes));
    for at in 14..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(frame::parse(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn fragments_are_refused_as_such() {
    let mut bytes = segment(CLIENT, 1234, flags::SYN, 1);
    bytes[20] = 0x20;
    bytes[24..26].copy_from_slice(&[0, 0]);
    let sum = Sum::new().plus(&bytes[14..34]).finish();
    bytes[24..26].copy_from_slice(&[!sum[0], !sum[1]]);
    assert_eq!(frame::parse(&bytes), Err(FrameError::Fragment));
}

#[test]
fn a_flood_of_syns_is_bounded_and_passes() {
    let mut world = World::new(60);
    let listener = world.listen(16);
    for n in 0..5_000u16 {
        let from = Ipv4Addr::new(10, 0, 0, 3 + (n % 200) as u8);
        let syn = segment(from, 1024 + n, flags::SYN, u32::from(n));
        world.server.link().inject(&syn);
        world.run_until_quiet();
        assert!(world.server.counters().connections <= 16);
    }
    // The rest is answered by cookies, and no one is reset.
    assert_eq!(world.server.counters().cookies_sent, 5_000 - 16);
    // A cookie that comes back opens a connection, whatever the queue holds.
    world.connect(listener);
    assert_eq!(world.server.counters().cookies_accepted, 1);
    world.pass(Duration::from_secs(64));
    assert_eq!(world.server.counters().connections, 1);
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn segments_from_impossible_addresses_are_dropped() {
    let mut world = World::new(61);
    world.listen(16);
    for from in [
        "127.0.0.1",
        "10.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let syn = segment(from.parse().unwrap(), 1024, flags::SYN, 1);
        world.server.link().inject(&syn);
        world.run_until_quiet();
    }
    assert_eq!(world.server.counters().martian, 5);
    assert_eq!(world.server.counters().connections, 0);
    assert_eq!(world.server.link().sent, CLAIMS);
}

#[test]
fn stray_segments_are_answered_with_a_reset() {
    let mut world = World::new(62);
    let listener = world.listen(4);
    world.connect(listener);
    world
        .server
        .link()
        .inject(&segment(CLIENT, 9, flags::ACK, 77));
    world.server.poll(world.now, 1);
    let sent = world.server.link().take_sent();
    let Ok(Frame::Tcp(reset)) = frame::parse(&sent[0]) else {
        panic!("no TCP segment");
    };
    assert_ne!(reset.flags & flags::RST, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_the_stack_panic(
        frames in prop::collection::vec(
            (prop::collection::vec((0usize..120, any::<u8>()), 0..6), 0usize..120, 0u8..0x40), 1..40,
        ),
    ) {
        let mut world = World::new(63);
        let listener = world.listen(4);
        let (server, client) = world.connect(listener);
        write(&mut world.server, server, b"some data in flight", world.now).unwrap();
        let local = world.client.flow(client).unwrap().local.port();
        for (changes, len, bits) in frames {
            let mut bytes = segment(CLIENT, local, bits, u32::from(bits));
            bytes.resize(len.max(20), 3);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            }
            fix_checksums(&mut bytes);
            world.server.link().inject(&bytes);
            world.server.poll(world.now, 16);
            world.now += Duration::from_millis(7);
        }
        world.server.poll(world.now, 16);
    }

    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = frame::parse(&bytes);
        let _ = frame::parse_as(&bytes, frame::Medium::Ip, frame::Checksums::Trusted);
        let _ = frame::leave_checksum_to_device(&mut bytes.clone());
    }
}

/// Makes damage get past the checksums.
fn fix_checksums(bytes: &mut [u8]) {
    if bytes.len() < 54 {
        return;
    }
    bytes[24..26].copy_from_slice(&[0, 0]);
    let header = 14 + usize::from(bytes[14] & 15) * 4;
    let Some(ip) = bytes.get(14..header) else {
        return;
    };
    let sum = Sum::new().plus(ip).finish();
    bytes[24..26].copy_from_slice(&[!sum[0], !sum[1]]);
    let total = 14 + usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let Some(len) = total.checked_sub(header) else {
        return;
    };
    let (src, dst) = (
        bytes[26..30].try_into().unwrap(),
        bytes[30..34].try_into().unwrap(),
    );
    let protocol = bytes[23];
    let Some(tcp) = bytes.get_mut(header..total).filter(|tcp| tcp.len() >= 20) else {
        return;
    };
    tcp[16..18].copy_from_slice(&[0, 0]);
    let sum = Sum::new()
        .plus_pseudo_header(src, dst, protocol, len as u16)
        .plus(tcp)
        .finish();
    tcp[16..18].copy_from_slice(&[!sum[0], !sum[1]]);
}
