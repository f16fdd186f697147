//! Clients of UDP ports.

use super::*;
use crate::{Answer, DatagramClient};

fn client_at(port: u16, address: &str) -> DatagramClient {
    DatagramClient {
        port,
        host: None,
        address: from(address),
    }
}

fn from(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The next frame for the guest: its ends and data, of a datagram whose checksum is right.
fn datagram(world: &mut World) -> Option<(FourTuple, Vec<u8>)> {
    let frame = world.table.peek(world.now)?;
    assert_eq!(frame.header.flags, 0);
    let bytes = frame.bytes.to_vec();
    world.table.consume();
    let (pseudo, len) = match bytes[12..14] {
        [8, 0] => (&bytes[26..], bytes.len() - 34),
        _ => (&bytes[22..], bytes.len() - 54),
    };
    let sum = tare_devices::net::checksum::sum(pseudo) + 17 + len as u64;
    assert_eq!(tare_devices::net::checksum::fold(sum), 0xffff);
    // The parser has the guest as `remote`.
    let Ok(Frame::Udp(ends, data)) = Frame::parse(&bytes) else {
        panic!("the host sends UDP");
    };
    let ends = FourTuple {
        local: ends.remote,
        remote: ends.local,
    };
    Some((ends, data.to_vec()))
}

/// A frame of the guest's with a datagram back to where `ends` are from.
fn answer(ends: &FourTuple, data: &[u8]) -> Vec<u8> {
    answer_of_any_length(ends, data).bytes
}

/// The same, which may have to go in fragments.
fn answer_of_any_length(ends: &FourTuple, data: &[u8]) -> OutFrame {
    let back = FourTuple {
        local: ends.remote,
        remote: ends.local,
    };
    let mut frame = OutFrame::default();
    frame.begin_datagram(&settings(), &back, data);
    frame.finish(RxOffload::default());
    frame
}

#[test]
fn each_client_of_a_udp_port_gets_the_answers_to_it() {
    let mut world = World::new();
    let clients = [
        client_at(0, "127.0.0.1:5000"),
        DatagramClient {
            host: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            ..client_at(0, "127.0.0.1:5000")
        },
        // The same for the guest but for another port.
        client_at(0, "127.0.0.2:5000"),
        client_at(1, "127.0.0.1:5000"),
        client_at(0, "192.0.2.7:5000"),
        client_at(2, "[::1]:5000"),
        client_at(2, "[2001:db8::7]:5000"),
    ];
    let mut asked = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        world
            .table
            .datagram(*client, 53, &[number as u8], world.now);
        let (ends, data) = datagram(&mut world).unwrap();
        assert_eq!(data, [number as u8]);
        assert_eq!(ends.remote.port(), 53);
        assert!(!asked.contains(&ends), "{ends:?}");
        asked.push(ends);
    }
    assert_eq!(asked[0].local, from("10.0.2.2:5000"));
    assert_eq!(asked[4].local, from("192.0.2.7:5000"));
    assert_eq!(asked[5].local, from("[fd00::2]:5000"));
    // Again: the same ends.
    world.table.datagram(clients[2], 53, b"again", world.now);
    assert_eq!(datagram(&mut world), Some((asked[2], b"again".to_vec())));
    for (ends, client) in asked.iter().zip(clients) {
        let frame = answer(ends, b"answer");
        let expected = Answer {
            client,
            bytes: b"answer".into(),
        };
        assert_eq!(
            world.table.take(&frame, world.now),
            FrameOwner::Client(expected)
        );
    }
    assert_eq!(world.counted("forward_datagrams_in"), 8);
    assert_eq!(world.counted("forward_datagrams_out"), 7);
}

