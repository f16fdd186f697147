use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::time::Duration;
use tare_io::ErrorKind;

use super::super::Take;
use super::cable::Sleeper;
use super::world::{CLIENT, SERVER, World};

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
    world.run_until_quiet();
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
    world.run_until_quiet();
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
fn a_connected_socket_at_any_address_has_the_one_towards_its_peer() {
    let mut world = World::new(50);
    let client = world.client.bind(SocketAddrV4::new(ANY, 1000)).unwrap();
    for (peer, own) in [
        (Some(SERVER), CLIENT),
        (Some(Ipv4Addr::LOCALHOST), Ipv4Addr::LOCALHOST),
        (None, ANY),
    ] {
        let peer = peer.map(|peer| SocketAddrV4::new(peer, 53).into());
        world
            .client
            .connect_datagrams(client, peer, world.now)
            .unwrap();
        let bound = world.client.bound(client).unwrap();
        assert_eq!(bound, SocketAddrV4::new(own, 1000).into());
    }
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
    world.run_until_quiet();
    assert_eq!(reader.0.get(), 1);
    assert!(world.client.datagram_readiness(client).failed);
    // Asking how much there is takes no error away.
    assert_eq!(world.client.next_datagram_bytes(client), Ok(None));
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
    world.run_until_quiet();
    assert_eq!(world.client.next_datagram_bytes(client), Ok(Some(3)));
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
    // As in Linux, one too many takes the place of the oldest.
    for n in 0..100 {
        world.client.send_to(client, &[n], to, world.now).unwrap();
    }
    assert!(world.client.datagram_readiness(client).writable);
    assert_eq!(world.client.counters().udp_dropped, 84);
    world
        .client
        .connect_datagrams(client, None, world.now)
        .unwrap();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.next_deadline(), None);
    world
        .client
        .connect_datagrams(client, Some(to.into()), world.now)
        .unwrap();
    world.client.send_to(client, b"hi", to, world.now).unwrap();
    world.pass(Duration::from_secs(5));
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
        world.run_until_quiet();
    }
    let mut kept = 0;
    let mut take = || world.server.receive_from(server, &mut [0], Take::Remove);
    while let Ok((1400, _)) = take() {
        kept += 1;
    }
    assert_eq!(kept, 128 * 1024 / 1400);
    assert_eq!(world.server.counters().udp_dropped, 1000 - kept);
    let long = world.client.send_to(client, &[0; 65_508], to, world.now);
    assert_eq!(long.unwrap_err().kind(), ErrorKind::MessageTooLong);
}

#[test]
fn the_last_datagrams_to_a_host_go_when_it_answers_and_other_hosts_lose_none() {
    let mut world = World::new(58);
    let server = world.server.bind(SocketAddrV4::new(ANY, 53)).unwrap();
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 53);
    let silent = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 53);
    for n in 0..103_u8 {
        let to = if (5..100).contains(&n) { silent } else { to };
        world.client.send_to(client, &[n], to, world.now).unwrap();
    }
    world.run_until_quiet();
    let mut got = alloc::vec::Vec::new();
    let mut buf = [0; 4];
    while let Ok((1, _)) = world.server.receive_from(server, &mut buf, Take::Remove) {
        got.push(buf[0]);
    }
    // Those to the same host made room for the last three.
    assert_eq!(got, [3, 4, 100, 101, 102]);
}

/// The data of a datagram from its fragments in frames, each checked.
fn reassemble(frames: &[alloc::vec::Vec<u8>], is_v6: bool) -> alloc::vec::Vec<u8> {
    let mut whole = alloc::vec::Vec::new();
    let mut names = alloc::vec::Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        let packet = &frame[14..];
        let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (header, len, place, name) = if is_v6 {
            assert_eq!((packet[6], packet[40]), (44, 17));
            (48, 40 + word(4), word(42), &packet[44..48])
        } else {
            let sum = crate::checksum::Sum::new().plus(&packet[..20]);
            assert!(sum.is_valid() && packet[9] == 17);
            (20, word(2), word(6), &packet[4..6])
        };
        assert!(len == packet.len() && len <= 1500);
        let (offset, more) = if is_v6 {
            (place & !7, place & 1)
        } else {
            ((place & 0x1fff) * 8, place >> 13)
        };
        // Neither "don't fragment" nor a gap, and more follow all but the last.
        assert_eq!(
            (offset, more),
            (whole.len(), usize::from(n + 1 < frames.len()))
        );
        names.push(name);
        whole.extend_from_slice(&packet[header..]);
    }
    assert!(names.windows(2).all(|two| two[0] == two[1]));
    whole
}

