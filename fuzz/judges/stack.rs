//! What the whole network stack keeps to, whatever frames arrive in whatever order: no
//! panic, bounded tables, no deadline in the past, and few frames sent for each received.
//! Shared by the fuzz target and tare-net's tests.
//!
//! Checksums are the device's affair here, so that no input fails for one alone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use smoltcp::time::{Duration, Instant};
use tare_io::IoSlice;
use tare_net::frame::{Checksums, Medium};
use tare_net::link::{Link, Properties, Received, SendChecksums};
use tare_net::stack::{
    ConnectionId, DatagramId, Ipv6Setup, Limits, ListenerId, Seeds, Setup, Stack, Take,
};
use tare_net::waiters::NoWake;

/// Most payload of a segment that the link cuts.
const TOGETHER: u16 = 16 << 10;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Steps of one input.
const STEPS_MAX: usize = 300;
const LIMITS: Limits = Limits {
    connections: 32,
    orphans: 8,
    backlog: 8,
};
/// Frames that one frame can cause: segments that an acknowledgement opens the window
/// for are bounded by what was written, 64 kB.
const ANSWERS_MAX: usize = 128;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// A link without an other end.
struct Wire {
    incoming: Queue,
    sent: Rc<RefCell<usize>>,
}

impl Link for Wire {
    type Buffer = Vec<u8>;

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ethernet,
            mac: MAC,
            mtu: 1500,
            checksums: SendChecksums::Device,
            together: TOGETHER,
        }
    }

    fn receive(&mut self) -> Option<Received<Vec<u8>>> {
        let buffer = self.incoming.borrow_mut().pop_front()?;
        Some(Received {
            buffer,
            checksums: Checksums::Trusted,
        })
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}

    fn send_ready(&mut self) -> bool {
        true
    }

    fn send<R>(&mut self, len: usize, cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let most = match cut {
            0 => 14 + 1500,
            _ => 14 + 60 + 60 + usize::from(TOGETHER),
        };
        assert!(
            len <= most && cut <= 1460,
            "a frame of {len} bytes, cut to {cut}"
        );
        *self.sent.borrow_mut() += 1;
        fill(&mut vec![0; len])
    }

    fn flush(&mut self) {}
}

struct Host {
    stack: Stack<Wire, NoWake>,
    incoming: Queue,
    sent: Rc<RefCell<usize>>,
    now: Instant,
    listener: ListenerId,
    datagrams: DatagramId,
    connections: Vec<ConnectionId>,
}

/// Bytes as frames: the first byte is the set-up, then for each step a kind, how much
/// time passes, a length, and this many bytes.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((setup, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut host = Host::new(*setup);
    for _ in 0..STEPS_MAX {
        let [kind, time, len, after @ ..] = rest else {
            break;
        };
        let (body, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        host.pass(*time);
        host.act(*kind >> 5);
        host.take(frame(*kind & 31, body));
        host.check();
    }
}

impl Host {
    fn new(setup: u8) -> Self {
        let (incoming, sent) = (Queue::default(), Rc::default());
        let wire = Wire {
            incoming: Rc::clone(&incoming),
            sent: Rc::clone(&sent),
        };
        let now = Instant::from_millis(1);
        let word = "10.0.0.1/24,10.0.0.2";
        let ipv4 = match setup & 1 {
            0 => Setup::from_word(word).expect("a set-up"),
            _ => Setup::Dhcp,
        };
        let ipv6 = match setup >> 1 & 3 {
            0 => Ipv6Setup::from_word("fd00::1/64,fe80::2").expect("a set-up"),
            1 => Ipv6Setup::Off,
            _ => Ipv6Setup::Auto,
        };
        let seeds = Seeds {
            general: 7,
            secret: [7; 16],
        };
        let mut stack = Stack::new(wire, ipv4, seeds, now);
        stack.set_limits(LIMITS);
        stack.start_ipv6(ipv6, [7; 16], now);
        let any = Ipv6Addr::UNSPECIFIED;
        Self {
            listener: stack.listen((any, 80), 4).expect("a listener"),
            datagrams: stack.bind((any, 53)).expect("a socket"),
            connections: Vec::new(),
            stack,
            incoming,
            sent,
            now,
        }
    }

    fn pass(&mut self, time: u8) {
        // Up to 36 hours, most steps short.
        let ms = 1_u64 << (time & 27);
        self.now += Duration::from_millis(ms);
        self.stack.poll(self.now, 16);
    }

