use core::net::{Ipv4Addr, SocketAddrV4};

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
    let (n, from) = world.server.receive_from(server, &mut buf).unwrap();
    assert_eq!((&buf[..n], from.ip()), (&b"question"[..], &CLIENT));
    world
        .server
        .send_to(server, b"answer", from, world.now)
        .unwrap();
    world.settle();
    let (n, from) = world.client.receive_from(client, &mut buf[..3]).unwrap();
    assert_eq!((&buf[..n], from), (&b"ans"[..], to));
    let error = world.client.receive_from(client, &mut buf).unwrap_err();
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
    let (n, from) = world.server.receive_from(two, &mut buf).unwrap();
    assert_eq!(&buf[..n], b"hello");
    assert_eq!(from, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1000));
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
