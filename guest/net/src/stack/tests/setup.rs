use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::Duration;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

use super::super::{Setup, Stack};
use super::cable::{Sleeper, cable};
use super::world::{World, seeds};
use crate::frame::{self, Frame};

pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 1);

#[test]
fn the_word_for_a_static_address() {
    let Some(Setup::Static { address, gateway }) = Setup::from_word("192.168.7.2/24,192.168.7.1")
    else {
        panic!("a good word");
    };
    assert_eq!(address.address(), Ipv4Addr::new(192, 168, 7, 2));
    assert_eq!(address.prefix_len(), 24);
    assert_eq!(gateway, Some(Ipv4Addr::new(192, 168, 7, 1)));
    assert!(Setup::from_word("10.0.0.1/8").is_some());
    for word in [
        "",
        "10.0.0.1",
        "10.0.0.1/33",
        "10.0.0.1/-1",
        "10.0.0.1/24,",
        "10.0.0.1/24,x",
        "0.0.0.0/0",
        "255.255.255.255/32",
        "127.0.0.1/8",
        "224.0.0.1/4",
        "::1/64",
    ] {
        assert_eq!(Setup::from_word(word), None, "{word}");
    }
}

/// What a DHCP server gives.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    address: Ipv4Addr,
    mask: Ipv4Addr,
    router: Ipv4Addr,
    lease_s: u32,
}

pub(super) const LEASED: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 77);
pub(super) const OFFER: Offer = Offer {
    address: LEASED,
    mask: Ipv4Addr::new(255, 255, 255, 0),
    router: GATEWAY,
    lease_s: 1000,
};

/// A DHCP server on the far end of the cable: answers what was sent. How many
/// answers that were, and the types of the other messages.
fn answer_dhcp(world: &mut World, offer: Offer) -> (usize, Vec<DhcpMessageType>) {
    let (mut answers, mut others) = (0, Vec::new());
    for frame in world.client.link().take_sent() {
        let Ok(Frame::Udp(frame::Datagram { flow, .. })) = frame::parse(&frame) else {
            continue;
        };
        if flow.local.port() != 67 {
            continue;
        }
        let asked = DhcpPacket::new_checked(&frame[42..]).unwrap();
        let asked = DhcpRepr::parse(&asked).unwrap();
        let message_type = match asked.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            DhcpMessageType::Request => DhcpMessageType::Ack,
            other => {
                others.push(other);
                continue;
            }
        };
        let reply = DhcpRepr {
            message_type,
            your_ip: offer.address,
            server_ip: GATEWAY,
            router: Some(offer.router),
            subnet_mask: Some(offer.mask),
            server_identifier: Some(GATEWAY),
            lease_duration: Some(offer.lease_s),
            requested_ip: None,
            client_identifier: None,
            parameter_request_list: None,
            max_size: None,
            client_ip: Ipv4Addr::UNSPECIFIED,
            ..asked
        };
        let bytes = dhcp_frame(&reply, offer.address);
        world.client.link().inject(&bytes);
        answers += 1;
    }
    (answers, others)
}

/// Lets client and server exchange frames until both are silent.
pub(super) fn converse(world: &mut World, offer: Offer) -> usize {
    let mut answered = 0;
    loop {
        world.client.poll(world.now, 16);
        match answer_dhcp(world, offer).0 {
            0 => return answered,
            more => answered += more,
        }
    }
}

fn dhcp_frame(reply: &DhcpRepr<'_>, to: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; 42 + reply.buffer_len()];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 0]);
    let udp = UdpRepr {
        src_port: 67,
        dst_port: 68,
    };
    let ip = Ipv4Repr {
        src_addr: GATEWAY,
        dst_addr: to,
        next_header: IpProtocol::Udp,
        payload_len: 8 + reply.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &checksums);
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut bytes[34..]),
        &GATEWAY.into(),
        &to.into(),
        reply.buffer_len(),
        |payload| reply.emit(&mut DhcpPacket::new_unchecked(payload)).unwrap(),
        &checksums,
    );
    bytes
}

pub(super) fn with_dhcp() -> World {
    let mut world = World::new(70);
    let (_, link) = cable(71);
    world.client = Stack::new(link, Setup::Dhcp, seeds(72), world.now);
    world
}

