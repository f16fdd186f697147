use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use smoltcp::time::Duration;
use tare_io::ErrorKind;

use super::super::{Ipv6Setup, Take};
use super::cable::Sleeper;
use super::world::{World, read_into, write};
use crate::frame::{self, Frame, FrameError, Icmpv6};
use crate::ipv6::address::{ALL_NODES, group_mac, is_within, solicited_node};
use crate::ipv6::message::{self, Message, Occasion};
use crate::link::{Properties, SendChecksums};
use crate::transmit::{Alert, send_on_link};

const ANY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 0);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xff];

/// Two hosts in 2001:db8:7::/64, ::1 and ::2.
pub(super) fn world() -> World {
    let mut world = World::new(60);
    let now = world.now;
    for (stack, host) in [(&mut world.server, 1), (&mut world.client, 2)] {
        let setup = Ipv6Setup::Static {
            address: host_address(host),
            prefix_len: 64,
            gateway: None,
        };
        stack.start_ipv6(setup, [host as u8; 16], now);
    }
    world.run_until_quiet();
    world
}

pub(super) fn host_address(host: u16) -> Ipv6Addr {
    Ipv6Addr::from_bits(PREFIX.to_bits() | u128::from(host))
}

/// A frame with a message from the router to all nodes.
fn from_router(message: &[u8]) -> Vec<u8> {
    from(ROUTER, ROUTER_MAC, ALL_NODES, message)
}

pub(super) fn from(source: Ipv6Addr, mac: [u8; 6], to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let (mut here, mut there) = super::cable::cable(1);
    let properties = Properties {
        mac,
        checksums: SendChecksums::Software,
        ..crate::link::Link::properties(&here)
    };
    let pair = (source, to);
    send_on_link(
        &mut here,
        &properties,
        group_mac(to),
        pair,
        Alert::None,
        &mut message,
    );
    let received = crate::link::Link::receive(&mut there).unwrap();
    received.buffer
}

/// A router advertisement: one network with this life, a name server.
fn advertisement(lifetime_s: u16, flags: u8, valid_s: u32, mtu: u32) -> Vec<u8> {
    let mut message = Vec::from([134, 0, 0, 0, 64, flags]);
    message.extend(lifetime_s.to_be_bytes());
    message.extend([0; 8]);
    message.extend([3, 4, 64, 0xc0]);
    message.extend(valid_s.to_be_bytes());
    message.extend((valid_s / 2).to_be_bytes());
    message.extend([0; 4]);
    message.extend(PREFIX.octets());
    message.extend([5, 1, 0, 0]);
    message.extend(mtu.to_be_bytes());
    message
}

/// The messages of neighbour discovery that the client has sent.
fn sent(world: &mut World) -> Vec<(Icmpv6, Vec<u8>)> {
    let frames = world.client.link().take_sent();
    let messages = frames.iter().filter_map(|bytes| match frame::parse(bytes) {
        Ok(Frame::Icmpv6(found)) => {
            let message = bytes[usize::from(found.start)..usize::from(found.end)].to_vec();
            Some((found, message))
        }
        _ => None,
    });
    messages.collect()
}

#[test]
fn a_dual_stack_listener_serves_both_families() {
    let mut world = world();
    let listener = world.server.listen((ANY, 80), 10).unwrap();
    let taken = world.server.listen(([0, 0, 0, 0], 80), 10).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let data: Vec<u8> = (0..300_000u32).map(|n| (n * 7) as u8).collect();
    for address in [IpAddr::from([10, 0, 0, 1]), host_address(1).into()] {
        let client = world.client.connect((address, 80), world.now).unwrap();
        world.run_until_quiet();
        world.client.connected(client).unwrap();
        let (server, peer) = world.server.accept(listener).unwrap();
        assert_eq!(peer.is_ipv6(), address.is_ipv6());
        let (mut from, mut got) = (0, Vec::new());
        while got.len() < data.len() {
            from += write(&mut world.server, server, &data[from..], world.now).unwrap();
            world.pass(Duration::from_millis(1));
            read_into(&mut world.client, client, &mut got, world.now).unwrap();
        }
        assert!(got == data);
    }
    assert_eq!(world.client.counters().bad_checksum, 0);
}

