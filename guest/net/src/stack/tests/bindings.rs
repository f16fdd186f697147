//! Sockets that are bound to an address or a port before they send.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use tare_io::ErrorKind;

use super::super::Take;
use super::ipv6::{host_address, world};
use crate::binding::{Binding, Sharing};

fn any_v4(port: u16) -> Binding {
    SocketAddr::from(([0, 0, 0, 0], port)).into()
}

fn any_v6(port: u16, only_v6: bool) -> Binding {
    let address = SocketAddr::from(([0u16; 8], port));
    Binding {
        only_v6,
        ..address.into()
    }
}

const SERVER_V4: IpAddr = IpAddr::V4(super::world::SERVER);

#[test]
fn a_connection_comes_from_the_port_that_it_is_bound_to() {
    let mut world = world();
    let listener = world.server.listen_as(any_v6(80, false), 4).unwrap();
    let mut previous = None;
    for address in [SERVER_V4, host_address(1).into()] {
        let to = SocketAddr::new(address, 80);
        let bound = any_v6(4000, false);
        let client = world.client.connect_from(bound, to, world.now).unwrap();
        let again = world.client.connect_from(bound, to, world.now).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrNotAvailable);
        world.run_until_quiet();
        world.client.connected(client).unwrap();
        let (_, peer) = world.server.accept(listener).unwrap();
        assert_eq!((peer.port(), peer.is_ipv6()), (4000, address.is_ipv6()));
        assert_ne!(previous.replace(peer), Some(peer));
    }
}

#[test]
fn nothing_is_sent_to_a_family_that_a_socket_has_no_address_of() {
    let mut world = world();
    let v6 = SocketAddr::from((host_address(1), 80));
    let v4 = SocketAddr::new(SERVER_V4, 80);
    let one_v6 = SocketAddr::from((host_address(2), 5000)).into();
    for (bound, to) in [
        (any_v4(5000), v6),
        (any_v6(5000, true), v4),
        (one_v6, v4),
        (SocketAddr::from(([10, 0, 0, 2], 5000)).into(), v6),
    ] {
        let stream = world.client.connect_from(bound, to, world.now);
        assert_eq!(stream.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        let socket = world.client.bind_as(bound).unwrap();
        let sent = world.client.send_to(socket, b"x", to, world.now);
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        let connected = world.client.connect_datagrams(socket, Some(to), world.now);
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        world.client.close_datagrams(socket);
    }
}

#[test]
fn an_address_of_the_loopback_is_no_source_on_the_wire() {
    let mut world = world();
    let to = SocketAddr::new(SERVER_V4, 80);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 5000)).into();
    let stream = world.client.connect_from(loopback, to, world.now);
    assert_eq!(stream.unwrap_err().kind(), ErrorKind::InvalidInput);
    let socket = world.client.bind_as(loopback).unwrap();
    let sent = world.client.send_to(socket, b"x", to, world.now);
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidInput);
    let here = SocketAddr::from(([127, 0, 0, 1], 5000));
    assert_eq!(world.client.send_to(socket, b"x", here, world.now), Ok(1));
}

#[test]
fn a_datagram_of_ipv4_goes_to_the_socket_that_takes_it() {
    let mut world = world();
    let six = world.server.bind_as(any_v6(53, true)).unwrap();
    let four = world.server.bind_as(any_v4(53)).unwrap();
    let both = world.server.bind_as(any_v6(53, false));
    assert_eq!(both.unwrap_err().kind(), ErrorKind::AddrInUse);
    let client = world.client.bind_as(any_v6(0, false)).unwrap();
    let (mut buf, now) = ([0; 9], world.now);
    for (address, expected, other) in [(SERVER_V4, four, six), (host_address(1).into(), six, four)]
    {
        let to = SocketAddr::new(address, 53);
        world.client.send_to(client, b"abc", to, now).unwrap();
        world.run_until_quiet();
        let nothing = world.server.receive_from(other, &mut buf, Take::Remove);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
        let received = world.server.receive_from(expected, &mut buf, Take::Remove);
        assert_eq!(received.unwrap().0, 3);
    }
}

#[test]
fn of_sockets_that_share_a_port_one_gets_a_datagram() {
    let mut world = world();
    let any = |address, port| Binding {
        sharing: Sharing { address, port },
        ..any_v4(53)
    };
    let first = world.server.bind_as(any(true, false)).unwrap();
    for other in [any(false, false), any(false, true)] {
        let refused = world.server.bind_as(other).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    }
    let last = world.server.bind_as(any(true, true)).unwrap();
    let client = world.client.bind_as(any_v4(4000)).unwrap();
    let to = SocketAddr::new(SERVER_V4, 53);
    let from = SocketAddr::from((super::world::CLIENT, 4000));
    let (mut buf, now) = ([0; 9], world.now);
    for (connected, expected, other) in [(false, last, first), (true, first, last)] {
        if connected {
            let peer = Some(from);
            world.server.connect_datagrams(first, peer, now).unwrap();
        }
        world.client.send_to(client, b"abc", to, now).unwrap();
        world.run_until_quiet();
        let nothing = world.server.receive_from(other, &mut buf, Take::Remove);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
        let received = world.server.receive_from(expected, &mut buf, Take::Remove);
        assert_eq!(received.unwrap(), (3, from));
    }
}

