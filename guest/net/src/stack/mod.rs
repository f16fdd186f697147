//! [`Stack`]: the network as a state machine. It does no locking, waits for
//! nothing and has no clock: frames come and go through its [`Link`]s, time
//! is passed in, and threads that must look again are woken through [`Wake`].
//!
//! One frame's way: [`frame::parse_as`] finds out what it is about, the
//! `FlowTable` gives the connection, `tare_tcp` takes
//! the segment and gives those to send, the deadline goes into the
//! `Timers`, and the connection's waiters are woken.
//! Everything but TCP is smoltcp's, driven for one socket at a time.

mod arp;
mod autoconf;
mod calls;
mod claim;
mod config;
mod connection;
mod counters;
mod datagram;
mod dhcp;
mod icmp;
mod interfaces;
mod ipv6;
mod lease;
mod limits;
mod listener;
mod open;
mod reports;
mod tcp;
mod udp;
mod via;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use smoltcp::iface::SocketSet;
use smoltcp::wire::Ipv4Cidr;
use tare_fragments::Fragments;
use tare_io::{Error, ErrorKind, Result};

use super::binding::Binding;
use super::flow::Flow;
use super::frame::{self, Checksums, Frame, FrameError, Segment};
use super::link::{Link, Loopback, Received};
use super::memory::Memory;
use super::port::Port;
use super::random::{Random, Use};
use super::waiters::{Waiters, Wake};

use reports::{Report, TooBig};
use via::Via;

pub use super::readiness::Interest;
pub use calls::{Half, Sending};
pub use config::{Ipv6Setup, Setup};
pub use connection::ConnectionId;
pub use counters::{Counters, Figure, FigureKind};
pub use datagram::Take;
pub use interfaces::{Interface, Network};
pub use limits::Limits;
pub use listener::ListenerId;
pub use smoltcp::time::Instant;
pub use udp::DatagramId;

/// Whether there is more to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Poll again.
    More,
    /// Nothing to do before the next frame or [`Stack::deadline`].
    Idle,
}

/// Random numbers of this boot.
#[derive(Clone, Copy)]
pub struct Seeds {
    /// For ports and transaction numbers, which may be seen.
    pub general: u64,
    /// The key of TCP's sequence numbers and cookies and of all that may not be predicted; not
    /// derived from anything that may be seen.
    pub secret: [u8; 16],
}

/// The network of the appliance.
pub struct Stack<L: Link, W: Wake> {
    wire: Port<L>,
    loopback: Port<Loopback>,
    /// For frames that concern no socket: ARP, ICMP, resets for unknown connections.
    no_sockets: SocketSet<'static>,
    setup: lease::State,
    claim: claim::Claim,
    icmp_errors: icmp::ErrorBudget,
    tcp: tcp::Tcp<W>,
    udp: udp::Udp<W>,
    /// From the first one on.
    fragments: Option<Box<Fragments>>,
    ipv6: autoconf::Ipv6,
    /// Name servers of the command line, which go before those of the network.
    name_servers: Vec<IpAddr>,
    configured: Waiters<W>,
    counters: Counters,
    /// Polls in a row that left frames in the queue and did not look at deadlines.
    turns_without_timers: u32,
}

/// At most this many [`Stack::poll`]s in a row handle nothing but frames.
const TURNS_WITHOUT_TIMERS: u32 = 32;

impl<L: Link, W: Wake> Stack<L, W> {
    /// A network on `link`. `seeds` differ at each boot.
    pub fn new(link: L, setup: Setup, seeds: Seeds, now: Instant) -> Self {
        Self::new_in(Memory::UNLIMITED, link, setup, seeds, now)
    }

