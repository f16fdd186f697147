use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

use super::super::{Setup, Stack};
use super::cable::{Sleeper, cable};
use super::world::World;
use crate::net::frame::{self, Frame};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 1);

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

/// A DHCP server on the far end of the cable: answers what was sent.
fn answer_dhcp(world: &mut World, offered: Ipv4Addr, lease_s: u32) -> usize {
    let mut answers = 0;
    for frame in world.client.link().take_sent() {
        let Ok(Frame::Udp(flow)) = frame::parse(&frame) else {
            continue;
        };
        if flow.local.port() != 67 {
            continue;
        }
        let asked = DhcpPacket::new_checked(&frame[42..]).unwrap();
        let asked = DhcpRepr::parse(&asked).unwrap();
        let message_type = match asked.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            _ => DhcpMessageType::Ack,
        };
        let reply = DhcpRepr {
            message_type,
            your_ip: offered,
            server_ip: GATEWAY,
            router: Some(GATEWAY),
            subnet_mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            server_identifier: Some(GATEWAY),
            lease_duration: Some(lease_s),
            requested_ip: None,
            client_identifier: None,
            parameter_request_list: None,
            max_size: None,
            client_ip: Ipv4Addr::UNSPECIFIED,
            ..asked
        };
        let bytes = dhcp_frame(&reply, offered);
        world.client.link().inject(&bytes);
        answers += 1;
    }
    answers
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

fn with_dhcp() -> World {
    let mut world = World::new(70);
    let (_, link) = cable(71);
    world.client = Stack::new(link, Setup::Dhcp, 72, world.now);
    world
}

#[test]
fn dhcp_gives_an_address_and_renews_it() {
    let mut world = with_dhcp();
    let waiter = Sleeper::default();
    world.client.wait_address(waiter.clone());
    assert_eq!(world.client.address(), None);
    let offered = Ipv4Addr::new(192, 168, 9, 77);
    while answer_dhcp(&mut world, offered, 1000) > 0 {
        world.client.poll(world.now, 16);
    }
    assert_eq!(world.client.address(), Some(offered));
    assert!(waiter.0.get() >= 1);

    // Half of the lease later it asks again, and not before.
    let renew = world.client.deadline().unwrap();
    assert_eq!((renew - world.now).secs(), 500);
    world.now = renew;
    world.client.poll(world.now, 16);
    // The renewal goes to the server itself, whose hardware address is asked for.
    let asked = world.client.link().take_sent();
    assert_eq!(frame::parse(&asked[0]), Ok(Frame::Arp));
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