#[test]
fn a_listener_of_ipv4_leaves_ipv6_to_others() {
    let mut world = world();
    world.server.listen(([0, 0, 0, 0], 80), 10).unwrap();
    world.server.listen((host_address(1), 80), 10).unwrap();
    let unknown = world.client.connect((host_address(1), 81), world.now);
    world.run_until_quiet();
    let refused = world.client.connected(unknown.unwrap()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn datagrams_and_closed_ports_over_ipv6() {
    let mut world = world();
    let server = world.server.bind((ANY, 53)).unwrap();
    let client = world.client.bind((ANY, 0)).unwrap();
    let to = SocketAddr::from((host_address(1), 53));
    world
        .client
        .send_to(client, b"question", to, world.now)
        .unwrap();
    world.run_until_quiet();
    let mut buf = [0; 100];
    let (n, from) = world
        .server
        .receive_from(server, &mut buf, Take::Remove)
        .unwrap();
    assert_eq!(
        (&buf[..n], from.ip()),
        (&b"question"[..], host_address(2).into())
    );
    let closed = SocketAddr::from((host_address(1), 54));
    world
        .client
        .connect_datagrams(client, Some(closed), world.now)
        .unwrap();
    world
        .client
        .send_to(client, b"?", closed, world.now)
        .unwrap();
    world.run_until_quiet();
    let refused = world.client.receive_from(client, &mut buf, Take::Remove);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let here = world.server.bind((Ipv6Addr::LOCALHOST, 9)).unwrap();
    let local = (Ipv6Addr::LOCALHOST, 9);
    world
        .server
        .send_to(server, b"me", local, world.now)
        .unwrap();
    let (n, _) = world
        .server
        .receive_from(here, &mut buf, Take::Remove)
        .unwrap();
    assert_eq!(&buf[..n], b"me");
}

#[test]
fn a_host_makes_itself_an_address_in_each_announced_network() {
    let mut world = World::new(61);
    let waiter = Sleeper::default();
    world.client.wait_address(waiter.clone());
    world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
    let kinds: Vec<_> = sent(&mut world).iter().map(|(_, it)| it[0]).collect();
    // MLD's report has an extension header; the probe; the router solicitation.
    assert_eq!(kinds, [143, 135, 133]);
    assert!(!world.client.has_global_ipv6());
    world
        .client
        .link()
        .inject(&from_router(&advertisement(1800, 0, 3600, 1400)));
    world.client.poll(world.now, 16);
    assert!(waiter.0.get() > 0);
    let addresses = world.client.addresses();
    let global = addresses
        .iter()
        .find_map(|address| match address {
            IpAddr::V6(address) if is_within(*address, PREFIX, 64) => Some(*address),
            _ => None,
        })
        .expect("an address in the network");
    assert!(sent(&mut world).iter().any(|(found, _)| {
        found.source.is_unspecified() && found.destination == solicited_node(global)
    }));
    // The router is known, so that solicitations end, and other networks are reached
    // through it.
    for _ in 0..60 {
        world.now += Duration::from_secs(1);
        world.client.poll(world.now, 16);
    }
    assert!(sent(&mut world).iter().all(|(_, it)| it[0] != 133));
    let far = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 8, 0, 0, 0, 0, 1), 53));
    let socket = world.client.bind((ANY, 0)).unwrap();
    world
        .client
        .send_to(socket, &[0; 100], far, world.now)
        .unwrap();
    let router = world.client.wire.ipv6.router().expect("a router");
    let (station, now) = ([2, 0, 0, 0, 0, 9], world.now);
    world.client.note_neighbor(router.into(), station, now);
    world.client.link().take_sent();
    for (len, fragments) in [(1352, 0), (1353, 2)] {
        world
            .client
            .send_to(socket, &std::vec![0; len], far, world.now)
            .unwrap();
        let frames = world.client.link().take_sent();
        let is_fragment = |frame: &&Vec<u8>| frame[14 + 6] == 44;
        let found = frames.iter().filter(is_fragment).count();
        assert_eq!(found, fragments, "{len} bytes on a link of 1,400");
    }
    // Nothing renews it: the address and the router end.
    world.pass(Duration::from_secs(3600));
    assert!(!world.client.has_global_ipv6());
    let lost = world
        .client
        .send_to(socket, &[0; 100], far, world.now)
        .unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn an_advertisement_shortens_no_life_below_two_hours() {
    for life in [u32::MAX, 86_400] {
        let mut world = World::new(65);
        world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
        for valid_s in [life, 0] {
            let frame = from_router(&advertisement(1800, 0, valid_s, 1500));
            world.client.link().inject(&frame);
            world.client.poll(world.now, 16);
            assert!(world.client.has_global_ipv6(), "{life} then {valid_s}");
        }
        world.pass(Duration::from_secs(2 * 3600 - 1));
        assert!(world.client.has_global_ipv6(), "{life}");
        world.pass(Duration::from_secs(1));
        assert!(!world.client.has_global_ipv6(), "{life}");
    }
}

