//! What else a guest sends.

use super::*;

fn passt_beside() -> Settings {
    Settings {
        beside: Beside::Passt,
        ..settings()
    }
}

fn frame_of(world: &mut World) -> Option<Vec<u8>> {
    let frame = world.table.peek(world.now)?.bytes.to_vec();
    world.table.consume();
    Some(frame)
}

fn arp(wanted: Ipv4Addr) -> Vec<u8> {
    let mut frame = [0xff; 6].to_vec();
    frame.extend(settings().guest_mac);
    frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(settings().guest_mac);
    frame.extend([10, 0, 2, 15]);
    frame.extend([0; 6]);
    frame.extend(wanted.octets());
    frame
}

/// A SYN of the guest's.
fn syn() -> Vec<u8> {
    let tuple = FourTuple {
        local: "10.0.2.15:5000".parse().unwrap(),
        remote: "192.0.2.1:443".parse().unwrap(),
    };
    let identity = Identity {
        secret: &Secret::new([1; 16]),
        tuple: &tuple,
    };
    let now = Instant::from_micros(5);
    let mut tcp = Connection::connect(Config::default(), identity, &Pool::new(1 << 20), now);
    let mut frame = OutFrame::default();
    frame.begin(&settings(), &tuple, &tcp.poll(now).unwrap());
    frame.finish(RxOffload::default());
    frame.bytes
}

#[test]
fn the_gateways_hardware_address_is_told() {
    let mut world = World::new();
    world.table.take(&arp(settings().v4.gateway), world.now);
    let reply = frame_of(&mut world).unwrap();
    assert_eq!(reply[..6], settings().guest_mac);
    assert_eq!(reply[20..32], [0, 2, 2, 0, 0, 0, 0, 2, 10, 0, 2, 2]);
    assert_eq!(reply[38..], [10, 0, 2, 15]);
    world
        .table
        .take(&arp(Ipv4Addr::new(10, 0, 2, 9)), world.now);
    assert_eq!(frame_of(&mut world), None);
}

#[test]
fn the_gateways_ipv6_address_is_told() {
    let v6 = settings().v6.unwrap();
    let question = |asker| Question::Solicitation {
        asker,
        wanted: v6.gateway,
    };
    let frame = crate::neighbour::answer(&settings(), question(v6.guest)).unwrap();
    assert_eq!(frame.len(), 14 + 40 + 32);
    assert_eq!(frame[frame.len() - 6..], settings().gateway_mac);
    // The sum of pseudo header and message is that of a valid one: all ones.
    let sum = tare_devices::net::checksum::sum(&frame[22..]) + 58 + 32;
    assert_eq!(tare_devices::net::checksum::fold(sum), 0xffff);
    let duplicate = question(Ipv6Addr::UNSPECIFIED);
    assert_eq!(crate::neighbour::answer(&settings(), duplicate), None);
}

#[test]
fn a_connection_that_the_guest_opens_is_refused() {
    let mut world = World::new();
    assert_eq!(world.table.take(&syn(), world.now), Verdict::Taken);
    let frame = frame_of(&mut world).unwrap();
    let Ok(Frame::Tcp(tuple, bytes)) = Frame::parse(&frame) else {
        panic!("TCP");
    };
    assert_eq!(tuple.local, "10.0.2.15:5000".parse().unwrap());
    assert!(Segment::parse(bytes).unwrap().has(flags::RST | flags::ACK));
    assert_eq!(world.counted("forward_strays"), 1);
}

#[test]
fn passt_gets_what_belongs_to_no_connection() {
    let mut world = World::with(passt_beside());
    let others = [syn(), arp(settings().v4.gateway), vec![0; 60], vec![1]];
    for frame in others {
        assert_eq!(world.table.take(&frame, world.now), Verdict::Other);
    }
    assert!(!world.table.has_output());
    let (slot, client) = world.connect();
    world.send(slot, &client, b"ours");
    assert_eq!(world.guest_reads(), b"ours");
}

#[test]
fn a_guest_that_only_asks_is_answered_within_bounds() {
    let mut world = World::new();
    for _ in 0..10_000 {
        world.table.take(&arp(settings().v4.gateway), world.now);
        world.table.take(&syn(), world.now);
    }
    let answers = std::iter::from_fn(|| frame_of(&mut world)).count();
    assert_eq!(answers, 64);
}

#[test]
fn frames_that_contradict_themselves_are_counted() {
    let mut world = World::new();
    let whole = syn();
    let all = whole.len() as u64;
    for len in 0..whole.len() {
        world.table.take(&whole[..len], world.now);
    }
    let mut longer = whole.clone();
    longer[16..18].copy_from_slice(&2000_u16.to_be_bytes());
    world.table.take(&longer, world.now);
    let mut headerless = whole;
    headerless[46] = 0x40;
    world.table.take(&headerless, world.now);
    assert_eq!(world.counted("forward_malformed"), all + 2);
    assert_eq!(world.counted("forward_strays"), 0);
}

#[test]
fn frames_that_nobody_takes_are_counted() {
    let mut world = World::new();
    let mut udp = syn();
    udp[23] = 17;
    let mut fragment = syn();
    fragment[20] = 0x20;
    for frame in [udp, fragment, vec![0; 60]] {
        world.table.take(&frame, world.now);
    }
    assert_eq!(world.counted("forward_unclaimed"), 3);
}
