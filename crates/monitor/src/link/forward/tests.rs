//! The link between sockets and a guest whose frames a test writes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Ipv4PacketInfo;
use tare_devices::CounterSource as _;
use tare_devices::net::{FLAG_NEEDS_CSUM, GSO_TCPV4};
use tare_forward::{Ends, Limits};
use tare_frames::Rules;
use tare_tcp::segment::{Segment, flags};
use tare_tcp::{Config, Connection, FourTuple, Identity, Pool, Secret};
use tare_vmtest::IO_TIMEOUT;

use super::*;

const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 15];
const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const GUEST: [u8; 4] = [10, 0, 2, 15];

/// A link to port 80 of the guest, and the address of the port.
fn link(connections: usize, passt: Option<StreamLink>) -> (ForwardLink, SocketAddr) {
    let beside = match passt {
        Some(_) => Beside::Passt,
        None => Beside::Nothing,
    };
    link_beside(beside, connections, Vec::new(), passt)
}

fn link_beside(
    beside: Beside,
    connections: usize,
    datagrams: Vec<PortSocket>,
    passt: Option<StreamLink>,
) -> (ForwardLink, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let settings = Settings {
        guest_mac: GUEST_MAC,
        gateway_mac: GATEWAY_MAC,
        v4: Ends {
            guest: GUEST.into(),
            gateway: Ipv4Addr::new(10, 0, 2, 2),
        },
        v6: None,
        mtu: 1500,
        beside,
        limits: Limits {
            connections,
            buffers: 1 << 20,
        },
        secret: [5; 16],
    };
    let listener = PortSocket {
        socket: listener.into(),
        port: 80,
        all_addresses: false,
    };
    let datagrams = DatagramPorts::new(datagrams);
    let mut link = ForwardLink::new(settings, vec![listener], datagrams, passt).unwrap();
    link.set_offload(RxOffload::default()).unwrap();
    (link, address)
}

fn client(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    client
}