#[test]
fn sockets_that_divide_their_peers_have_some_each_and_keep_them() {
    let mut world = world();
    let shared = Binding {
        sharing: Sharing {
            address: false,
            port: true,
        },
        ..any_v4(53)
    };
    let servers = [(); 4].map(|()| world.server.bind_as(shared).unwrap());
    let to = SocketAddr::new(SERVER_V4, 53);
    let (mut buf, now) = ([0; 9], world.now);
    let mut peers = [0; 4];
    for _ in 0..100 {
        let client = world.client.bind_as(any_v4(0)).unwrap();
        let mut takers = Vec::new();
        for _ in 0..3 {
            world.client.send_to(client, b"abc", to, now).unwrap();
            world.run_until_quiet();
            takers.extend(servers.iter().position(|server| {
                let received = world.server.receive_from(*server, &mut buf, Take::Remove);
                received.is_ok()
            }));
        }
        assert!(takers.len() == 3 && takers.iter().all(|taker| *taker == takers[0]));
        peers[takers[0]] += 1;
        world.client.close_datagrams(client);
    }
    assert!(peers.iter().all(|count| *count > 10), "{peers:?}");
}

#[test]
fn listeners_that_divide_their_peers_have_some_each_and_their_own_backlog() {
    let mut world = world();
    let shared = Binding {
        sharing: Sharing {
            address: false,
            port: true,
        },
        ..any_v4(80)
    };
    let listeners = [(); 4].map(|()| world.server.listen_as(shared, 200).unwrap());
    let refused = world.server.listen_as(any_v4(80), 200).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    let to = SocketAddr::new(SERVER_V4, 80);
    let connect = |world: &mut super::world::World| {
        let clients = [(); 100].map(|()| world.client.connect(to, world.now).unwrap());
        world.run_until_quiet();
        clients
    };
    let clients = connect(&mut world);
    world.server.close_listener(listeners[0], world.now);
    world.run_until_quiet();
    let mut accepted = Vec::new();
    for listener in &listeners[1..] {
        let before = accepted.len();
        accepted.extend(core::iter::from_fn(|| world.server.accept(*listener).ok()));
        assert!(accepted.len() - before > 10, "{}", accepted.len() - before);
    }
    let is_lost = |client: &_| world.client.failure(*client).unwrap().is_some();
    let lost = clients.iter().copied().filter(is_lost).count();
    assert!(lost > 10 && lost + accepted.len() == 100, "{lost}");
    // Those that are left have all that come now; one that is full does not fill the others.
    let small = Binding {
        address: SocketAddr::new(SERVER_V4, 80),
        ..shared
    };
    let nearest = world.server.listen_as(small, 7).unwrap();
    connect(&mut world);
    let mut count = |listener| core::iter::from_fn(|| world.server.accept(listener).ok()).count();
    assert_eq!(count(nearest), 7);
    assert_eq!(
        listeners[1..].iter().map(|one| count(*one)).sum::<usize>(),
        0
    );
}

#[test]
fn the_longest_datagram_of_ipv4_arrives_in_fragments() {
    let mut world = world();
    let server = world.server.bind_as(any_v4(53)).unwrap();
    let client = world.client.bind_as(any_v4(4000)).unwrap();
    let (to, now) = (SocketAddr::new(SERVER_V4, 53), world.now);
    let data: Vec<u8> = (0..65_507).map(|at| (at / 3) as u8).collect();
    world.client.send_to(client, b"resolves", to, now).unwrap();
    world.run_until_quiet();
    let mut buf = std::vec![0; 65_507];
    world
        .server
        .receive_from(server, &mut buf, Take::Remove)
        .unwrap();
    for len in [1473, 65_507, 9000] {
        world.client.send_to(client, &data[..len], to, now).unwrap();
        world.run_until_quiet();
        let (received, from) = world
            .server
            .receive_from(server, &mut buf, Take::Remove)
            .unwrap();
        assert_eq!((received, &buf[..received]), (len, &data[..len]));
        world
            .server
            .send_to(server, &buf[..received], from, now)
            .unwrap();
        world.run_until_quiet();
        let (received, _) = world
            .client
            .receive_from(client, &mut buf, Take::Remove)
            .unwrap();
        assert_eq!((received, &buf[..received]), (len, &data[..len]));
    }
    assert_eq!(world.server.counters().fragments, 0);
    // No socket has it.
    world
        .client
        .send_to(client, &data[..3000], SocketAddr::new(SERVER_V4, 54), now)
        .unwrap();
    world.run_until_quiet();
    assert_eq!(world.server.counters().udp_dropped, 1);
}
