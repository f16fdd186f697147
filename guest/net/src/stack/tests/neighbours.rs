//! ARP, broadcasts, ICMP errors and tags, frame by frame: no second stack, but what
//! any station may send.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::time::Duration;

use super::hostile::segment;
use super::world::{SERVER, World};
use crate::checksum::Sum;
use crate::frame::{self, Frame, FrameError, flags};

pub(super) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const BROADCAST_MAC: [u8; 6] = [0xff; 6];
pub(super) const REQUEST: u8 = 1;
pub(super) const REPLY: u8 = 2;

pub(super) fn mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [2, 0, 0, 7, high, low]
}

pub(super) fn host(number: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + u32::from(number))
}

pub(super) fn arp(
    operation: u8,
    to: [u8; 6],
    sender: ([u8; 6], Ipv4Addr),
    target: Ipv4Addr,
) -> Vec<u8> {
    let mut frame = [&to[..], &sender.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend(sender.0);
    frame.extend(sender.1.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

/// A server alone on its link; what it sends stays with the test.
pub(super) fn alone(seed: u64) -> World {
    let mut world = World::new(seed);
    world.server.link().take_sent();
    world
}

pub(super) fn answers(world: &mut World, frame: &[u8]) -> Vec<Vec<u8>> {
    world.server.link().inject(frame);
    world.server.poll(world.now, 16);
    world.server.link().take_sent()
}

/// A SYN from a host of the network, from its own hardware address.
pub(super) fn syn(from: u16, source: [u8; 6]) -> Vec<u8> {
    let mut frame = segment(host(from), 1000 + from, flags::SYN, 7);
    frame[6..12].copy_from_slice(&source);
    frame
}

/// An IPv4 packet to `to` in a frame to `station`.
fn packet(station: [u8; 6], to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![
        0x45,
        0,
        0,
        20 + payload.len() as u8,
        0,
        1,
        0,
        0,
        64,
        protocol,
        0,
        0,
    ];
    ip.extend(host(2).octets());
    ip.extend(to.octets());
    let sum = Sum::new().plus(&ip).finish();
    ip[10..12].copy_from_slice(&[!sum[0], !sum[1]]);
    [&station[..], &[2, 0, 0, 0, 0, 2, 8, 0], &ip, payload].concat()
}

fn echo_request() -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = Sum::new().plus(&icmp).finish();
    icmp[2..4].copy_from_slice(&[!sum[0], !sum[1]]);
    icmp
}

#[test]
fn an_address_is_probed_and_announced_when_it_is_taken() {
    let mut world = World::new(200);
    let sent = world.server.link().take_sent();
    let own = (OWN_MAC, SERVER);
    let probe = arp(
        REQUEST,
        BROADCAST_MAC,
        (OWN_MAC, Ipv4Addr::UNSPECIFIED),
        SERVER,
    );
    assert_eq!(sent, [probe, arp(REQUEST, BROADCAST_MAC, own, SERVER)]);
}

#[test]
fn two_hundred_neighbours_are_answered_without_asking() {
    let mut world = alone(201);
    world.listen(4096);
    for round in 0..2 {
        for number in 2..202 {
            let sent = answers(&mut world, &syn(number, mac(number)));
            let to: Vec<_> = sent.iter().map(|frame| &frame[..6]).collect();
            assert_eq!(to, [mac(number)], "round {round}, host {number}");
        }
        world.pass(Duration::from_secs(40));
        world.server.link().take_sent();
    }
}

#[test]
fn what_came_through_a_router_is_not_learned() {
    let mut world = alone(202);
    world.listen(16);
    let mut far = segment(Ipv4Addr::new(192, 0, 2, 9), 1000, flags::SYN, 7);
    far[6..12].copy_from_slice(&mac(1));
    // There is no route back, and no host on this link has the router's address.
    assert!(answers(&mut world, &far).is_empty());
}

#[test]
fn an_announcement_moves_a_neighbour_that_is_known() {
    let mut world = alone(203);
    world.listen(16);
    let sent = answers(&mut world, &syn(9, mac(9)));
    assert_eq!(sent[0][..6], mac(9));
    // From another station, but not announced: a SYN alone moves no neighbour.
    let sent = answers(&mut world, &syn(9, mac(1)));
    assert!(sent.iter().all(|frame| frame[..6] == mac(9)));
    for (operation, new) in [(REQUEST, mac(10)), (REPLY, mac(11))] {
        answers(
            &mut world,
            &arp(operation, BROADCAST_MAC, (new, host(9)), host(9)),
        );
        let mut echo = packet(OWN_MAC, SERVER, 1, &echo_request());
        echo[26..30].copy_from_slice(&host(9).octets());
        echo[24..26].copy_from_slice(&[0, 0]);
        let sum = Sum::new().plus(&echo[14..34]).finish();
        echo[24..26].copy_from_slice(&[!sum[0], !sum[1]]);
        let sent = answers(&mut world, &echo);
        assert_eq!(sent[0][..6], new);
    }
}

/// A neighbour that has moved and says nothing: the requests, and where the data goes.
#[test]
fn a_neighbour_that_has_moved_is_found_by_probes() {
    let mut world = World::new(211);
    let listener = world.listen(4);
    let (server, _client) = world.connect(listener);
    let (old, new) = ([2, 0, 0, 0, 0, 2], mac(77));
    super::world::write(&mut world.server, server, b"hello", world.now).unwrap();
    let is_request = |frame: &&Vec<u8>| frame[12..14] == [8, 6] && frame[21] == REQUEST;
    let asks = |sent: &[Vec<u8>]| -> Vec<[u8; 6]> {
        let asked = sent.iter().filter(is_request);
        let about_client = asked.filter(|it| it[38..42] == host(2).octets());
        about_client.map(|it| it[..6].try_into().unwrap()).collect()
    };
    // The client is gone: nothing acknowledges what the server sends.
    let mut requests = Vec::new();
    let mut segments_to = Vec::new();
    for _ in 0..100 {
        let Some(due) = world.server.deadline() else {
            break;
        };
        world.now = due.max(world.now);
        world.server.poll(world.now, 16);
        let sent = world.server.link().take_sent();
        requests.extend(asks(&sent));
        let segments = sent.iter().filter(|it| it[12..14] == [8, 0]);
        segments_to.extend(segments.map(|it| it[..6].to_vec()));
        if requests.last() == Some(&BROADCAST_MAC) {
            break;
        }
    }
    assert_eq!(requests, [old, old, old, BROADCAST_MAC]);
    assert!(segments_to.iter().all(|to| *to == old));
    // The host answers from another station: what was lost goes there.
    answers(&mut world, &arp(REPLY, OWN_MAC, (new, host(2)), SERVER));
    let mut moved = Vec::new();
    while moved.is_empty() {
        world.now = world.server.deadline().expect("a timeout").max(world.now);
        world.server.poll(world.now, 16);
        let sent = world.server.link().take_sent();
        // Nothing is acknowledged yet: the new station gets requests in its turn.
        assert!(asks(&sent).iter().all(|to| *to == new));
        let segments = sent.iter().filter(|it| it[12..14] == [8, 0]);
        moved.extend(segments.map(|it| it[..6].to_vec()));
    }
    assert_eq!(moved[0], new);
}

/// A neighbour that never answers gets at most six requests a timeout.
#[test]
fn probes_of_a_neighbour_end() {
    let mut world = World::new(212);
    let listener = world.listen(4);
    let (server, _client) = world.connect(listener);
    super::world::write(&mut world.server, server, b"hello", world.now).unwrap();
    let mut asked = 0;
    for _ in 0..1000 {
        let Some(due) = world.server.deadline() else {
            break;
        };
        world.now = due.max(world.now);
        world.server.poll(world.now, 16);
        let sent = world.server.link().take_sent();
        asked += sent.iter().filter(|it| it[12..14] == [8, 6]).count();
    }
    // The connection is given up after a minute, and then nothing is due.
    assert_eq!(world.server.deadline(), None);
    assert!((12..=60).contains(&asked), "{asked}");
}

#[test]
fn announcements_of_strangers_are_not_learned() {
    let mut world = alone(204);
    for number in 2..202 {
        let stranger = (mac(number), host(number));
        let sent = answers(
            &mut world,
            &arp(REQUEST, BROADCAST_MAC, stranger, host(number)),
        );
        assert!(sent.is_empty());
    }
}

#[test]
fn a_probe_for_our_address_is_answered() {
    let mut world = alone(205);
    let probe = arp(
        REQUEST,
        BROADCAST_MAC,
        (mac(9), Ipv4Addr::UNSPECIFIED),
        SERVER,
    );
    let sent = answers(&mut world, &probe);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][..6], mac(9));
    assert_eq!(
        sent[0][20..32],
        arp(REPLY, mac(9), (OWN_MAC, SERVER), host(0))[20..32]
    );
    let other = arp(
        REQUEST,
        BROADCAST_MAC,
        (mac(9), Ipv4Addr::UNSPECIFIED),
        host(77),
    );
    assert!(answers(&mut world, &other).is_empty());
}