#[test]
fn a_datagram_beyond_the_mtu_goes_in_fragments_that_are_one_again() {
    use super::cable::cable;
    use crate::flow::Flow;
    use crate::link::Link;
    use crate::{frame, transmit};
    for is_v6 in [false, true] {
        let address = |n: u16| -> core::net::SocketAddr {
            if is_v6 {
                (core::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n), 53).into()
            } else {
                (Ipv4Addr::new(10, 0, 0, n as u8), 53).into()
            }
        };
        let flow = Flow {
            local: address(1),
            remote: address(2),
        };
        for len in [1473, 2960, 8192, 65_000] {
            let (mut end, _other) = cable(59);
            let data: alloc::vec::Vec<u8> = (0..len).map(|at| (at * 31 + at / 256) as u8).collect();
            let properties = end.properties();
            let way = (&flow, properties.mtu);
            transmit::send_fragments(&mut end, &properties, [2; 6], way, [7; 4], &data);
            let frames = end.take_sent();
            assert!(
                frames.len() > 1 && frames.len() < 48,
                "{len}: {}",
                frames.len()
            );
            for frame in &frames {
                let mut left = frame.clone();
                assert_eq!(frame::leave_checksum_to_device(&mut left), None);
                assert_eq!(frame::parse(frame), Err(frame::FrameError::Fragment));
            }
            let whole = reassemble(&frames, is_v6);
            // As one packet it is right: the parser verifies the checksum.
            let mut packet = frames[0][14..if is_v6 { 54 } else { 34 }].to_vec();
            if is_v6 {
                packet[6] = 17;
                packet[4..6].copy_from_slice(&(whole.len() as u16).to_be_bytes());
            } else {
                packet[2..4].copy_from_slice(&(20 + whole.len() as u16).to_be_bytes());
                packet[6..8].fill(0);
                packet[10..12].fill(0);
                let sum = crate::checksum::Sum::new().plus(&packet).finish();
                packet[10..12].copy_from_slice(&[!sum[0], !sum[1]]);
            }
            packet.extend_from_slice(&whole);
            let parsed = frame::parse_as(&packet, frame::Medium::Ip, frame::Checksums::Unverified);
            let Ok(frame::Frame::Udp(found)) = parsed else {
                panic!("{len}: {parsed:?}");
            };
            let found = &packet[usize::from(found.start)..usize::from(found.end)];
            assert_eq!(found, data);
        }
    }
}

/// A silent host that is sent to often: what is new takes the place of what waits, and its
/// requests still end.
#[test]
fn a_busy_sender_learns_that_its_neighbour_is_silent() {
    let mut world = World::new(60);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 53);
    let (peer, now) = (Some(to.into()), world.now);
    world.client.connect_datagrams(client, peer, now).unwrap();
    let failure = (0..200).find_map(|_| {
        world.pass(Duration::from_millis(25));
        world.client.send_to(client, b"?", to, world.now).err()
    });
    assert_eq!(failure.unwrap().kind(), ErrorKind::NetworkUnreachable);
    // What waits is bounded in bytes too: two of 30,000 of the 64 KiB.
    let other = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let before = world.client.counters().udp_dropped;
    for _ in 0..10 {
        let sent = world.client.send_to(other, &[0; 30_000], to, world.now);
        assert_eq!(sent.unwrap(), 30_000);
    }
    assert_eq!(world.client.counters().udp_dropped - before, 8);
}

#[test]
fn fragments_go_all_or_not_at_all() {
    let mut world = World::new(61);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 53);
    world.client.send_to(client, b"?", to, world.now).unwrap();
    world.run_until_quiet();
    let sent = world.client.link().sent;
    // 14 frames.
    world.client.link().room = 13;
    let refused = world.client.send_to(client, &[7; 20_000], to, world.now);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(world.client.link().sent, sent);
    assert!(!world.client.datagram_readiness(client).writable);
    let writer = Sleeper::default();
    world.client.wait_datagram(client, writer.clone());
    world.client.poll(world.now, 16);
    assert_eq!(writer.0.get(), 0);
    world.client.link().room = 14;
    world.client.poll(world.now, 16);
    assert_eq!(writer.0.get(), 1);
    let n = world.client.send_to(client, &[7; 20_000], to, world.now);
    assert_eq!((n.unwrap(), world.client.link().sent), (20_000, sent + 14));
    // More than the ring ever holds.
    world.client.link().ring = 13;
    let refused = world.client.send_to(client, &[7; 20_000], to, world.now);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldBlock);
    world.run_until_quiet();
    let refused = world.client.send_to(client, &[7; 20_000], to, world.now);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::MessageTooLong);
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
    // No link says when it has room: without a deadline nothing would look.
    let looks = world.client.deadline();
    assert!(looks.is_some_and(|at| at <= world.now + Duration::from_millis(1)));
    world.client.link().room = 64;
    world.client.poll(world.now, 16);
    assert_eq!(writer.0.get(), 1);
    assert_eq!(world.client.deadline(), None);
    assert!(world.client.datagram_readiness(client).writable);
    world.client.send_to(client, b"?", to, world.now).unwrap();
}

/// A neighbour that was learned a while ago is sent to while a request for it has no answer.
#[test]
fn a_neighbour_that_is_asked_again_is_sent_to_meanwhile() {
    let mut world = World::new(62);
    let client = world.client.bind(SocketAddrV4::new(ANY, 0)).unwrap();
    let to = SocketAddrV4::new(SERVER, 53);
    world.client.send_to(client, b"?", to, world.now).unwrap();
    world.run_until_quiet();
    world.pass(Duration::from_secs(31));
    let sent = world.client.link().sent;
    for _ in 0..20 {
        world.client.send_to(client, b"?", to, world.now).unwrap();
    }
    // And one request.
    assert_eq!(world.client.link().sent, sent + 21);
    assert_eq!(world.client.counters().udp_dropped, 0);
    world.run_until_quiet();
    // One that does not answer is unknown soon.
    world.client.link().faults.lost = 1000;
    for (seconds, frames) in [(31, 21), (5, 1)] {
        world.pass(Duration::from_secs(seconds));
        let sent = world.client.link().sent;
        for _ in 0..20 {
            world.client.send_to(client, b"?", to, world.now).unwrap();
        }
        assert_eq!(world.client.link().sent - sent, frames, "after {seconds} s");
    }
}