#[test]
fn dhcp_gives_an_address_and_renews_it() {
    let mut world = with_dhcp();
    let waiter = Sleeper::default();
    world.client.wait_address(waiter.clone());
    assert_eq!(world.client.address(), None);
    converse(&mut world, OFFER);
    assert_eq!(world.client.address(), Some(OFFER.address));
    assert!(waiter.0.get() >= 1);

    // Half of the lease later it asks again, and not before.
    let renew = world.client.deadline().unwrap();
    assert_eq!((renew - world.now).secs(), 500);
    world.now = renew;
    world.client.poll(world.now, 16);
    // The renewal goes to the server itself, whose hardware address it resolves first.
    let asked = world.client.link().take_sent();
    assert_eq!(frame::parse(&asked[0]), Ok(Frame::Arp));
}

/// Passes the time of a lease's half, in which the server's hardware address is found.
fn renew(world: &mut World, offer: Offer) {
    world.now = world.client.deadline().unwrap();
    world.client.poll(world.now, 16);
    world.client.link().take_sent();
    let mut reply = Vec::from([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 6]);
    reply.extend([0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9]);
    reply.extend(GATEWAY.octets());
    reply.extend([2, 0, 0, 0, 0, 2]);
    reply.extend(offer.address.octets());
    world.client.link().inject(&reply);
    for _ in 0..20 {
        if converse(world, offer) > 0 {
            return;
        }
        world.now = world.client.deadline().unwrap();
    }
    panic!("no renewal");
}

#[test]
fn a_renewal_brings_a_new_mask_and_router() {
    let mut world = with_dhcp();
    converse(&mut world, OFFER);
    let far = Ipv4Addr::new(192, 168, 200, 5);
    assert!(!world.client.wire.is_on_link(far.into()));
    let wide = Offer {
        mask: Ipv4Addr::new(255, 255, 0, 0),
        ..OFFER
    };
    renew(&mut world, wide);
    assert!(world.client.wire.is_on_link(far.into()));
    assert_eq!(world.client.address(), Some(OFFER.address));
}

#[test]
fn a_lease_of_no_time_is_not_asked_for_again_at_once() {
    let mut world = with_dhcp();
    let nothing = Offer {
        lease_s: 0,
        ..OFFER
    };
    let begin = world.now;
    let mut answered = 0;
    while world.now < begin + Duration::from_secs(60) {
        answered += converse(&mut world, nothing);
        let next = world.client.deadline().unwrap();
        world.now = next.max(world.now + Duration::from_millis(1));
    }
    assert!((2..=30).contains(&answered), "{answered}");
}

#[test]
fn an_address_that_no_host_may_have_is_declined() {
    let mut world = with_dhcp();
    let loopback = Offer {
        address: Ipv4Addr::LOCALHOST,
        ..OFFER
    };
    let (mut answered, mut declined) = (0, 0);
    for _ in 0..4 {
        world.client.poll(world.now, 16);
        let (answers, others) = answer_dhcp(&mut world, loopback);
        answered += answers;
        declined += others.len();
        assert!(others.iter().all(|kind| *kind == DhcpMessageType::Decline));
    }
    assert_eq!((answered, declined), (2, 1));
    assert_eq!(world.client.address(), None);
    // Ten seconds later it asks again, and takes what is good.
    assert_eq!((world.client.deadline().unwrap() - world.now).secs(), 10);
    world.now += Duration::from_secs(10);
    converse(&mut world, OFFER);
    assert_eq!(world.client.address(), Some(OFFER.address));
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut world = with_dhcp();
    converse(&mut world, OFFER);
    let mut claim = Vec::from([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 7, 8, 6]);
    claim.extend([0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 7]);
    claim.extend(OFFER.address.octets());
    claim.extend([2, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    world.client.link().inject(&claim);
    world.client.poll(world.now, 16);
    assert_eq!(world.client.address(), None);
    let (_, others) = answer_dhcp(&mut world, OFFER);
    assert_eq!(others, [DhcpMessageType::Decline]);
    assert_eq!(world.client.counters().leases_declined, 1);
    world.now += Duration::from_secs(10);
    let other = Offer {
        address: Ipv4Addr::new(192, 168, 9, 78),
        ..OFFER
    };
    converse(&mut world, other);
    assert_eq!(world.client.address(), Some(other.address));
}

#[test]
fn without_a_server_dhcp_asks_again() {
    let mut world = with_dhcp();
    let mut asked = 0;
    for _ in 0..20 {
        asked += world.client.link().take_sent().len();
        world.now = world.client.deadline().unwrap();
        world.client.poll(world.now, 16);
    }
    assert!(asked >= 10, "{asked}");
    assert!(world.now.secs() > 30, "not in a hurry: {}", world.now);
    assert_eq!(world.client.address(), None);
}