/// The next frame for the guest, if one comes soon.
fn frame(link: &mut ForwardLink) -> Option<Vec<u8>> {
    for _ in 0..200 {
        link.ready();
        if let Some(frame) = link.peek().unwrap() {
            let bytes = frame.bytes.to_vec();
            link.consume();
            return Some(bytes);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn give(link: &mut ForwardLink, frame: &[u8]) {
    give_with(link, frame, &NetHeader::default());
}

fn give_with(link: &mut ForwardLink, frame: &[u8], header: &NetHeader) {
    let room = link.reserve(frame.len()).unwrap().unwrap();
    room.copy_from_slice(frame);
    link.commit(header).unwrap();
    link.flush().unwrap();
}

/// A frame of the guest with a TCP segment.
fn frame_to(host: [u8; 4], segment: &[u8]) -> Vec<u8> {
    let mut frame = [GATEWAY_MAC, GUEST_MAC].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + segment.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(GUEST);
    frame.extend(host);
    frame.extend(segment);
    frame
}

/// A frame to a host that passt reaches, with `payload` bytes that the guest leaves to its device to cut and to sum.
fn long(options: usize, payload: usize, size: u16) -> (Vec<u8>, NetHeader) {
    let mut segment = vec![0; 20 + options * 4 + payload];
    segment[12] = ((5 + options) << 4) as u8;
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: size,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    (frame_to([192, 0, 2, 1], &segment), header)
}

/// The guest's TCP for the connection that a SYN opens.
struct Guest {
    tcp: Connection,
    tuple: FourTuple,
    host: [u8; 4],
}

impl Guest {
    fn accept(syn: &[u8]) -> Self {
        let segment = Segment::parse(&syn[34..]).unwrap();
        assert!(segment.has(flags::SYN), "{segment:?}");
        let host = [syn[26], syn[27], syn[28], syn[29]];
        let port = |at: usize| u16::from_be_bytes([syn[at], syn[at + 1]]);
        let tuple = FourTuple {
            local: (GUEST, port(36)).into(),
            remote: (host, port(34)).into(),
        };
        let identity = Identity {
            secret: &Secret::new([1; 16]),
            tuple: &tuple,
        };
        let pool = Pool::new(1 << 20);
        let tcp = Connection::accept(Config::default(), identity, &segment, &pool, now());
        Self { tcp, tuple, host }
    }

    fn take(&mut self, frame: &[u8]) {
        let segment = Segment::parse(&frame[34..]).unwrap();
        self.tcp.on_segment(now(), &segment);
    }

    fn answer(&mut self, link: &mut ForwardLink) {
        while let Some(out) = self.tcp.poll(now()) {
            let mut segment = vec![0; out.wire_len()];
            let (local, remote) = (self.tuple.local.port(), self.tuple.remote.port());
            out.write(local, remote, &mut segment);
            give(link, &frame_to(self.host, &segment));
        }
    }
}

#[test]
fn a_client_that_no_descriptor_was_left_for_is_accepted_after_a_pause() {
    let (mut link, address) = link(4, None);
    let begin = now();
    link.pause(begin);
    link.watch_listeners().unwrap();
    let mut waiting = client(address);
    link.ready();
    // A thread that was not scheduled for so long has seen the pause's end.
    if link.peek().unwrap().is_none() && now() < begin + PAUSE {
        assert_eq!(link.counters().forward_opened.get(), 0);
        let end_ns = link.deadline_ns().unwrap();
        assert!(end_ns > (begin + PAUSE).as_micros() * 1000);
        let mut ready = VecDeque::new();
        link.poll.collect(&mut ready).unwrap();
        assert!(ready.is_empty(), "its client must not keep it awake");
    }
    let mut guest = Guest::accept(&frame(&mut link).expect("a SYN"));
    guest.answer(&mut link);
    assert_eq!(link.counters().forward_pauses.get(), 1);
    waiting.write_all(b"x").unwrap();
    assert!(frame(&mut link).is_some());
}

#[test]
fn a_client_of_a_port_becomes_a_syn_and_its_bytes_follow() {
    let (mut link, address) = link(10, None);
    let mut client = client(address);
    client.write_all(b"question").unwrap();
    let mut guest = Guest::accept(&frame(&mut link).unwrap());
    guest.answer(&mut link);
    let mut asked = [0; 100];
    let count = loop {
        guest.take(&frame(&mut link).unwrap());
        match guest.tcp.recv(&mut asked, now()).unwrap() {
            0 => guest.answer(&mut link),
            count => break count,
        }
    };
    assert_eq!(&asked[..count], b"question");
    guest.tcp.send(b"answer").unwrap();
    guest.tcp.close();
    guest.answer(&mut link);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
    drop(client);
    while link.table.open_connections() > 0 {
        guest.take(&frame(&mut link).unwrap());
        guest.answer(&mut link);
        let _ = link.peek().unwrap();
    }
    assert_eq!(link.counters().forward_closed.get(), 1);
}

#[test]
fn a_client_that_the_guest_resets_is_reset() {
    let (mut link, address) = link(10, None);
    let mut client = client(address);
    let mut guest = Guest::accept(&frame(&mut link).unwrap());
    guest.answer(&mut link);
    guest.take(&frame(&mut link).unwrap());
    guest.tcp.abort();
    guest.answer(&mut link);
    assert!(link.peek().unwrap().is_none());
    let read = client.read(&mut [0]);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn clients_without_a_place_wait_in_the_kernel() {
    let (mut link, address) = link(2, None);
    let clients: Vec<_> = (0..3).map(|_| client(address)).collect();
    let mut guests: Vec<_> = (0..2)
        .map(|_| Guest::accept(&frame(&mut link).unwrap()))
        .collect();
    link.ready();
    assert!(link.peek().unwrap().is_none());
    assert_eq!(link.counters().forward_opened.get(), 2);
    // The set is silent, or the thread would spin.
    link.poll.collect(&mut link.ready).unwrap();
    assert!(link.ready.iter().all(|ready| ready.token >= CONNECTIONS));
    link.ready.clear();
    let mut first = guests.remove(0);
    first.answer(&mut link);
    first.take(&frame(&mut link).unwrap());
    first.tcp.abort();
    first.answer(&mut link);
    assert!(link.peek().unwrap().is_none());
    Guest::accept(&frame(&mut link).unwrap());
    assert_eq!(link.counters().forward_opened.get(), 3);
    drop(clients);
}

/// ARP for `target`, from the guest.
fn arp(target: [u8; 4]) -> Vec<u8> {
    let mut arp = vec![0; 42];
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp[28..32].copy_from_slice(&GUEST);
    arp[38..].copy_from_slice(&target);
    arp
}

/// A datagram from the guest.
fn datagram(to: [u8; 4]) -> Vec<u8> {
    let mut frame = [GATEWAY_MAC, GUEST_MAC].concat();
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(GUEST);
    frame.extend(to);
    frame.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    frame
}

#[test]
fn a_waiting_passt_is_woken_by_the_first_frame_that_it_is_for() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, address) = link_beside(
        Beside::WaitingPasst,
        10,
        Vec::new(),
        Some(passt.beside_ports()),
    );
    theirs.set_nonblocking(true).unwrap();
    let mut quiet = || {
        let read = theirs.read(&mut [0; 1]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    };
    let mut client = client(address);
    let mut guest = Guest::accept(&frame(&mut link).unwrap());
    give(&mut link, &arp([10, 0, 2, 2]));
    assert_eq!(frame(&mut link).unwrap()[20..22], [0, 2], "a reply");
    guest.answer(&mut link);
    guest.take(&frame(&mut link).unwrap());
    guest.tcp.send(b"served").unwrap();
    guest.tcp.close();
    guest.answer(&mut link);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    quiet();
    // What the filter drops starts nothing.
    give(&mut link, &datagram([127, 0, 0, 1]));
    quiet();
    assert_eq!(link.dropped().unwrap().tx_filtered_loopback.get(), 1);
    assert_eq!(link.counters().forward_passt_started.get(), 0);
    give(&mut link, &datagram([192, 0, 2, 1]));
    assert_eq!(link.counters().forward_passt_started.get(), 1);
    // From here on passt has all.
    give(&mut link, &arp([10, 0, 2, 2]));
    let mut framed = Vec::new();
    let _ = theirs.read_to_end(&mut framed);
    let expected = [datagram([192, 0, 2, 1]), arp([10, 0, 2, 2])];
    let expected = expected
        .iter()
        .flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat());
    assert!(framed.into_iter().eq(expected));
}

#[test]
fn connections_of_the_guest_are_refused_once_passt_has_ended() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, _address) = link_beside(
        Beside::WaitingPasst,
        10,
        Vec::new(),
        Some(passt.beside_ports()),
    );
    drop(theirs);
    link.ready();
    assert!(link.peek().unwrap().is_none());
    assert_eq!(link.counters().forward_passt_ended.get(), 1);
    let mut syn = datagram([192, 0, 2, 1]);
    syn.resize(14 + 40, 0);
    (syn[17], syn[23]) = (40, 6);
    (syn[46], syn[47]) = (0x50, flags::SYN);
    give(&mut link, &syn);
    let reset = frame(&mut link).unwrap();
    assert!(Segment::parse(&reset[34..]).unwrap().has(flags::RST));
}