    /// The same, in a bounded memory.
    pub fn new_in(memory: Memory, link: L, setup: Setup, seeds: Seeds, now: Instant) -> Self {
        let seed = seeds.general;
        let random = |of| Random::new(seeds.secret, of);
        let mut stack = Self {
            wire: Port::new(link, seed, random(Use::Wire), now),
            loopback: Port::new(Loopback::new(memory), !seed, random(Use::Loopback), now),
            no_sockets: SocketSet::new(alloc::vec::Vec::new()),
            setup: lease::State::new(setup),
            claim: claim::Claim::default(),
            icmp_errors: icmp::ErrorBudget::default(),
            tcp: tcp::Tcp::new(seed.rotate_left(17), seeds.secret, memory),
            udp: udp::Udp::new(&seeds, memory),
            fragments: None,
            ipv6: autoconf::Ipv6::off(random(Use::Dhcpv6)),
            name_servers: Vec::new(),
            configured: Waiters::default(),
            counters: Counters::default(),
            turns_without_timers: 0,
        };
        stack
            .loopback
            .set_addresses([Some(config::LOCALHOST), None]);
        stack.loopback.ipv6.mirror(&stack.wire.ipv6);
        if let Setup::Static { address, gateway } = setup {
            stack.set_address(Some(address), gateway);
            stack.claim_address(address.address(), now);
        }
        stack.drive_setup(now);
        stack.wire.link.flush();
        stack
    }

    /// Handles up to `budget` received frames and all that is due. The caller
    /// can let go of its lock between two calls.
    pub fn poll(&mut self, now: Instant, budget: usize) -> Progress {
        let mut progress = Progress::Idle;
        for turn in 0.. {
            let from_wire = self.receive_from_wire(now);
            let from_loopback = self.receive_from_loopback(now);
            if !(from_wire || from_loopback) {
                break;
            }
            if turn + 1 >= budget {
                progress = Progress::More;
                break;
            }
        }
        // What is queued may be what a deadline waits for: frames first, but not
        // forever.
        self.turns_without_timers += 1;
        if progress == Progress::Idle || self.turns_without_timers >= TURNS_WITHOUT_TIMERS {
            self.turns_without_timers = 0;
            self.run_timers(now);
        }
        self.wire.link.flush();
        let (wire, loopback) = (&mut self.wire.link, &mut self.loopback.link);
        let has_room = |frames| wire.send_room() >= frames && loopback.send_ready();
        self.udp.wake_writers(now, has_room);
        if !self.loopback.link.is_empty() {
            progress = Progress::More;
        }
        progress
    }

    /// When [`Stack::poll`] is due without a frame; `None`: never.
    pub fn deadline(&self) -> Option<Instant> {
        let tcp = self.tcp.timers.earliest();
        let udp = sooner(self.udp.deadline, self.udp.room_deadline());
        let others = sooner(self.setup.deadline, udp);
        let links = sooner(self.ipv6.deadline, self.wire.neighbours.probe_deadline());
        sooner(tcp, sooner(others, links))
    }