#[test]
fn a_guest_answers_whom_it_was_asked_by_and_not_forever() {
    let mut world = World::new();
    let client = client_at(0, "127.0.0.1:5000");
    world.table.datagram(client, 53, b"question", world.now);
    let (ends, _) = datagram(&mut world).unwrap();
    let mut others = [ends; 3];
    others[0].local.set_port(5001);
    others[1].remote.set_port(54);
    others[2].local.set_ip("192.0.2.7".parse().unwrap());
    for other in others {
        let frame = answer(&other, b"unasked");
        assert_eq!(world.table.take(&frame, world.now), FrameOwner::Table);
    }
    assert_eq!(world.counted("forward_unclaimed"), 3);
    let frame = answer(&ends, b"answer");
    let is_answered = |world: &mut World, seconds| {
        world.now = world.now + Duration::from_secs(seconds);
        matches!(world.table.take(&frame, world.now), FrameOwner::Client(_))
    };
    assert!(is_answered(&mut world, 300));
    assert!(!is_answered(&mut world, 1));
    world.table.datagram(client, 53, b"again", world.now);
    assert!(is_answered(&mut world, 300));
    world.table.restart(RxOffload::default(), world.now);
    assert!(!is_answered(&mut world, 0), "another driver");
    assert!(!world.table.has_output());
}

/// The frames of an answer of more than one packet.
fn parts_of_answer(ends: &FourTuple, data: &[u8], number: u16) -> Vec<Vec<u8>> {
    answer_of_any_length(ends, data).into_fragments(1500, number)
}

#[test]
fn an_answer_in_fragments_leaves_whole_and_in_any_order() {
    let mut world = World::new();
    let client = client_at(0, "127.0.0.1:5000");
    world.table.datagram(client, 53, b"question", world.now);
    let (ends, _) = datagram(&mut world).unwrap();
    let data: Vec<u8> = (0..65_507).map(|at| (at / 3) as u8).collect();
    for (number, len) in [1473, 9000, 65_507].into_iter().enumerate() {
        let mut parts = parts_of_answer(&ends, &data[..len], number as u16);
        parts.rotate_left(1);
        let last = parts.pop().unwrap();
        for part in parts {
            assert_eq!(world.table.take(&part, world.now), FrameOwner::Table);
        }
        let expected = Answer {
            client,
            bytes: data[..len].into(),
        };
        let taken = world.table.take(&last, world.now);
        assert!(taken == FrameOwner::Client(expected), "{len}");
    }
    assert_eq!(world.counted("forward_datagrams_out"), 3);
    assert_eq!(world.counted("forward_fragments_dropped"), 0);
}

#[test]
fn fragments_that_answer_nobody_are_not_sent() {
    let mut world = World::new();
    world
        .table
        .datagram(client_at(0, "127.0.0.1:5000"), 53, b"question", world.now);
    let (ends, _) = datagram(&mut world).unwrap();
    let (mut other, mut elsewhere) = (ends, ends);
    other.local.set_port(5001);
    elsewhere.local.set_ip("192.0.2.7".parse().unwrap());
    for (number, ends) in [other, elsewhere].iter().enumerate() {
        for part in parts_of_answer(ends, &[7; 3000], number as u16) {
            assert_eq!(world.table.take(&part, world.now), FrameOwner::Table);
        }
    }
    // One whole datagram to a port that did not ask, and three frames to an address that did not.
    assert_eq!(world.counted("forward_unclaimed"), 4);
    // An answer whose fragments overlap: both are dropped.
    let mut parts = parts_of_answer(&ends, &[7; 3000], 9);
    parts[1][21] -= 1;
    for part in &parts[..2] {
        assert_eq!(world.table.take(part, world.now), FrameOwner::Table);
    }
    assert_eq!(world.counted("forward_fragments_dropped"), 2);
    // One that stays incomplete for too long.
    let parts = parts_of_answer(&ends, &[7; 3000], 10);
    world.table.take(&parts[0], world.now);
    world.now = world.now + Duration::from_secs(31);
    for part in &parts[1..] {
        assert_eq!(world.table.take(part, world.now), FrameOwner::Table);
    }
    assert_eq!(world.counted("forward_fragments_dropped"), 3);
}

