//! ARP (RFC 826) as far as smoltcp's interface leaves it out: announcements of
//! neighbours and our own, probes (RFC 5227), conflicts, and learning from SYNs.

use core::net::{IpAddr, Ipv4Addr};

use smoltcp::time::{Duration, Instant};

use super::claim::Claim;
use super::{Stack, Wake};
use crate::arp::{BROADCAST, FRAME_BYTES, Operation, Packet};
use crate::link::Link;
use crate::neighbours::{Mac, is_unicast};

/// How long after an address was taken a claim to it means that it was not free.
const PROBATION: Duration = Duration::from_secs(2);
/// An address is defended at most once in this time (RFC 5227, 2.4 b).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

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
            self.note_neighbor(packet.sender.into(), packet.sender_mac, now);
            self.wire.ingress(frame, &mut self.no_sockets, now);
        } else if self.wire.neighbours.knows(packet.sender.into()) {
            self.learn(packet.sender, packet.sender_mac, now);
        } else {
            return;
        }
        self.retry_unresolved(now);
    }

    /// The neighbour that answers a SYN: the one that sent it, except that a SYN
    /// alone moves no known neighbour. From another network it came through a
    /// router, and goes back there if there is a route.
    pub(super) fn neighbor_of_syn(
        &mut self,
        address: IpAddr,
        sender: Mac,
        now: Instant,
    ) -> Option<Mac> {
        if !self.wire.is_on_link(address) {
            return self.wire.router_to(address).map(|_| sender);
        }
        if let Some(known) = self.wire.neighbours.trusted(address, now) {
            return Some(known);
        }
        if !is_unicast(sender) {
            return None;
        }
        self.wire.neighbours.learn(address, sender, now);
        Some(sender)
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
        self.note_neighbor(address.into(), mac, now);
        self.wire.ingress(&frame, &mut self.no_sockets, now);
    }

    /// Notes a neighbour; connections through it follow when it has moved.
    pub(super) fn note_neighbor(&mut self, address: IpAddr, mac: Mac, now: Instant) {
        if let Some(former) = self.wire.neighbours.note(address, mac, now) {
            self.tcp.move_neighbor(&mut self.wire, address, former, mac);
        }
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

    /// Asks whether another host has the new address, and announces to all that it
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

    pub(super) fn own_mac(&self) -> Mac {
        self.wire.link.properties().mac
    }

    fn send_arp(&mut self, packet: &Packet, to: Mac) {
        if !self.wire.link.send_ready() {
            return;
        }
        self.wire.link.send(FRAME_BYTES, 0, |frame| {
            if let Some(frame) = frame.first_chunk_mut() {
                packet.write(to, frame);
            }
        });
    }
}