/// What a router announces ends when it is used, so that nothing has to wake for it.
#[test]
fn announcements_arm_no_timer_and_end_on_time() {
    let mut world = World::new(66);
    world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
    let servers: [Ipv6Addr; 2] = ["2001:db8:7::53", "2001:db8:7::54"].map(|it| it.parse().unwrap());
    let announce = |world: &mut World, life_s: u32, servers: &[Ipv6Addr]| {
        let mut message = advertisement(1800, 0, 7200, 1500);
        message.extend([25, 1 + 2 * servers.len() as u8, 0, 0]);
        message.extend(life_s.to_be_bytes());
        message.extend(servers.iter().flat_map(|server| server.octets()));
        world.client.link().inject(&from_router(&message));
        world.client.poll(world.now, 16);
        world.client.name_servers(world.now)
    };
    assert_eq!(announce(&mut world, 600, &servers), servers);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.next_deadline(), None);
    // No frame comes, and what has ended is not used.
    world.now += Duration::from_secs(597);
    assert!(world.client.name_servers(world.now).is_empty());
    world.now += Duration::from_secs(1199);
    let far = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 8, 0, 0, 0, 0, 1), 53));
    let socket = world.client.bind((ANY, 0)).unwrap();
    world.client.send_to(socket, b"?", far, world.now).unwrap();
    world.now += Duration::from_secs(1);
    let lost = world.client.send_to(socket, b"?", far, world.now);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    // A life of 0 takes one back, one of all ones keeps it.
    assert_eq!(announce(&mut world, u32::MAX, &servers), servers);
    assert_eq!(announce(&mut world, 0, &servers[..1]), servers[1..]);
    world.now += Duration::from_secs(1_000_000);
    assert_eq!(world.client.name_servers(world.now), servers[1..]);
}

#[test]
fn a_router_that_is_silent_is_asked_three_times() {
    let mut world = World::new(62);
    world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
    let mut solicitations = 0;
    for _ in 0..100 {
        let sent = sent(&mut world);
        solicitations += sent.iter().filter(|(_, it)| it[0] == 133).count();
        world.now += Duration::from_secs(1);
        world.client.poll(world.now, 16);
    }
    assert_eq!(solicitations, 3);
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn an_address_of_another_host_is_given_up_for_the_next() {
    let mut world = World::new(63);
    world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
    sent(&mut world);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let Some(IpAddr::V6(own)) = world.client.addresses().last().copied() else {
            break;
        };
        assert!(!seen.contains(&own));
        seen.push(own);
        let claim = message::advertisement(own, ROUTER_MAC, Occasion::Announcement);
        let frame = from(own, ROUTER_MAC, ALL_NODES, &claim);
        world.client.link().inject(&frame);
        world.client.poll(world.now, 16);
    }
    assert_eq!(
        world.client.addresses().len(),
        1,
        "only that of IPv4 is left"
    );
    assert_eq!(seen.len(), 4);
    assert_eq!(world.client.counters().address_conflicts, 4);
}

#[test]
fn an_address_in_use_is_defended_and_kept() {
    let mut world = world();
    world.pass(Duration::from_secs(3));
    world.client.link().take_sent();
    let own = host_address(2);
    let probe = from(ANY, ROUTER_MAC, solicited_node(own), &message::probe(own));
    world.client.link().inject(&probe);
    world.client.poll(world.now, 16);
    let answers = sent(&mut world);
    let [(found, bytes)] = answers.as_slice() else {
        panic!("one answer");
    };
    assert_eq!(found.destination, ALL_NODES);
    let answer = Message::parse(bytes, found.hop_limit);
    assert!(matches!(answer, Some(Message::Advertisement(said)) if said.target == own));
    assert!(world.client.addresses().contains(&own.into()));
}

#[test]
fn packets_that_do_not_fit_the_path_are_sent_smaller() {
    let mut world = world();
    let listener = world.server.listen((ANY, 80), 10).unwrap();
    let client = world
        .client
        .connect((host_address(1), 80), world.now)
        .unwrap();
    world.run_until_quiet();
    let (server, _) = world.server.accept(listener).unwrap();
    // The frames do not arrive; a router says why.
    write(&mut world.server, server, &[5; 4000], world.now).unwrap();
    let lost = world.server.link().take_sent();
    let packet = &lost[0][14..];
    assert_eq!(packet.len(), 1500);
    let mut report = Vec::from([2, 0, 0, 0]);
    report.extend(1300u32.to_be_bytes());
    report.extend(&packet[..1200]);
    let frame = from(ROUTER, ROUTER_MAC, host_address(1), &report);
    world.server.link().inject(&frame);
    world.server.poll(world.now, 16);
    let again = world.server.link().take_sent();
    assert!(!again.is_empty() && again.iter().all(|frame| frame.len() <= 14 + 1300));
    let _ = client;
}

