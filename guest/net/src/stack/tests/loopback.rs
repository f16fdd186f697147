use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::time::Duration;
use tare_io::ErrorKind;

use super::world::{CLAIMS, SERVER, World, read_into, write};

fn talk_over(address: Ipv4Addr) {
    let mut world = World::new(40);
    let listener = world.listen(4);
    let to = SocketAddrV4::new(address, 80);
    let client = world.server.connect(to, world.now).unwrap();
    world.server.connected(client).unwrap();
    let (server, from) = world.server.accept(listener).unwrap();
    assert_eq!(from.ip(), address);
    let data = [5; 50_000];
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < data.len() {
        sent += write(&mut world.server, client, &data[sent..], world.now).unwrap();
        world.pass(Duration::from_millis(50));
        read_into(&mut world.server, server, &mut got, world.now).unwrap();
    }
    assert_eq!(got, data);
    assert_eq!(world.server.link().sent, CLAIMS);
    world.server.close(client, world.now);
    world.run_until_quiet();
    assert!(read_into(&mut world.server, server, &mut got, world.now).unwrap());
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(11));
    assert_eq!(world.server.counters().connections, 0);
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn localhost_works_within_the_guest() {
    talk_over(Ipv4Addr::LOCALHOST);
}

#[test]
fn the_own_address_works_within_the_guest() {
    talk_over(SERVER);
}

#[test]
fn localhost_refuses_a_port_without_a_listener() {
    let mut world = World::new(41);
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 81);
    let id = world.server.connect(to, world.now).unwrap();
    let error = world.server.connected(id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}
