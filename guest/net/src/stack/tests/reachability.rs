//! Reachability of next hops: whose connections move, who is probed, and what is sent
//! meanwhile, frame by frame.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use smoltcp::wire::Ipv4Cidr;

use super::super::{ConnectionId, Setup, Stack};
use super::cable::cable;
use super::hostile::segment;
use super::ipv6::{from, host_address};
use super::neighbours::{
    BROADCAST_MAC, OWN_MAC, REPLY, REQUEST, alone, answers, arp, host, mac, syn,
};
use super::world::{SERVER, World, seeds, write};
use crate::checksum::Sum;
use crate::frame::flags;
use crate::ipv6::address::ALL_NODES;

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

/// A server with a default router, which has asked for it from `mac(1)`.
fn behind_router(seed: u64) -> World {
    let mut world = World::new(seed);
    let setup = Setup::Static {
        address: Ipv4Cidr::new(SERVER, 24),
        gateway: Some(ROUTER),
    };
    world.server = Stack::new(cable(seed).0, setup, seeds(seed), world.now);
    world.server.link().take_sent();
    world.listen(16);
    answers(
        &mut world,
        &arp(REQUEST, BROADCAST_MAC, (mac(1), ROUTER), SERVER),
    );
    world
}

/// A segment of another network, through the router.
fn from_far(bits: u8, seq: u32) -> Vec<u8> {
    let mut frame = segment(FAR, 1000, bits, seq);
    frame[6..12].copy_from_slice(&mac(1));
    frame
}

/// A station's announcement of its address.
fn announce(world: &mut World, station: [u8; 6], address: Ipv4Addr) {
    answers(
        world,
        &arp(REPLY, BROADCAST_MAC, (station, address), address),
    );
}

fn station(frame: &[u8]) -> [u8; 6] {
    frame[..6].try_into().unwrap()
}

/// The stations of IPv4 packets to `to`.
fn stations(sent: &[Vec<u8>], to: Ipv4Addr) -> Vec<[u8; 6]> {
    let is_to = |it: &&Vec<u8>| it[12..14] == [8, 0] && it[30..34] == to.octets();
    sent.iter().filter(is_to).map(|it| station(it)).collect()
}

/// Goes on to the next deadline: what is sent then.
fn next_sent(world: &mut World) -> Vec<Vec<u8>> {
    world.now = world.server.deadline().expect("a deadline").max(world.now);
    world.server.poll(world.now, 16);
    world.server.link().take_sent()
}

/// Where handshakes with these hosts send again.
fn sends_again<const N: usize>(world: &mut World, hosts: [Ipv4Addr; N]) -> [[u8; 6]; N] {
    let mut seen = Vec::new();
    for _ in 0..20 {
        seen.extend(next_sent(world));
        let to = hosts.map(|host| stations(&seen, host).first().copied());
        if to.iter().all(Option::is_some) {
            return to.map(Option::unwrap);
        }
    }
    panic!("nothing is sent again");
}

#[test]
fn a_neighbour_that_moves_takes_no_other_address_with_it() {
    let mut world = alone(220);
    world.listen(16);
    for number in [8, 9] {
        let sent = answers(&mut world, &syn(number, mac(9)));
        assert_eq!(stations(&sent, host(number)), [mac(9)]);
    }
    announce(&mut world, mac(10), host(9));
    let to = sends_again(&mut world, [host(8), host(9)]);
    assert_eq!(to, [mac(9), mac(10)]);
}

#[test]
fn connections_through_a_router_follow_the_router_alone() {
    let mut world = behind_router(221);
    answers(&mut world, &from_far(flags::SYN, 7));
    // Another address of the router's station.
    answers(&mut world, &syn(7, mac(1)));
    announce(&mut world, mac(2), host(7));
    let to = sends_again(&mut world, [FAR, host(7)]);
    assert_eq!(to, [mac(1), mac(2)]);
    announce(&mut world, mac(3), ROUTER);
    let to = sends_again(&mut world, [FAR, host(7)]);
    assert_eq!(to, [mac(3), mac(2)]);
}

/// An open connection from another network.
fn accept_far(world: &mut World) -> ConnectionId {
    let listener = world.server.listen(([0, 0, 0, 0], 81), 4).unwrap();
    let to_port = |mut frame: Vec<u8>, ack: u32| {
        frame[36..38].copy_from_slice(&81u16.to_be_bytes());
        frame[42..46].copy_from_slice(&ack.to_be_bytes());
        frame[50..52].fill(0);
        let sum = Sum::new()
            .plus_pseudo_header(FAR.octets(), SERVER.octets(), 6, 20)
            .plus(&frame[34..])
            .finish();
        frame[50..52].copy_from_slice(&[!sum[0], !sum[1]]);
        frame
    };
    let sent = answers(world, &to_port(from_far(flags::SYN, 7), 0));
    let seq = u32::from_be_bytes(sent[0][38..42].try_into().unwrap());
    let ack = seq.wrapping_add(1);
    answers(world, &to_port(from_far(flags::ACK, 8), ack));
    world.server.accept(listener).unwrap().0
}

