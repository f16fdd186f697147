use core::net::{Ipv4Addr, SocketAddrV4};

use super::super::Take;
use super::cable::Sleeper;
use super::world::{CLIENT, SERVER, World};
use crate::io::ErrorKind;

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

#[test]
fn datagrams_go_both_ways_and_wake_the_reader() {
    let mut world = World::new(50);
    let server = world.server.bind(SocketAddrV4::new(ANY, 53)).unwrap();
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let reader = Sleeper::default();
    world.server.wait_datagram(server, reader.clone());
    let to = SocketAddrV4::new(SERVER, 53);
    // The first waits for the hardware address, and is not lost.
    world
        .client
        .send_to(client, b"question", to, world.now)
        .unwrap();
    world.settle();
    assert_eq!(reader.0.get(), 1);
    let mut buf = [0; 100];
    let (n, from) = world
        .server
        .receive_from(server, &mut buf, Take::Remove)
        .unwrap();
    assert_eq!((&buf[..n], from.ip()), (&b"question"[..], CLIENT.into()));
    world
        .server
        .send_to(server, b"answer", from, world.now)
        .unwrap();
    world.settle();
    let (n, from) = world
        .client
        .receive_from(client, &mut buf[..3], Take::Remove)
        .unwrap();
    assert_eq!((n, &buf[..3], from), (6, &b"ans"[..], to.into()));
    let error = world
        .client
        .receive_from(client, &mut buf, Take::Remove)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn localhost_has_datagrams_too() {
    let mut world = World::new(51);
    let one = world.server.bind(SocketAddrV4::new(ANY, 1000)).unwrap();
    let two = world.server.bind(SocketAddrV4::new(ANY, 2000)).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2000);
    world.server.send_to(one, b"hello", to, world.now).unwrap();
    let mut buf = [0; 10];
    let (n, from) = world
        .server
        .receive_from(two, &mut buf, Take::Remove)
        .unwrap();
    assert_eq!(&buf[..n], b"hello");
    assert_eq!(from, (Ipv4Addr::LOCALHOST, 1000).into());
}

#[test]
fn a_bound_port_is_taken_until_it_is_closed() {
    let mut world = World::new(52);
    let local = SocketAddrV4::new(ANY, 7);
    let id = world.server.bind(local).unwrap();
    assert_eq!(
        world.server.bind(local).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    world.server.close_datagrams(id);
    assert!(world.server.bind(local).is_ok());
}

#[test]
fn a_connected_socket_learns_of_a_closed_port_and_hears_its_peer_only() {
    let mut world = World::new(53);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 4000);
    world
        .client
        .connect_datagrams(client, Some(to.into()), world.now)
        .unwrap();
    let reader = Sleeper::default();
    world.client.wait_datagram(client, reader.clone());
    world.client.send_to(client, b"hi", to, world.now).unwrap();
    world.settle();
    assert_eq!(reader.0.get(), 1);
    assert!(world.client.datagram_readiness(client).failed);
    let mut buf = [0; 10];
    let refused = world.client.receive_from(client, &mut buf, Take::Remove);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let quiet = world.client.receive_from(client, &mut buf, Take::Remove);
    assert_eq!(quiet.unwrap_err().kind(), ErrorKind::WouldBlock);

    let other = world.server.bind(SocketAddrV4::new(ANY, 4001)).unwrap();
    let back = SocketAddrV4::new(CLIENT, world.client.bound(client).unwrap().port());
    world.server.send_to(other, b"no", back, world.now).unwrap();
    let peer = world.server.bind(to).unwrap();
    world.server.send_to(peer, b"yes", back, world.now).unwrap();
    world.settle();
    for take in [Take::Peek, Take::Remove] {
        let (n, from) = world.client.receive_from(client, &mut buf, take).unwrap();
        assert_eq!((&buf[..n], from), (&b"yes"[..], to.into()));
    }
    assert!(!world.client.datagram_readiness(client).readable);
}

#[test]
fn datagrams_to_a_silent_neighbour_are_given_up() {
    let mut world = World::new(54);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 53);
    world
        .client
        .connect_datagrams(client, Some(to.into()), world.now)
        .unwrap();
    for _ in 0..16 {
        world.client.send_to(client, b"hi", to, world.now).unwrap();
    }
    assert!(!world.client.datagram_readiness(client).writable);
    let full = world.client.send_to(client, b"hi", to, world.now);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::WouldBlock);
    world
        .client
        .connect_datagrams(client, None, world.now)
        .unwrap();
    let writer = Sleeper::default();
    world.client.wait_datagram(client, writer.clone());
    world.pass(smoltcp::time::Duration::from_secs(5));
    assert_eq!(writer.0.get(), 1);
    assert!(world.client.datagram_readiness(client).writable);
    world
        .client
        .connect_datagrams(client, Some(to.into()), world.now)
        .unwrap();
    world.client.send_to(client, b"hi", to, world.now).unwrap();
    world.pass(smoltcp::time::Duration::from_secs(5));
    let lost = world.client.receive_from(client, &mut [0], Take::Remove);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn what_a_socket_keeps_is_bounded() {
    let mut world = World::new(55);
    let server = world.server.bind(SocketAddrV4::new(ANY, 53)).unwrap();
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 53);
    for _ in 0..1000 {
        world
            .client
            .send_to(client, &[7; 1400], to, world.now)
            .unwrap();
        world.settle();
    }
    let mut kept = 0;
    let mut take = || world.server.receive_from(server, &mut [0], Take::Remove);
    while let Ok((1400, _)) = take() {
        kept += 1;
    }
    assert_eq!(kept, 128 * 1024 / 1400);
    assert_eq!(world.server.counters().udp_dropped, 1000 - kept);
    let long = world.client.send_to(client, &[0; 1473], to, world.now);
    assert_eq!(long.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// What readiness says and what sending does are the same, or a program spins.
#[test]
fn a_socket_on_a_full_link_is_not_writable_until_there_is_room() {
    let mut world = World::new(57);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 53);
    world.client.link().room = 0;
    assert!(!world.client.datagram_readiness(client).writable);
    let refused = world.client.send_to(client, b"?", to, world.now);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldBlock);
    let writer = Sleeper::default();
    world.client.wait_datagram(client, writer.clone());
    world.client.poll(world.now, 16);
    assert_eq!(writer.0.get(), 0);
    world.client.link().room = 64;
    world.client.poll(world.now, 16);
    assert_eq!(writer.0.get(), 1);
    assert!(world.client.datagram_readiness(client).writable);
    world.client.send_to(client, b"?", to, world.now).unwrap();
}