    /// The address on the wire; none before DHCP has given one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.wire.address()
    }

    /// All addresses on the wire.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let v4 = self.wire.address().map(IpAddr::V4);
        let v6 = self.wire.ipv6.own().iter().map(|own| own.address.into());
        v4.into_iter().chain(v6).collect()
    }

    /// Name servers, those of the command line first.
    pub fn name_servers(&self, now: Instant) -> Vec<IpAddr> {
        let given = self.name_servers.iter().copied();
        let v4 = self.setup.name_servers().iter().copied().map(IpAddr::V4);
        let v6 = self.ipv6.name_servers(now).map(IpAddr::V6);
        given.chain(v4).chain(v6).collect()
    }

    /// Sets the name servers that the command line names.
    pub fn set_name_servers(&mut self, servers: Vec<IpAddr>) {
        self.name_servers = servers;
    }

    /// Registers for being woken when the address changes.
    pub fn wait_address(&mut self, waiter: W) {
        self.configured.add(waiter);
    }

    /// Takes a registration back.
    pub fn cancel_address(&mut self, waiter: &W) {
        self.configured.remove(waiter);
    }

    /// How many frames came from the device.
    pub fn frames_received(&self) -> u64 {
        self.counters.frames_received
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters {
            connections: self.tcp.len() as u64,
            orphans: self.tcp.orphans.len() as u64,
            ..self.counters
        }
    }

    /// What peers can make this side hold.
    pub fn limits(&self) -> Limits {
        self.tcp.limits
    }

    /// Bounds what peers can make this side hold, in place of what follows from the
    /// heap's size.
    pub fn set_limits(&mut self, limits: Limits) {
        self.tcp.limits = limits;
    }

    /// The device, for tests.
    pub fn link(&mut self) -> &mut L {
        &mut self.wire.link
    }

    fn receive_from_wire(&mut self, now: Instant) -> bool {
        let Some(Received { buffer, checksums }) = self.wire.link.receive() else {
            return false;
        };
        let bytes = buffer.as_ref();
        self.counters.frames_received += 1;
        self.counters.bytes_received += bytes.len() as u64;
        match frame::parse_as(bytes, frame::Medium::Ethernet, checksums) {
            Ok(frame) => self.ingress_wire(frame, bytes, now),
            Err(FrameError::PriorityTag) => self.ingress_tagged(bytes, checksums, now),
            Err(FrameError::Fragment) if W::of_programs() => self.ingress_fragment(bytes, now),
            Err(error) => self.count_refusal(error),
        }
        self.wire.link.recycle(buffer);
        true
    }

    /// A frame with a priority and no network number is like one without the tag
    /// (IEEE 802.1Q, 9.6).
    #[cold]
    fn ingress_tagged(&mut self, bytes: &[u8], checksums: Checksums, now: Instant) {
        let mut untagged = alloc::vec::Vec::new();
        if untagged.try_reserve_exact(bytes.len()).is_err() {
            return;
        }
        untagged.extend_from_slice(&bytes[..12]);
        untagged.extend_from_slice(&bytes[16..]);
        match frame::parse_as(&untagged, frame::Medium::Ethernet, checksums) {
            Ok(frame) => self.ingress_wire(frame, &untagged, now),
            Err(error) => self.count_refusal(error),
        }
    }

    /// Whether a segment is for this host alone, by both of its addresses: no other
    /// one takes part in a connection (RFC 9293, 3.9.2.3).
    #[inline]
    fn is_for_this_host(&mut self, segment: &Segment, frame: &[u8]) -> bool {
        let flow = &segment.flow;
        let mine = frame[0] & 1 == 0
            && self.wire.has_address(flow.local.ip())
            && !self.wire.is_subnet_broadcast(flow.remote.ip());
        self.counters.broadcast += u64::from(!mine);
        mine
    }

    /// The segment with the neighbour that its answer goes to: where it came from,
    /// unless a SYN's sender is known to be elsewhere. None for a SYN that no route
    /// leads back for.
    #[inline]
    fn arrival<'a>(
        &mut self,
        found: &Segment,
        frame: &'a [u8],
        now: Instant,
    ) -> Option<tcp::Arrival<'a>> {
        let mut neighbor = sender(frame);
        if found.opens() {
            neighbor = self.neighbor_of_syn(found.flow.remote.ip(), neighbor, now)?;
        }
        Some(tcp::Arrival {
            flow: found.flow,
            segment: segment_in(found, frame)?,
            neighbor,
        })
    }

    fn ingress_wire(&mut self, frame: Frame, bytes: &[u8], now: Instant) {
        match frame {
            Frame::Tcp(segment) if is_foreign(&segment.flow) => {
                if self.is_for_this_host(&segment, bytes)
                    && let Some(arrival) = self.arrival(&segment, bytes, now)
                {
                    let (port, counters) = (&mut self.wire, &mut self.counters);
                    self.tcp.ingress(port, Via::Wire, &arrival, counters, now);
                }
            }
            Frame::Udp(found) if self.setup.is_dhcp() && is_for_dhcp_client(&found) => {
                self.ingress_dhcp(bytes, now);
            }
            Frame::Udp(found) if self.is_for_dhcpv6_client(&found) => {
                self.ingress_dhcpv6(&found, bytes, now);
            }
            Frame::Udp(found) if is_foreign(&found.flow) => {
                self.ingress_datagram::<true>(&found, bytes, now);
            }
            Frame::Tcp(_) | Frame::Udp(_) => self.counters.martian += 1,
            Frame::Arp => self.ingress_arp(bytes, now),
            Frame::OtherIpv4 => self.ingress_other(bytes, now),
            Frame::Icmpv6(found) => self.ingress_icmpv6(&found, bytes, now),
        }
    }

    /// Another protocol than TCP and UDP: ICMP, and what ICMP refuses.
    fn ingress_other(&mut self, bytes: &[u8], now: Instant) {
        const PROTOCOL: usize = 14 + 9;
        const ICMP: u8 = 1;
        let address = |at: usize| {
            let octets = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
            octets.map_or(Ipv4Addr::UNSPECIFIED, |it| (*it).into())
        };
        let flow = Flow {
            local: (address(30), 0).into(),
            remote: (address(26), 0).into(),
        };
        if !is_foreign(&flow) {
            self.counters.martian += 1;
        } else if bytes[0] & 1 == 1 || !self.wire.has_address(flow.local.ip()) {
            // Answers to broadcast echo requests would make this host an amplifier.
            self.counters.broadcast += 1;
        } else if bytes.get(PROTOCOL) == Some(&ICMP) || self.may_send_error(now) {
            if let Some(report) = reports::report(bytes) {
                self.follow_report(report, now);
            }
            self.wire.ingress(bytes, &mut self.no_sockets, now);
        }
    }

    /// A router or the peer has said something about a packet of this host.
    fn follow_report(&mut self, report: Report, now: Instant) {
        match report {
            Report::TooBig(TooBig { flow, seq, mtu }) => {
                let headers = super::transmit::segment_headers(flow.remote.ip());
                let mss = mtu.saturating_sub(headers);
                self.tcp.on_packet_too_big(&flow, seq, mss, now);
            }
            Report::PortUnreachable(flow) => self.udp.on_unreachable(&flow),
        }
    }

    /// Whether one more ICMP error may be sent.
    fn may_send_error(&mut self, now: Instant) -> bool {
        let allowed = self.icmp_errors.take(now);
        self.counters.icmp_errors_suppressed += u64::from(!allowed);
        allowed
    }

    fn retry_unresolved(&mut self, now: Instant) {
        self.tcp
            .retry_unresolved(&mut self.wire, &mut self.counters, now);
        self.udp.retry(&mut self.wire, now);
    }

    #[inline]
    fn receive_from_loopback(&mut self, now: Instant) -> bool {
        !self.loopback.link.is_empty() && self.take_from_loopback(now)
    }

    fn take_from_loopback(&mut self, now: Instant) -> bool {
        let Some(Received { buffer, checksums }) = self.loopback.link.receive() else {
            return false;
        };
        match frame::parse_as(&buffer, frame::Medium::Ip, checksums) {
            Ok(Frame::Tcp(segment)) => {
                if let Some(parsed) = segment_in(&segment, &buffer) {
                    let arrival = tcp::Arrival {
                        flow: segment.flow,
                        segment: parsed,
                        neighbor: [0; 6],
                    };
                    let (port, counters) = (&mut self.loopback, &mut self.counters);
                    self.tcp
                        .ingress(port, Via::Loopback, &arrival, counters, now);
                }
            }
            Ok(Frame::Udp(found)) => self.ingress_datagram::<false>(&found, &buffer, now),
            Ok(Frame::Icmpv6(found)) => {
                let message = usize::from(found.start)..usize::from(found.end);
                if let Some(report) = buffer.get(message).and_then(reports::report_v6) {
                    self.follow_report(report, now);
                }
            }
            Ok(_) => match reports::report_in_packet(&buffer) {
                Some(report) => self.follow_report(report, now),
                None => self.loopback.ingress(&buffer, &mut self.no_sockets, now),
            },
            Err(error) => self.count_refusal(error),
        }
        true
    }

    fn run_timers(&mut self, now: Instant) {
        if self.setup.deadline.is_some_and(|deadline| deadline <= now) {
            self.drive_setup(now);
        }
        if sooner(self.ipv6.deadline, self.ipv6.next_end).is_some_and(|due| due <= now) {
            self.run_ipv6(now);
        }
        if self.udp.deadline.is_some_and(|deadline| deadline <= now) {
            self.udp.retry(&mut self.wire, now);
        }
        let probe = self.wire.neighbours.probe_deadline();
        if probe.is_some_and(|due| due <= now) {
            self.wire.run_probes(now);
        }
        self.tcp
            .run(&mut self.wire, &mut self.loopback, &mut self.counters, now);
    }

    fn count_refusal(&mut self, error: FrameError) {
        match error {
            FrameError::Truncated | FrameError::Malformed => self.counters.malformed += 1,
            FrameError::Checksum => self.counters.bad_checksum += 1,
            FrameError::Fragment => self.counters.fragments += 1,
            FrameError::Protocol | FrameError::PriorityTag => self.counters.other_protocol += 1,
        }
    }

    /// The port that reaches `remote`, and the address to use there.
    fn route(&mut self, remote: IpAddr, now: Instant) -> Result<(Via, IpAddr)> {
        if remote.is_ipv6() && self.ipv6.next_end.is_some_and(|end| end <= now) {
            self.run_ipv6(now);
        }
        if remote.is_loopback() || self.wire.has_address(remote) {
            return Ok((Via::Loopback, remote));
        }
        let source = match remote {
            IpAddr::V4(_) if !self.wire.leads_to(remote) => None,
            IpAddr::V4(_) => self.wire.address().map(IpAddr::V4),
            IpAddr::V6(remote) => self.wire.ipv6.source_for(remote, now).map(IpAddr::V6),
        };
        let source = source.ok_or(ErrorKind::NetworkUnreachable)?;
        Ok((Via::Wire, source))
    }

    /// The same for a socket that is bound to `local`: where its packets come from.
    fn source(&mut self, remote: IpAddr, local: &Binding, now: Instant) -> Result<(Via, IpAddr)> {
        let (via, routed) = self.route(remote, now)?;
        let source = local.source(routed).ok_or(ErrorKind::NetworkUnreachable)?;
        if via == Via::Wire && source.is_loopback() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "an address of the loopback does not reach other hosts",
            ));
        }
        Ok((via, source))
    }

    /// Sets or takes back the address on the wire.
    fn set_address(&mut self, address: Option<Ipv4Cidr>, gateway: Option<Ipv4Addr>) {
        self.wire.set_addresses([address, None]);
        let own = address.map(|cidr| Ipv4Cidr::new(cidr.address(), 32));
        self.loopback.set_addresses([Some(config::LOCALHOST), own]);
        let routes = self.wire.interface().routes_mut();
        match gateway {
            // The table has room for one default route.
            Some(gateway) => drop(routes.add_default_ipv4_route(gateway)),
            None => drop(routes.remove_default_ipv4_route()),
        }
        self.configured.wake_all();
    }
}

