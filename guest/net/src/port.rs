//! [`Port`]: a link with the smoltcp interface that speaks on it, driven for
//! one socket at a time.
//!
//! `Interface::poll` walks every socket for every packet; with a thousand open
//! connections that would be most of the work. Here the caller has found the
//! socket already and passes a set that holds nothing else.

use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, Ipv4Address, Ipv4Cidr};

use core::net::{IpAddr, Ipv6Addr};

use super::arp::{self, Operation, Packet};
use super::flow::Flow;
use super::frame::Medium;
use super::ipv6::address::{group_mac, solicited_node};
use super::ipv6::message;
use super::ipv6::table::Addresses;
use super::link::{Link, Properties, SendChecksums};
use super::neighbours::{Mac, Neighbours};
use super::random::Random;
use super::transmit::{self, Alert};

const ETHERNET_HEADER: usize = 14;
/// When a socket wants to send and does not although it could, look again then.
const RETRY: Duration = Duration::from_millis(10);

/// What became of driving a socket's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Nothing more to send before the deadline, if there is one.
    Done(Option<Instant>),
    /// The link takes no more frames for now.
    LinkFull,
    /// The neighbour's hardware address was requested; ask again then.
    Unresolved(Option<Instant>),
}

/// A link and its interface.
pub(crate) struct Port<L> {
    /// The link.
    pub link: L,
    random: Random,
    properties: Properties,
    interface: Interface,
    /// The interface's addresses, each with its network's broadcast address: looked at for each frame.
    own: [Option<Own>; 2],
    pub(super) neighbours: Neighbours,
    pub(super) ipv6: Addresses,
}

/// An address of IPv4.
#[derive(Clone, Copy)]
struct Own {
    address: Ipv4Address,
    broadcast: Option<Ipv4Address>,
}

impl<L: Link> Port<L> {
    /// An interface without addresses on `link`.
    pub(crate) fn new(mut link: L, seed: u64, random: Random, now: Instant) -> Self {
        let properties = link.properties();
        let address = match properties.medium {
            Medium::Ethernet => HardwareAddress::Ethernet(EthernetAddress(properties.mac)),
            Medium::Ip => HardwareAddress::Ip,
        };
        let mut config = Config::new(address);
        config.random_seed = seed;
        let interface = Interface::new(config, &mut Wire::new(&mut link, None), now);
        Self {
            link,
            random,
            properties,
            interface,
            own: [None; 2],
            neighbours: Neighbours::new(),
            ipv6: Addresses::default(),
        }
    }

    /// The interface, for addresses and routes.
    pub(crate) fn interface(&mut self) -> &mut Interface {
        &mut self.interface
    }

    /// What the link is like.
    pub(crate) fn link_properties(&self) -> Properties {
        self.properties
    }

    /// The first address, if it has one.
    pub(crate) fn address(&self) -> Option<Ipv4Address> {
        self.own[0].map(|own| own.address)
    }