    /// What the application does.
    fn act(&mut self, action: u8) {
        let now = self.now;
        let mut buf = [0; 2000];
        match action {
            1 => self
                .connections
                .extend(self.stack.accept(self.listener).map(|it| it.0)),
            2 => self.connections.extend(self.stack.connect((PEER, 9), now)),
            3 => self
                .connections
                .extend(self.stack.connect((PEER_V6, 9), now)),
            4 => drop(
                self.stack
                    .send_to(self.datagrams, &[1; 100], (PEER, 53), now),
            ),
            5 => {
                for id in &self.connections {
                    let _ = self.stack.read(*id, &mut buf, now);
                    let _ = self.stack.write(*id, &[IoSlice::new(&buf)], now);
                }
            }
            6 => {
                if let Some(id) = self.connections.pop() {
                    self.stack.close(id, now);
                }
            }
            7 => drop(
                self.stack
                    .receive_from(self.datagrams, &mut buf, Take::Remove),
            ),
            _ => {}
        }
        while self.connections.len() > LIMITS.connections {
            self.stack.close(self.connections.remove(0), now);
        }
    }

    fn take(&mut self, frame: Vec<u8>) {
        self.stack.poll(self.now, 16);
        let before = *self.sent.borrow();
        self.incoming.borrow_mut().push_back(frame);
        self.stack.poll(self.now, 16);
        let answers = *self.sent.borrow() - before;
        assert!(answers <= ANSWERS_MAX, "{answers} frames for one");
    }

    fn check(&mut self) {
        let deadline = self.stack.deadline();
        assert!(
            deadline.is_none_or(|at| at > self.now),
            "{deadline:?} at {}",
            self.now
        );
        let counters = self.stack.counters();
        let most = LIMITS.connections as u64;
        assert!(
            counters.connections <= most,
            "{} connections",
            counters.connections
        );
        assert!(
            counters.orphans <= LIMITS.orphans as u64,
            "{} orphans",
            counters.orphans
        );
        assert!(self.stack.addresses().len() <= 9);
        assert!(self.stack.name_servers(self.now).len() <= 6);
    }
}

/// A frame of a kind with `body` where bytes matter most.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    match kind {
        0 => ethernet(MAC, [8, 6], &[&[0, 1, 8, 0, 6, 4, 0], body].concat()),
        1 => ipv4(1, body),
        2 => ipv4(6, &tcp(body)),
        3 => ipv4(17, &udp(53, 53, body)),
        4 => ipv4(17, &udp(67, 68, body)),
        5 => ipv4(17, &udp(67, 68, &[&[2, 1, 6, 0][..], body].concat())),
        6 => ipv6(OWN_V6, 58, 255, body),
        7 => ipv6(ALL_NODES, 58, 255, body),
        8 => router_advertisement(body),
        9 => ipv6(OWN_V6, 6, 64, &tcp(body)),
        10 => ipv6(OWN_V6, 17, 64, &udp(53, 53, body)),
        11 => ipv6(OWN_V6, 17, 64, &udp(547, 546, body)),
        12 => ipv6(OWN_V6, 44, 64, body),
        13 => ipv6(ALL_NODES, 0, 1, body),
        14 => ethernet([0xff; 6], [8, 0], body),
        15 => ethernet(MAC, [0x81, 0], &[&[0, 0, 8, 0], body].concat()),
        16 => ethernet(MAC, [0x86, 0xdd], body),
        _ => body.to_vec(),
    }
}

fn ethernet(to: [u8; 6], kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    [&to[..], &PEER_MAC, &kind, rest].concat()
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(len.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(Ipv4Addr::from(PEER).octets());
    header.extend(Ipv4Addr::from(OWN).octets());
    header.extend(payload);
    ethernet(MAC, [8, 0], &header)
}

fn ipv6(to: Ipv6Addr, next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next, hop_limit]);
    header.extend(PEER_V6.octets());
    header.extend(to.octets());
    header.extend(payload);
    let mac = if to.is_multicast() {
        [0x33, 0x33, 0, 0, 0, 1]
    } else {
        MAC
    };
    ethernet(mac, [0x86, 0xdd], &header)
}

/// The fixed part of an advertisement, with options that the input gives.
fn router_advertisement(body: &[u8]) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0xc0, 7, 8];
    message.extend([0; 8]);
    message.extend(body);
    ipv6(ALL_NODES, 58, 255, &message)
}

fn udp(source: u16, destination: u16, data: &[u8]) -> Vec<u8> {
    let mut datagram = source.to_be_bytes().to_vec();
    datagram.extend(destination.to_be_bytes());
    datagram.extend((8 + data.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(data);
    datagram
}

/// A segment to the listener: the source port's low byte, flags, numbers near each other,
/// then options and data.
fn tcp(body: &[u8]) -> Vec<u8> {
    let byte = |at: usize| body.get(at).copied().unwrap_or(0);
    let mut segment = vec![0xc0, byte(0) & 15, 0, 80];
    segment.extend(u32::from_be_bytes([0, 0, byte(1), byte(2)]).to_be_bytes());
    segment.extend([byte(3), byte(4), byte(5), byte(6)]);
    let rest = body.get(9..).unwrap_or_default();
    let words = (byte(8) & 15).min((rest.len() / 4) as u8).min(10);
    segment.extend([(5 + words) << 4, byte(7), 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(rest);
    segment
}