#[test]
fn a_claim_to_our_address_is_counted_and_answered_now_and_then() {
    let mut world = alone(206);
    let claim = arp(REQUEST, BROADCAST_MAC, (mac(9), SERVER), SERVER);
    assert_eq!(answers(&mut world, &claim).len(), 1);
    assert_eq!(answers(&mut world, &claim).len(), 0);
    world.now += Duration::from_secs(10);
    assert_eq!(answers(&mut world, &claim).len(), 1);
    assert_eq!(world.server.counters().address_conflicts, 3);
}

#[test]
fn echoes_and_segments_to_everybody_are_not_answered() {
    let mut world = alone(207);
    world.listen(16);
    assert_eq!(
        answers(&mut world, &packet(OWN_MAC, SERVER, 1, &echo_request())).len(),
        1
    );
    let subnet = Ipv4Addr::new(10, 0, 0, 255);
    for to in [subnet, Ipv4Addr::BROADCAST, host(44)] {
        assert!(answers(&mut world, &packet(OWN_MAC, to, 1, &echo_request())).is_empty());
    }
    assert!(
        answers(
            &mut world,
            &packet(BROADCAST_MAC, SERVER, 1, &echo_request())
        )
        .is_empty()
    );
    let mut in_broadcast_frame = syn(9, mac(9));
    in_broadcast_frame[..6].copy_from_slice(&BROADCAST_MAC);
    assert!(answers(&mut world, &in_broadcast_frame).is_empty());
    assert!(answers(&mut world, &segment(subnet, 1000, flags::SYN, 1)).is_empty());
    let counters = world.server.counters();
    assert_eq!((counters.broadcast, counters.connections), (6, 0));
}