    /// Whether `address` is one of this side's.
    #[inline]
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let is = |own: Option<Own>| own.is_some_and(|own| own.address == address);
                is(self.own[0]) || is(self.own[1])
            }
            IpAddr::V6(address) => self.ipv6.has(address),
        }
    }

    /// Whether `address` is in the network of one of this side's.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let mut addresses = self.interface.ip_addrs().iter();
                addresses.any(|own| own.contains_addr(&address.into()))
            }
            IpAddr::V6(address) => self.ipv6.is_on_link(address),
        }
    }

    /// Whether `address` is the broadcast address of one of this side's networks.
    #[inline]
    pub(crate) fn is_subnet_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else {
            return false;
        };
        let is = |own: Option<Own>| own.is_some_and(|own| own.broadcast == Some(address));
        is(self.own[0]) || is(self.own[1])
    }

    /// Replaces all addresses; at most two, as many as smoltcp has room for (feature
    /// `iface-max-addr-count-2`).
    pub(crate) fn set_addresses(&mut self, addresses: [Option<Ipv4Cidr>; 2]) {
        self.own = addresses.map(|address| {
            address.map(|own| Own {
                address: own.address(),
                broadcast: own.broadcast(),
            })
        });
        self.interface.update_ip_addrs(|list| {
            list.clear();
            for address in addresses.into_iter().flatten() {
                let _ = list.push(address.into());
            }
        });
    }

    fn mtu(&self, remote: IpAddr) -> u16 {
        match remote {
            IpAddr::V4(_) => self.properties.mtu,
            IpAddr::V6(_) => self.ipv6.mtu(self.properties.mtu),
        }
    }

    /// Largest TCP segment to `remote` that fits the link, header options included.
    pub(super) fn segment_max(&self, remote: IpAddr) -> u16 {
        self.mtu(remote)
            .saturating_sub(transmit::segment_headers(remote))
    }

    /// Sends a TCP segment to the next hop `neighbor`.
    #[inline]
    pub(super) fn send_segment(
        &mut self,
        neighbor: Mac,
        flow: &Flow,
        segment: &tare_tcp::Outgoing<'_>,
    ) {
        transmit::send_segment(&mut self.link, &self.properties, neighbor, flow, segment);
    }

    /// Most bytes of a datagram to `remote` that one frame carries.
    fn datagram_max(&self, remote: IpAddr) -> usize {
        let headers = transmit::datagram_headers(remote);
        usize::from(self.mtu(remote).saturating_sub(headers))
    }

    /// Most bytes of a datagram to `remote`: on the loopback, whose own fragments no code
    /// would put together, what one frame carries.
    pub(super) fn datagram_longest(&self, remote: IpAddr) -> usize {
        match self.properties.medium {
            Medium::Ethernet => transmit::datagram_longest(remote),
            Medium::Ip => self.datagram_max(remote),
        }
    }

    /// Sends an ICMPv6 message that does not leave the link.
    pub(super) fn send_on_link(
        &mut self,
        neighbor: Mac,
        addresses: (Ipv6Addr, Ipv6Addr),
        alert: Alert,
        message: &mut [u8],
    ) {
        if self.link.send_ready() {
            let (link, properties) = (&mut self.link, &self.properties);
            transmit::send_on_link(link, properties, neighbor, addresses, alert, message);
        }
    }

    /// Frames that a datagram of `len` bytes to `remote` takes.
    pub(super) fn frames_of_datagram(&self, remote: IpAddr, len: usize) -> usize {
        if len <= self.datagram_max(remote) {
            return 1;
        }
        transmit::fragments(remote, self.mtu(remote), len)
    }

    /// Sends a datagram to the next hop `neighbor`, in fragments if it must be. `false`,
    /// and nothing is sent, where the link has no room for all of them.
    pub(super) fn send_datagram(&mut self, neighbor: Mac, flow: &Flow, data: &[u8]) -> bool {
        let remote = flow.remote.ip();
        let frames = self.frames_of_datagram(remote, data.len());
        if frames > 1 && self.link.send_room() < frames {
            return false;
        }
        let mtu = self.mtu(remote);
        let identification = (self.random.draw() as u32).to_ne_bytes();
        let (link, properties) = (&mut self.link, &self.properties);
        if frames == 1 {
            transmit::send_datagram(link, properties, neighbor, (flow, identification), data);
        } else {
            let way = (flow, mtu);
            transmit::send_fragments(link, properties, neighbor, way, identification, data);
        }
        true
    }

    /// Sends an ICMP message to the next hop `neighbor`; its checksum is added.
    pub(super) fn send_icmp(&mut self, neighbor: Mac, flow: &Flow, message: &mut [u8]) {
        if self.link.send_ready() {
            transmit::send_icmp(&mut self.link, &self.properties, neighbor, flow, message);
        }
    }

    /// Bytes before the IP header of a frame.
    pub(super) fn ip_offset(&self) -> usize {
        match self.properties.medium {
            Medium::Ethernet => ETHERNET_HEADER,
            Medium::Ip => 0,
        }
    }

    /// The hardware address of the next hop to `remote`. Asks the link for it if it
    /// is not known.
    pub(super) fn resolve(&mut self, remote: IpAddr, now: Instant) -> Option<Mac> {
        if self.properties.medium == Medium::Ip {
            return Some([0; 6]);
        }
        match remote {
            IpAddr::V4(v4) if v4.is_broadcast() || self.is_subnet_broadcast(remote) => {
                return Some(arp::BROADCAST);
            }
            IpAddr::V4(remote) if remote.is_multicast() => {
                // RFC 1112, 6.4: the low 23 bits.
                let [_, a, b, c] = remote.octets();
                return Some([1, 0, 0x5e, a & 0x7f, b, c]);
            }
            IpAddr::V6(remote) if remote.is_multicast() => return Some(group_mac(remote)),
            _ => {}
        }
        let next_hop = self.next_hop(remote)?;
        let known = self.neighbours.get(next_hop, now);
        if known.is_none() && self.link.send_ready() && self.neighbours.may_ask(next_hop, now) {
            self.request(next_hop, None);
        }
        // Sent to while requests look for it (RFC 4861, 7.3.3), so that a steady flow goes on.
        known.or_else(|| self.neighbours.stale(next_hop, now))
    }

    /// Whether a packet to `remote` has a way: the network's own stations and groups, or a router.
    pub(super) fn leads_to(&mut self, remote: IpAddr) -> bool {
        let is_group = match remote {
            IpAddr::V4(v4) => v4.is_broadcast() || v4.is_multicast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        };
        is_group || self.next_hop(remote).is_some()
    }

    /// The station of this network that packets to `remote` go to.
    fn next_hop(&mut self, remote: IpAddr) -> Option<IpAddr> {
        if self.is_on_link(remote) {
            return Some(remote);
        }
        self.router_to(remote)
    }

    /// A connection to `remote` hears nothing although it sends to `neighbor`: finds out
    /// whether the next hop has moved.
    #[cold]
    pub(super) fn suspect(&mut self, remote: IpAddr, neighbor: Mac, now: Instant) {
        if self.properties.medium == Medium::Ip {
            return;
        }
        if let Some(next_hop) = self.next_hop(remote) {
            self.neighbours.suspect(next_hop, neighbor, now);
            self.run_probes(now);
        }
    }

    /// Sends the probes that are due.
    pub(super) fn run_probes(&mut self, now: Instant) {
        while let Some((address, to)) = self.neighbours.next_probe(now) {
            if self.link.send_ready() {
                self.request(address, to);
            }
        }
    }

    /// Asks for the hardware address of `address`: the station `to`, or broadcast.
    fn request(&mut self, address: IpAddr, to: Option<Mac>) {
        match address {
            IpAddr::V4(address) => self.ask(address, to.unwrap_or(arp::BROADCAST)),
            IpAddr::V6(address) => self.solicit(address, to),
        }
    }

    fn solicit(&mut self, address: Ipv6Addr, to: Option<Mac>) {
        if let Some(own) = self.ipv6.link_local() {
            let mut solicitation = message::solicitation(address, self.properties.mac);
            let group = solicited_node(address);
            let (station, destination) =
                to.map_or((group_mac(group), group), |station| (station, address));
            self.send_on_link(station, (own, destination), Alert::None, &mut solicitation);
        }
    }

    fn ask(&mut self, address: Ipv4Address, station: Mac) {
        let Some(own) = self.address() else {
            return;
        };
        let request = Packet {
            operation: Operation::Request,
            sender_mac: self.properties.mac,
            sender: own,
            target_mac: [0; 6],
            target: address,
        };
        self.link.send(arp::FRAME_BYTES, 0, |frame| {
            if let Some(frame) = frame.first_chunk_mut() {
                request.write(station, frame);
            }
        });
    }

    /// The router to networks such as that of `remote`.
    pub(super) fn router_to(&mut self, remote: IpAddr) -> Option<IpAddr> {
        match remote {
            IpAddr::V4(_) => self.gateway().map(IpAddr::V4),
            IpAddr::V6(_) => self.ipv6.router().map(IpAddr::V6),
        }
    }

    /// Whether `address` is a router to other networks.
    pub(super) fn is_router(&mut self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.gateway() == Some(address),
            IpAddr::V6(address) => self.ipv6.is_router(address),
        }
    }

    fn gateway(&mut self) -> Option<Ipv4Address> {
        let mut gateway = None;
        self.interface.routes_mut().update(|routes| {
            let mut routes = routes.iter();
            let default = routes.find(|route| route.cidr.prefix_len() == 0);
            gateway = default.map(|route| route.via_router);
        });
        gateway.map(|IpAddress::Ipv4(gateway)| gateway)
    }

    /// Lets `sockets` (or, with none of them concerned, the interface itself)
    /// take a frame; replies that are due at once are sent.
    #[inline]
    pub(crate) fn ingress(&mut self, frame: &[u8], sockets: &mut SocketSet<'_>, now: Instant) {
        let mut wire = Wire::new(&mut self.link, Some(frame));
        self.interface.poll_ingress_single(now, &mut wire, sockets);
    }

    /// Sends what `sockets` have to send.
    #[inline]
    pub(crate) fn egress(&mut self, sockets: &mut SocketSet<'_>, now: Instant) -> Egress {
        let mut sent_nothing = false;
        loop {
            match self.interface.poll_at(now, sockets) {
                Some(at) if at <= now => {}
                later if sent_nothing => return Egress::Unresolved(later),
                later => return Egress::Done(later),
            }
            if sent_nothing {
                return Egress::Done(Some(now + RETRY));
            }
            if !self.link.send_ready() {
                return Egress::LinkFull;
            }
            let mut wire = Wire::new(&mut self.link, None);
            let result = self.interface.poll_egress(now, &mut wire, sockets);
            sent_nothing = result == PollResult::None;
        }
    }
}

