//! ARP (RFC 826) as far as smoltcp's interface leaves it out: announcements of
//! neighbours and our own, probes (RFC 5227), conflicts, and learning from SYNs.

use core::net::Ipv4Addr;

use smoltcp::time::{Duration, Instant};

use super::neighbours::{Mac, is_unicast};
use super::{Stack, Wake};
use crate::net::frame::Segment;
use crate::net::link::Link;

const FRAME_BYTES: usize = 42;
const BROADCAST: Mac = [0xff; 6];
/// Ethernet and IPv4, with addresses of six and four bytes.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// How long after an address was taken a claim to it means that it was not free.
const PROBATION: Duration = Duration::from_secs(2);
/// An address is defended at most once in this time (RFC 5227, 2.4 b).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Request,
    Reply,
}

/// An ARP packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    operation: Operation,
    sender_mac: Mac,
    sender: Ipv4Addr,
    target_mac: Mac,
    target: Ipv4Addr,
}

impl Packet {
    fn parse(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?.first_chunk::<28>()?;
        let operation = match packet.strip_prefix(&KIND)? {
            [0, 1, ..] => Operation::Request,
            [0, 2, ..] => Operation::Reply,
            _ => return None,
        };
        Some(Self {
            operation,
            sender_mac: *packet[8..].first_chunk()?,
            sender: Ipv4Addr::from_octets(*packet[14..].first_chunk()?),
            target_mac: *packet[18..].first_chunk()?,
            target: Ipv4Addr::from_octets(*packet[24..].first_chunk()?),
        })
    }

    fn write(&self, to: Mac, frame: &mut [u8; FRAME_BYTES]) {
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&self.sender_mac);
        frame[12..14].copy_from_slice(&[8, 6]);
        frame[14..20].copy_from_slice(&KIND);
        frame[20] = 0;
        frame[21] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        frame[22..28].copy_from_slice(&self.sender_mac);
        frame[28..32].copy_from_slice(&self.sender.octets());
        frame[32..38].copy_from_slice(&self.target_mac);
        frame[38..42].copy_from_slice(&self.target.octets());
    }
}

/// What ARP keeps beside the table of neighbours.
#[derive(Default)]
pub(super) struct Claim {
    /// When the address was taken.
    taken: Option<Instant>,
    defended: Option<Instant>,
}

impl<L: Link, W: Wake> Stack<L, W> {
    pub(super) fn ingress_arp(&mut self, frame: &[u8], now: Instant) {
        let Some(packet) = Packet::parse(frame) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(own) = self.wire.address() else {
            return;
        };
        if packet.sender_mac == self.own_mac() || !is_unicast(packet.sender_mac) {
            return;
        }
        if packet.sender == own {
            return self.note_conflict(own, now);
        }
        if packet.target == own && packet.sender.is_unspecified() {
            return self.answer_probe(&packet, own);
        }
        if packet.target == own {
            self.neighbours.note(packet.sender, now);
            self.wire.ingress(frame, &mut self.nobody, now);
        } else if self.neighbours.knows(packet.sender) {
            self.learn(packet.sender, packet.sender_mac, now);
        } else {
            return;
        }
        self.retry_unresolved(now);
    }

    /// Learns where a SYN came from, so that its answer need not ask. Only on this
    /// network: from elsewhere it came through a router. What is known lately stays.
    pub(super) fn learn_from_syn(&mut self, segment: &Segment, frame: &[u8], now: Instant) {
        let address = *segment.flow.remote.ip();
        let Some(mac) = frame.get(6..).and_then(<[u8]>::first_chunk::<6>) else {
            return;
        };
        let known = self.neighbours.is_fresh(address, now);
        if !known && is_unicast(*mac) && self.wire.is_on_link(address) {
            self.learn(address, *mac, now);
        }
    }

    /// Hands a neighbour's address to the interface as the answer to a request.
    fn learn(&mut self, address: Ipv4Addr, mac: Mac, now: Instant) {
        let Some(own) = self.wire.address() else {
            return;
        };
        let own_mac = self.own_mac();
        let packet = Packet {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: address,
            target_mac: own_mac,
            target: own,
        };
        let mut frame = [0; FRAME_BYTES];
        packet.write(own_mac, &mut frame);
        self.neighbours.note(address, now);
        self.wire.ingress(&frame, &mut self.nobody, now);
    }

    /// Says that the address is taken (RFC 5227, 2.1.1).
    fn answer_probe(&mut self, probe: &Packet, own: Ipv4Addr) {
        if probe.operation != Operation::Request {
            return;
        }
        let reply = Packet {
            operation: Operation::Reply,
            sender_mac: self.own_mac(),
            sender: own,
            target_mac: probe.sender_mac,
            target: Ipv4Addr::UNSPECIFIED,
        };
        self.send_arp(&reply, probe.sender_mac);
    }

    /// Asks whether somebody else has the new address, and tells everybody that it
    /// is ours. It is used at once: waiting for an answer would delay each start.
    pub(super) fn claim_address(&mut self, own: Ipv4Addr, now: Instant) {
        self.claim = Claim {
            taken: Some(now),
            defended: None,
        };
        self.send_claim(Ipv4Addr::UNSPECIFIED, own);
        self.send_claim(own, own);
    }

    /// A probe (from no address) or an announcement.
    fn send_claim(&mut self, sender: Ipv4Addr, own: Ipv4Addr) {
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: self.own_mac(),
            sender,
            target_mac: [0; 6],
            target: own,
        };
        self.send_arp(&packet, BROADCAST);
    }

    /// Another station uses the address: a new lease is declined, an old address
    /// defended.
    fn note_conflict(&mut self, own: Ipv4Addr, now: Instant) {
        self.counters.address_conflicts += 1;
        let on_probation = self
            .claim
            .taken
            .is_some_and(|taken| now < taken + PROBATION);
        if on_probation && self.setup.is_dhcp() {
            return self.decline_lease(own, now);
        }
        let defended = self.claim.defended;
        if defended.is_none_or(|last| last + DEFEND_INTERVAL <= now) {
            self.claim.defended = Some(now);
            self.send_claim(own, own);
        }
    }

    fn own_mac(&self) -> Mac {
        self.wire.link.properties().mac
    }

    fn send_arp(&mut self, packet: &Packet, to: Mac) {
        if !self.wire.link.send_ready() {
            return;
        }
        self.wire.link.send(FRAME_BYTES, |frame| {
            if let Some(frame) = frame.first_chunk_mut() {
                packet.write(to, frame);
            }
        });
    }
}