/// Sends a datagram to another host of the other network: the stations of its frames.
fn datagram_to(world: &mut World, host: u8) -> Vec<[u8; 6]> {
    let to = Ipv4Addr::new(192, 0, 2, host);
    let socket = world.server.bind(([0, 0, 0, 0], 0)).unwrap();
    let now = world.now;
    let to_socket = SocketAddr::from((to, 53));
    world.server.send_to(socket, b"?", to_socket, now).unwrap();
    stations(&world.server.link().take_sent(), to)
}

/// One silent peer does not cut this host off from the router that it is behind.
#[test]
fn a_router_is_used_while_it_is_probed_and_lost_when_it_does_not_answer() {
    let mut world = behind_router(222);
    let connection = accept_far(&mut world);
    let now = world.now;
    write(&mut world.server, connection, b"hello", now).unwrap();
    world.server.link().take_sent();
    let mut requests = Vec::new();
    for _ in 0..50 {
        let sent = next_sent(&mut world);
        let is_request = |it: &&Vec<u8>| it[12..14] == [8, 6] && it[38..42] == ROUTER.octets();
        requests.extend(sent.iter().filter(is_request).map(|it| station(it)));
        match requests.as_slice() {
            [] => {}
            [.., last] if *last == BROADCAST_MAC => break,
            _ => assert_eq!(datagram_to(&mut world, 10), [mac(1)], "{requests:?}"),
        }
    }
    assert_eq!(requests, [mac(1), mac(1), mac(1), BROADCAST_MAC]);
    assert!(datagram_to(&mut world, 11).is_empty());
    // It answers from another station: datagrams and connections go there.
    let reply = arp(REPLY, OWN_MAC, (mac(5), ROUTER), SERVER);
    let mut sent = answers(&mut world, &reply);
    assert_eq!(stations(&sent, Ipv4Addr::new(192, 0, 2, 11)), [mac(5)]);
    for _ in 0..50 {
        if !stations(&sent, FAR).is_empty() {
            break;
        }
        sent = next_sent(&mut world);
    }
    assert_eq!(stations(&sent, FAR), [mac(5)]);
}

/// A neighbour advertisement of `target` without its hardware address.
fn advertisement(target: u16, bits: u8) -> Vec<u8> {
    let mut message = vec![136, 0, 0, 0, bits, 0, 0, 0];
    message.extend(host_address(target).octets());
    message
}

const SOLICITED: u8 = 0x40;

/// RFC 4861, 7.2.4: an answer to a request at a hardware address need not repeat it.
#[test]
fn an_answer_without_a_hardware_address_confirms_the_known_one() {
    let mut world = super::ipv6::world();
    let any = IpAddr::from([0u16; 8]);
    let listener = world.server.listen((any, 80), 4).unwrap();
    let to = SocketAddr::from((host_address(1), 80));
    world.client.connect(to, world.now).unwrap();
    world.run_until_quiet();
    let (server, _) = world.server.accept(listener).unwrap();
    write(&mut world.server, server, b"hello", world.now).unwrap();
    let peer = IpAddr::V6(host_address(2));
    let station = [2, 0, 0, 0, 0, 2];
    let is_probed = |world: &World| world.server.wire.neighbours.probe_deadline().is_some();
    let known = |world: &World| world.server.wire.neighbours.get(peer, world.now);
    let probe_again = |world: &mut World| {
        for _ in 0..50 {
            if is_probed(world) {
                return;
            }
            next_sent(world);
        }
        panic!("no probe");
    };
    let answer = |world: &mut World, bits: u8, to| {
        let frame = from(host_address(2), station, to, &advertisement(2, bits));
        answers(world, &frame);
    };
    probe_again(&mut world);
    for (bits, to, confirms) in [
        (0, host_address(1), false),
        (SOLICITED, ALL_NODES, false),
        (SOLICITED, host_address(1), true),
    ] {
        answer(&mut world, bits, to);
        assert_eq!(is_probed(&world), !confirms, "{bits:#x} to {to}");
        assert_eq!(known(&world), Some(station));
    }
    // A broadcast request wants an answer that says where.
    probe_again(&mut world);
    for _ in 0..50 {
        if known(&world).is_none() {
            break;
        }
        next_sent(&mut world);
    }
    answer(&mut world, SOLICITED, host_address(1));
    assert!(is_probed(&world) && known(&world).is_none());
    let mut whole = advertisement(2, SOLICITED);
    whole.extend([2, 1, 2, 0, 0, 0, 0, 2]);
    let frame = from(host_address(2), station, host_address(1), &whole);
    answers(&mut world, &frame);
    assert!(!is_probed(&world));
    assert_eq!(known(&world), Some(station));
    // A host that is not known stays so.
    let stranger = from(
        host_address(9),
        mac(9),
        host_address(1),
        &advertisement(9, SOLICITED),
    );
    answers(&mut world, &stranger);
    let stranger = IpAddr::V6(host_address(9));
    assert!(!world.server.wire.neighbours.knows(stranger));
}