/// The link as smoltcp's device, with at most one received frame.
struct Wire<'a, L> {
    link: &'a mut L,
    frame: Option<&'a [u8]>,
}

impl<'a, L: Link> Wire<'a, L> {
    fn new(link: &'a mut L, frame: Option<&'a [u8]>) -> Self {
        Self { link, frame }
    }
}

impl<L: Link> Device for Wire<'_, L> {
    type RxToken<'t>
        = Taken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Sender<'t, L>
    where
        Self: 't;

    #[inline]
    fn receive(&mut self, _now: Instant) -> Option<(Taken<'_>, Sender<'_, L>)> {
        let frame = self.frame.take()?;
        Some((Taken(frame), Sender(self.link)))
    }

    #[inline]
    fn transmit(&mut self, _now: Instant) -> Option<Sender<'_, L>> {
        self.link.send_ready().then_some(Sender(self.link))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(&self.link.properties())
    }
}

fn capabilities(properties: &Properties) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    let mtu = usize::from(properties.mtu);
    (capabilities.medium, capabilities.max_transmission_unit) = match properties.medium {
        Medium::Ethernet => (smoltcp::phy::Medium::Ethernet, mtu + ETHERNET_HEADER),
        Medium::Ip => (smoltcp::phy::Medium::Ip, mtu),
    };
    // `frame::parse_as` has verified what came in.
    let transport = match properties.checksums {
        SendChecksums::Software => Checksum::Tx,
        SendChecksums::Device => Checksum::None,
    };
    capabilities.checksum = ChecksumCapabilities::default();
    capabilities.checksum.ipv4 = Checksum::Tx;
    capabilities.checksum.tcp = transport;
    capabilities.checksum.udp = transport;
    capabilities
}

struct Taken<'a>(&'a [u8]);

impl RxToken for Taken<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

struct Sender<'a, L>(&'a mut L);

impl<L: Link> TxToken for Sender<'_, L> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        self.0.send(len, 0, fill)
    }
}