#[test]
fn what_is_too_long_or_from_nowhere_is_dropped() {
    let mut settings = settings();
    settings.v6 = None;
    let mut world = World::with(settings);
    let client = client_at(0, "127.0.0.1:5000");
    world.table.datagram(client, 53, &[0; 65_508], world.now);
    world
        .table
        .datagram(client_at(0, "[::1]:5000"), 53, &[], world.now);
    assert!(!world.table.has_output());
    assert_eq!(world.counted("forward_datagrams_dropped"), 2);
    world.table.datagram(client, 53, &[0; 1472], world.now);
    let frame = world.table.peek(world.now).unwrap();
    assert_eq!(frame.bytes.len(), 1514);
    world.table.consume();
    world.table.datagram(client, 53, &[], world.now);
    assert_eq!(datagram(&mut world).map(|(_, data)| data), Some(Vec::new()));
}

#[test]
fn a_datagram_of_several_packets_goes_in_fragments() {
    let mut world = World::new();
    let client = client_at(0, "127.0.0.1:5000");
    let data: Vec<u8> = (0..65_507).map(|at| (at / 3) as u8).collect();
    let mut identifications = Vec::new();
    for len in [1473, 1480, 2952, 65_507] {
        world.table.datagram(client, 53, &data[..len], world.now);
        let (mut whole, mut has_more) = (Vec::new(), true);
        while let Some(frame) = world.table.peek(world.now) {
            let (header, part) = frame.bytes.split_at(34);
            assert!(has_more && frame.bytes.len() <= 1514);
            assert_eq!(
                Frame::parse(frame.bytes),
                Ok(Frame::Part([10, 0, 2, 15].into()))
            );
            let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            let sum = tare_devices::net::checksum::sum(&header[14..]);
            assert_eq!(tare_devices::net::checksum::fold(sum), 0xffff);
            assert_eq!(usize::from(word(20) & 0x1fff) * 8, whole.len());
            has_more = word(20) & 0x2000 != 0;
            whole.extend_from_slice(part);
            identifications.push(word(18));
            world.table.consume();
        }
        assert!(!has_more && whole.len() == len + 8);
        assert_eq!(whole[8..], data[..len]);
        let pseudo = [10, 0, 2, 2, 10, 0, 2, 15];
        let sum = tare_devices::net::checksum::sum(&pseudo)
            + tare_devices::net::checksum::sum(&whole)
            + 17
            + whole.len() as u64;
        assert_eq!(tare_devices::net::checksum::fold(sum), 0xffff);
    }
    identifications.dedup();
    assert_eq!(identifications.len(), 4);
    // By IPv6 there are none.
    world
        .table
        .datagram(client_at(0, "[::1]:5000"), 53, &data[..1453], world.now);
    assert!(!world.table.has_output());
    assert_eq!(world.counted("forward_datagrams_dropped"), 1);
}

#[test]
fn datagrams_for_a_guest_that_takes_none_are_bounded() {
    let mut world = World::new();
    let mut room = 0;
    while world.table.has_datagram_room() {
        world
            .table
            .datagram(client_at(0, "127.0.0.1:5000"), 53, &[], world.now);
        room += 1;
    }
    world
        .table
        .datagram(client_at(0, "127.0.0.1:5000"), 53, &[], world.now);
    assert_eq!(world.counted("forward_datagrams_in"), room);
    assert_eq!(world.counted("forward_datagrams_dropped"), 1);
    let taken = std::iter::from_fn(|| datagram(&mut world)).count();
    assert_eq!(taken as u64, room);
}

#[test]
fn segments_and_datagrams_take_turns() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.mood = Mood::Absent;
    world.send(slot, &client, &[0; 10_000]);
    for _ in 0..3 {
        world
            .table
            .datagram(client_at(0, "127.0.0.1:5000"), 53, &[], world.now);
    }
    let mut kinds = Vec::new();
    while let Some(frame) = world.table.peek(world.now) {
        kinds.push(frame.bytes[23]);
        world.table.consume();
    }
    let first = kinds.iter().position(|kind| *kind == 17).unwrap();
    assert_eq!(kinds[first..][..5], [17, 6, 17, 6, 17], "{kinds:?}");
}