#[test]
fn frames_of_no_client_go_through_the_filter_to_passt() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, _address) = link(10, Some(passt));
    let to = arp;
    give(&mut link, &to([127, 0, 0, 1]));
    give(&mut link, &to([10, 0, 2, 2]));
    let mut framed = vec![0; 46];
    theirs.read_exact(&mut framed).unwrap();
    assert_eq!(framed[4..], to([10, 0, 2, 2]));
    assert_eq!(link.dropped().unwrap().tx_filtered_loopback.get(), 1);
    theirs.write_all(&framed).unwrap();
    assert_eq!(frame(&mut link).unwrap(), framed[4..]);
}

/// The guest sends and takes no frames: the set is ready when passt takes more, and quiet else.
#[test]
fn room_at_passt_makes_the_set_ready_once() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, _address) = link(10, Some(passt));
    let packet = arp([10, 0, 2, 2]);
    let outer = Poll::new().unwrap();
    outer
        .change(&link, 1, Interest::default(), Interest::READ)
        .unwrap();
    let is_ready = || {
        let mut ready = VecDeque::new();
        outer.collect(&mut ready).unwrap();
        !ready.is_empty()
    };
    let sent_until_blocked = |link: &mut ForwardLink| {
        let mut sent = 0;
        while link.reserve(packet.len()).unwrap().is_some() {
            give(link, &packet);
            sent += 1;
        }
        link.ready();
        link.flush().unwrap();
        sent
    };
    let first = sent_until_blocked(&mut link);
    assert!(link.is_set() && link.has_unsent() && !is_ready());
    // A frame for the guest is looked at once.
    theirs
        .write_all(&[&42_u32.to_be_bytes()[..], &packet].concat())
        .unwrap();
    assert!(is_ready());
    link.ready();
    link.flush().unwrap();
    assert!(!is_ready());
    let mut taken = Vec::new();
    let _ = theirs.read_to_end(&mut taken);
    assert!(is_ready());
    let more = sent_until_blocked(&mut link);
    assert!(more > 0 && !is_ready());
    while taken.len() < (first + more) * 46 {
        link.flush().unwrap();
        let _ = theirs.read_to_end(&mut taken);
    }
    assert!(taken.chunks(46).all(|frame| frame[4..] == packet));
    // And the guest takes it now.
    assert_eq!(frame(&mut link).unwrap(), packet);
}