#[test]
fn echo_requests_to_one_host_are_answered_and_to_groups_not() {
    let mut world = world();
    world.client.link().take_sent();
    let request = [128, 0, 0, 0, 0, 1, 0, 2, 9, 9, 9];
    for (to, answers) in [(host_address(2), 1), (ALL_NODES, 0)] {
        let frame = from(host_address(9), ROUTER_MAC, to, &request);
        world.client.link().inject(&frame);
        world.client.poll(world.now, 16);
        let sent = sent(&mut world);
        assert_eq!(sent.len(), answers);
        for (found, bytes) in sent {
            assert_eq!((found.source, found.destination), (to, host_address(9)));
            assert_eq!((bytes[0], &bytes[4..]), (129, &request[4..]));
        }
    }
}

#[test]
fn name_servers_come_from_dhcpv6_when_routers_name_none() {
    let mut world = World::new(64);
    world.client.start_ipv6(Ipv6Setup::Auto, [3; 16], world.now);
    world.client.link().take_sent();
    const OTHER: u8 = 0x40;
    let frame = from_router(&advertisement(1800, OTHER, 3600, 1500));
    world.client.link().inject(&frame);
    world.client.poll(world.now, 16);
    let frames = world.client.link().take_sent();
    let request = frames.iter().find_map(|bytes| match frame::parse(bytes) {
        Ok(Frame::Udp(found)) if found.flow.local.port() == 547 => Some((found, bytes)),
        _ => None,
    });
    let (found, bytes) = request.expect("a request");
    let server: Ipv6Addr = "2001:db8:7::53".parse().unwrap();
    let mut reply = bytes[usize::from(found.start)..][..4].to_vec();
    reply[0] = 7;
    reply.extend([0, 23, 0, 16]);
    reply.extend(server.octets());
    let (mut here, mut there) = super::cable::cable(1);
    let properties = crate::link::Link::properties(&here);
    let mut answer = |to: SocketAddr| {
        let back = crate::flow::Flow {
            local: SocketAddr::from((ROUTER, 547)),
            remote: to,
        };
        crate::transmit::send_datagram(&mut here, &properties, [2; 6], (&back, [0; 4]), &reply);
        let answer = crate::link::Link::receive(&mut there).unwrap().buffer;
        world.client.link().inject(&answer);
        world.client.poll(world.now, 16);
        world.client.name_servers(world.now)
    };
    // Only the address that asked, which other links do not reach, gets an answer.
    assert!(answer((host_address(2), 546).into()).is_empty());
    assert_eq!(answer(found.flow.remote), [IpAddr::V6(server)]);
    // One answer is enough.
    world.pass(Duration::from_secs(20));
    let again = world.client.link().take_sent();
    assert!(
        again
            .iter()
            .all(|bytes| !matches!(frame::parse(bytes), Ok(Frame::Udp(_))))
    );
}

#[test]
fn extension_headers_are_passed_over_and_fragments_counted() {
    let mut world = world();
    let echo = from(
        host_address(9),
        ROUTER_MAC,
        host_address(2),
        &[128, 0, 0, 0, 0, 0, 0, 0],
    );
    let with = |kind: u8, extension: &[u8]| {
        let mut frame = echo.clone();
        let next = core::mem::replace(&mut frame[20], kind);
        let mut extension = extension.to_vec();
        extension[0] = next;
        frame[18..20].copy_from_slice(&(8 + extension.len() as u16).to_be_bytes());
        frame.splice(54..54, extension);
        frame
    };
    for kind in [0, 60, 43, 44] {
        let parsed = frame::parse(&with(kind, &[0; 8]));
        assert!(matches!(parsed, Ok(Frame::Icmpv6(_))), "{kind}: {parsed:?}");
    }
    let fragment = with(44, &[0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(frame::parse(&fragment), Err(FrameError::Fragment));
    let onward = with(43, &[0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(frame::parse(&onward), Err(FrameError::Malformed));
    let endless = with(60, &[0, 255, 0, 0, 0, 0, 0, 0]);
    assert_eq!(frame::parse(&endless), Err(FrameError::Truncated));
    world.client.link().inject(&fragment);
    world.client.poll(world.now, 16);
    assert_eq!(world.client.counters().fragments, 1);
}

/// A router that asks whether this host is still there need not name its hardware address.
#[test]
fn a_solicitation_at_an_address_is_answered_where_it_came_from() {
    let mut world = world();
    world.pass(Duration::from_secs(3));
    world.client.link().take_sent();
    let own = host_address(2);
    for (to, answers) in [(own, 1), (solicited_node(own), 0)] {
        // Without an option.
        let solicitation = from(ROUTER, ROUTER_MAC, to, &message::probe(own));
        world.client.link().inject(&solicitation);
        world.client.poll(world.now, 16);
        let frames = world.client.link().take_sent();
        let sent = frames.iter().filter(|frame| frame[..6] == ROUTER_MAC);
        assert_eq!(sent.count(), answers, "{to}");
    }
}