#[test]
fn echoes_from_impossible_addresses_are_dropped() {
    let mut world = alone(208);
    let mut echo = packet(OWN_MAC, SERVER, 1, &echo_request());
    echo[26..30].copy_from_slice(&[127, 0, 0, 1]);
    echo[24..26].copy_from_slice(&[0, 0]);
    let sum = Sum::new().plus(&echo[14..34]).finish();
    echo[24..26].copy_from_slice(&[!sum[0], !sum[1]]);
    assert!(answers(&mut world, &echo).is_empty());
    assert_eq!(world.server.counters().martian, 1);
}

#[test]
fn icmp_errors_are_limited() {
    let mut world = alone(209);
    // Teach it the neighbour, so that errors are sent at once.
    answers(
        &mut world,
        &arp(
            REQUEST,
            BROADCAST_MAC,
            ([2, 0, 0, 0, 0, 2], host(2)),
            SERVER,
        ),
    );
    let udp = [0, 9, 0x77, 0x77, 0, 8, 0, 0];
    let mut errors = 0;
    for n in 0..300 {
        let protocol = if n % 2 == 0 { 17 } else { 99 };
        errors += answers(&mut world, &packet(OWN_MAC, SERVER, protocol, &udp)).len();
    }
    assert_eq!(errors, 50);
    assert_eq!(world.server.counters().icmp_errors_suppressed, 250);
}

#[test]
fn a_priority_tag_makes_no_difference() {
    let mut world = alone(210);
    world.listen(16);
    let plain = syn(9, mac(9));
    for (tag, taken) in [([0x81, 0, 0xe0, 0], true), ([0x81, 0, 0, 5], false)] {
        let tagged = [&plain[..12], &tag, &plain[12..]].concat();
        let expected = if taken {
            FrameError::PriorityTag
        } else {
            FrameError::Protocol
        };
        assert_eq!(frame::parse(&tagged), Err(expected));
        let sent = answers(&mut world, &tagged);
        let answered = sent
            .iter()
            .any(|frame| matches!(frame::parse(frame), Ok(Frame::Tcp(_))));
        assert_eq!(answered, taken);
    }
    for len in 0..22 {
        let tagged = [&plain[..12], &[0x81, 0, 0, 0], &plain[12..]].concat();
        assert!(answers(&mut world, &tagged[..len]).is_empty());
    }
}