#[test]
fn a_refused_frame_goes_when_all_before_it_has_gone_at_once() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, _address) = link(10, Some(passt));
    let packet = arp([10, 0, 2, 2]);
    while let Some(room) = link.reserve(packet.len()).unwrap() {
        room.copy_from_slice(&packet);
        link.commit(&NetHeader::default()).unwrap();
    }
    // passt reads before the link has said that it waits for room.
    let _ = theirs.read_to_end(&mut Vec::new());
    link.flush().unwrap();
    assert!(!link.has_unsent());
    // A quarter of its socket's buffer makes that writable (`unix_writable`, net/unix/af_unix.c).
    let _ = theirs.read_to_end(&mut Vec::new());
    let mut ready = VecDeque::new();
    link.poll.collect(&mut ready).unwrap();
    assert!(ready.iter().any(|it| it.token == PASST && it.writable));
    give(&mut link, &packet);
    assert!(!link.refused && !link.passt_watched.writable);
}

#[test]
fn passt_gets_whole_segments_with_checksums() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, _) = link(10, Some(passt));
    let mut next = || {
        let mut length = [0; 4];
        theirs.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        theirs.read_exact(&mut frame).unwrap();
        // Its sum with that of the pseudo header.
        let tcp = &frame[34..];
        let pseudo = checksum::sum(&frame[26..34]) + 6 + tcp.len() as u64;
        assert_eq!(checksum::fold(pseudo + checksum::sum(tcp)), 0xffff);
        frame.len()
    };
    let (frame, header) = long(0, 4000, 1460);
    give_with(&mut link, &frame, &header);
    assert_eq!([next(), next(), next()], [1514, 1514, 54 + 1080]);
    // Shorter than passt's longest frame, and cut all the same.
    let (frame, header) = long(3, 1000, 536);
    give_with(&mut link, &frame, &header);
    assert_eq!([next(), next()], [66 + 536, 66 + 464]);
    // Longer than passt's frames, once as it is and once cut.
    let (frame, header) = long(0, 4000, 1461);
    give_with(&mut link, &frame, &header);
    give(&mut link, &frame);
    let counters = link.table.counters().snapshot();
    assert_eq!(counters["forward_passt_dropped"], 2);
    // A whole segment whose checksum the guest left to its device.
    let (mut frame, header) = long(0, 100, 1460);
    let pseudo = checksum::sum(&frame[26..34]) + 6 + 120;
    frame[50..52].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    let header = NetHeader {
        gso_type: GSO_NONE,
        ..header
    };
    give_with(&mut link, &frame, &header);
    assert_eq!(next(), 154);
}

