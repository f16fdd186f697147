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
    assert_eq!(world.table.take(&syn(), world.now), FrameOwner::Table);
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
        assert_eq!(world.table.take(&frame, world.now), FrameOwner::Passt);
    }
    assert!(!world.table.has_output());
    let (slot, client) = world.connect();
    world.send(slot, &client, b"ours");
    assert_eq!(world.guest_reads(), b"ours");
}

/// A datagram without ports and data.
const EMPTY_DATAGRAM: [u8; 8] = [0, 0, 0, 0, 0, 8, 0, 0];

fn passt_waits() -> Settings {
    Settings {
        beside: Beside::WaitingPasst,
        ..settings()
    }
}

/// An IPv4 packet of the guest's to elsewhere.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [settings().gateway_mac, settings().guest_mac].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([
        0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 2, 15, 192, 0, 2, 1,
    ]);
    frame.extend(payload);
    frame
}

/// An IPv6 packet of the guest's to `to`.
fn ipv6(next: u8, to: &str, payload: &[u8]) -> Vec<u8> {
    let mut frame = [settings().gateway_mac, settings().guest_mac].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 255]);
    frame.extend(settings().v6.unwrap().guest.octets());
    frame.extend(to.parse::<Ipv6Addr>().unwrap().octets());
    frame.extend(payload);
    frame
}

fn solicitation(wanted: &str) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(wanted.parse::<Ipv6Addr>().unwrap().octets());
    ipv6(58, "ff02::1:ff00:2", &message)
}

#[test]
fn passt_is_started_by_what_only_it_can_answer() {
    for frame in [
        syn(),
        ipv4(17, &EMPTY_DATAGRAM),
        ipv4(1, &[8, 0, 0, 0]),
        ipv6(17, "2001:db8::1", &EMPTY_DATAGRAM),
        ipv6(58, "2001:db8::1", &[128, 0, 0, 0]),
        arp(Ipv4Addr::new(10, 0, 2, 9)),
        solicitation("fd00::9"),
    ] {
        let mut world = World::with(passt_waits());
        assert_eq!(
            world.table.take(&frame, world.now),
            FrameOwner::Passt,
            "{frame:?}"
        );
        assert!(!world.table.has_output());
    }
}

/// Questions about itself and the gateway, resets and acknowledgements of old connections, errors, reports of
/// groups, looks for routers, and frames that are damaged.
#[test]
fn what_a_server_sends_by_itself_does_not_start_passt() {
    let mut world = World::with(passt_waits());
    let mut strays = vec![syn(); 3];
    for (frame, flag) in strays
        .iter_mut()
        .zip([flags::ACK, flags::RST, flags::SYN | flags::ACK])
    {
        frame[47] = flag;
    }
    let guest = Ipv4Addr::new(10, 0, 2, 15);
    let mut probe = arp(guest);
    probe[28..32].fill(0);
    let others = [
        arp(settings().v4.gateway),
        arp(guest),
        probe,
        solicitation("fd00::2"),
        solicitation("fd00::f"),
        ipv4(1, &[3, 3, 0, 0]),
        ipv4(1, &[]),
        ipv4(2, &[0x16; 8]),
        ipv6(58, "ff02::2", &[133, 0, 0, 0]),
        ipv6(0, "ff02::16", &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0]),
        syn()[..50].to_vec(),
        vec![0; 60],
        Vec::new(),
    ];
    for frame in strays.iter().chain(&others) {
        assert_eq!(
            world.table.take(frame, world.now),
            FrameOwner::Table,
            "{frame:?}"
        );
    }
    assert_eq!(world.counted("forward_strays"), 3);
    let answers = std::iter::from_fn(|| frame_of(&mut world)).count();
    // Two resets (none is answered by one), and the gateway's two addresses.
    assert_eq!(answers, 4);
    // Without IPv6 passt has nothing to say either.
    world = World::with(Settings {
        v6: None,
        ..passt_waits()
    });
    for frame in [
        ipv6(17, "2001:db8::1", &EMPTY_DATAGRAM),
        solicitation("fd00::9"),
    ] {
        assert_eq!(
            world.table.take(&frame, world.now),
            FrameOwner::Table,
            "{frame:?}"
        );
    }
}

#[test]
fn what_is_for_passt_changes_as_passt_starts_and_ends() {
    let mut world = World::with(passt_waits());
    let ask = arp(settings().v4.gateway);
    assert_eq!(world.table.take(&ask, world.now), FrameOwner::Table);
    world.table.set_beside(Beside::Passt);
    assert_eq!(world.table.take(&ask, world.now), FrameOwner::Passt);
    world.table.set_beside(Beside::Nothing);
    assert_eq!(world.table.take(&syn(), world.now), FrameOwner::Table);
    assert_eq!(world.counted("forward_strays"), 1);
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
    let udp = ipv4(17, &EMPTY_DATAGRAM);
    let mut fragment = syn();
    fragment[20] = 0x20;
    for frame in [udp, fragment, vec![0; 60]] {
        world.table.take(&frame, world.now);
    }
    assert_eq!(world.counted("forward_unclaimed"), 3);
}
