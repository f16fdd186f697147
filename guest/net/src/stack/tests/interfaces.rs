use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::{Interface, Setup, Stack};
use super::cable::{Sleeper, cable};
use super::world::{SERVER, seeds};
use super::{ipv6, setup};
use smoltcp::time::Instant;

/// Addresses with the lengths of their networks.
fn addresses(interface: &Interface) -> Vec<(IpAddr, u8)> {
    let networks = interface.networks.iter();
    networks.map(|it| (it.address, it.prefix_len)).collect()
}

#[test]
fn the_wire_and_the_loopback_have_their_addresses() {
    let mut world = ipv6::world();
    let interfaces = world.server.interfaces();
    let [loopback, wire] = &interfaces[..] else {
        panic!("{interfaces:?}");
    };
    let localhost = [
        ("127.0.0.1".parse().unwrap(), 8),
        ("::1".parse().unwrap(), 128),
    ];
    assert_eq!(addresses(loopback), localhost);
    assert_eq!((loopback.mac, loopback.mtu), (None, 16_384));
    assert!(loopback.routers.is_empty());
    let own = addresses(wire);
    assert_eq!(own[0], (SERVER.into(), 24));
    assert!(own.contains(&(ipv6::host_address(1).into(), 64)), "{own:?}");
    assert!(wire.mac.is_some());
    assert!(wire.routers.is_empty());
}

#[test]
fn a_lease_shows_when_it_is_there() {
    let mut world = setup::with_dhcp();
    setup::converse(&mut world, setup::OFFER);
    let wire = world.client.interfaces().pop().unwrap();
    assert_eq!(addresses(&wire), [(setup::LEASED.into(), 24)]);
    assert_eq!(wire.routers, [IpAddr::from(setup::GATEWAY)]);
    let (link, _other) = cable(7);
    let now = Instant::from_millis(1);
    let mut stack: Stack<_, Sleeper> = Stack::new(link, Setup::Dhcp, seeds(7), now);
    let wire = stack.interfaces().pop().unwrap();
    assert_eq!((wire.networks, wire.routers), (Vec::new(), Vec::new()));
}

#[test]
fn without_a_network_there_is_the_loopback_alone() {
    let (link, _other) = cable(7);
    let now = Instant::from_millis(1);
    let mut stack: Stack<_, Sleeper> = Stack::new(link, Setup::LoopbackOnly, seeds(7), now);
    assert_eq!(stack.interfaces().len(), 1);
}