/// The earlier of two deadlines.
#[inline]
fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The segment that `found` describes in `frame`.
#[inline]
fn segment_in<'a>(found: &Segment, frame: &'a [u8]) -> Option<tare_tcp::Segment<'a>> {
    let bytes = frame.get(usize::from(found.start)..found.end as usize)?;
    tare_tcp::Segment::parse(bytes).ok()
}

/// Hardware address of an Ethernet frame's sender.
#[inline]
fn sender(frame: &[u8]) -> [u8; 6] {
    let address = frame.get(6..12).and_then(<[u8]>::first_chunk);
    address.copied().unwrap_or_default()
}

fn is_for_dhcp_client(found: &frame::Datagram) -> bool {
    found.flow.local.port() == lease::CLIENT_PORT
}

/// Whether a flow from the wire has addresses that may come from there (RFC
/// 1122, 3.2.1.3; RFC 4291, 2.5 and 2.7): a unicast sender that is not this host.
fn is_foreign(flow: &Flow) -> bool {
    match (flow.remote.ip(), flow.local.ip()) {
        (IpAddr::V4(remote), IpAddr::V4(local)) => {
            !(remote.is_broadcast()
                || remote.is_loopback()
                || remote.is_multicast()
                || remote.is_unspecified()
                || local.is_loopback()
                || remote == local)
        }
        (IpAddr::V6(remote), IpAddr::V6(local)) => {
            !(remote.to_ipv4_mapped().is_some()
                || remote.is_loopback()
                || remote.is_multicast()
                || remote.is_unspecified()
                || local.is_loopback()
                || remote == local)
        }
        // No flow has both.
        _ => false,
    }
}

#[cfg(test)]
mod tests;