#[test]
fn published_ports_outlive_passt() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let passt = StreamLink::new(ours.into(), 1514, Rules::default()).unwrap();
    let (mut link, address) = link(10, Some(passt));
    let features = link.features();
    drop(theirs);
    link.ready();
    assert!(link.peek().unwrap().is_none());
    assert!(link.passt.is_none());
    assert_eq!(link.features(), features, "as the device has offered them");
    // What was for passt is dropped.
    give(&mut link, &[0; 60]);
    let mut client = client(address);
    let mut guest = Guest::accept(&frame(&mut link).unwrap());
    guest.answer(&mut link);
    guest.take(&frame(&mut link).unwrap());
    guest.tcp.send(b"still here").unwrap();
    guest.tcp.close();
    guest.answer(&mut link);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "still here");
}

/// A link with UDP port 53 of the guest, and the port's address.
fn datagram_link() -> (ForwardLink, SocketAddr) {
    datagram_link_at(Ipv4Addr::LOCALHOST)
}

fn datagram_link_at(address: Ipv4Addr) -> (ForwardLink, SocketAddr) {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let all_addresses = address.is_unspecified();
    setsockopt(&socket, Ipv4PacketInfo, &all_addresses).unwrap();
    let address = socket.local_addr().unwrap();
    let port = PortSocket {
        socket: socket.into(),
        port: 53,
        all_addresses,
    };
    let (link, _) = link_beside(Beside::Nothing, 10, vec![port], None);
    (link, address)
}

/// Returns a datagram to where it came from. Checksums are not looked at.
fn give_back(link: &mut ForwardLink, question: &[u8]) {
    let mut answer = question.to_vec();
    for (at, from, len) in [(26, 30, 4), (30, 26, 4), (34, 36, 2), (36, 34, 2)] {
        answer[at..at + len].copy_from_slice(&question[from..from + len]);
    }
    give(link, &answer);
}

/// A client that takes answers from that address alone.
fn datagram_client(address: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.connect(address).unwrap();
    client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    client
}

#[test]
fn a_port_at_all_addresses_answers_from_the_one_that_was_asked() {
    let (mut link, address) = datagram_link_at(Ipv4Addr::UNSPECIFIED);
    let hosts = [1, 2, 77].map(|host| Ipv4Addr::new(127, 0, 0, host));
    let clients = hosts.map(|host| datagram_client((host, address.port()).into()));
    for (client, host) in clients.iter().zip(hosts) {
        client.send(&host.octets()).unwrap();
    }
    for _ in 0..hosts.len() {
        let question = frame(&mut link).unwrap();
        give_back(&mut link, &question);
    }
    for (client, host) in clients.iter().zip(hosts) {
        let mut bytes = [0; 8];
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], host.octets());
    }
    assert_eq!(link.counters().forward_datagrams_dropped.get(), 0);
}

#[test]
fn datagrams_go_to_the_guest_and_its_answers_to_their_clients() {
    let (mut link, address) = datagram_link();
    let clients = [0, 1].map(|_| datagram_client(address));
    for (client, word) in clients.iter().zip(["one", "two"]) {
        client.send(word.as_bytes()).unwrap();
    }
    let questions = [frame(&mut link).unwrap(), frame(&mut link).unwrap()];
    for question in &questions {
        give_back(&mut link, question);
    }
    for (client, word) in clients.iter().zip(["one", "two"]) {
        let mut bytes = [0; 8];
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], word.as_bytes());
    }
    assert_eq!(link.counters().forward_datagrams_dropped.get(), 0);
}

#[test]
fn datagrams_that_the_guest_has_no_room_for_wait_in_their_socket() {
    const SENT: u64 = 200;
    let (mut link, address) = datagram_link();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..SENT {
        client.send_to(b"", address).unwrap();
    }
    // On the loopback they are in the socket now; the guest takes none.
    link.ready();
    for _ in 0..20 {
        assert!(link.peek().unwrap().is_some());
    }
    let counters = link.counters();
    let received = counters.forward_datagrams_in.get();
    assert!(received < SENT, "{received}");
    let mut taken = 0;
    while link.has_frames() && link.peek().unwrap().is_some() {
        link.consume();
        taken += 1;
    }
    assert_eq!((taken, counters.forward_datagrams_in.get()), (SENT, SENT));
    assert_eq!(counters.forward_datagrams_dropped.get(), 0);
    assert!(!link.has_frames(), "nothing keeps the thread awake");
}
