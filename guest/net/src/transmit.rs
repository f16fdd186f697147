//! Outgoing segments, datagrams and ICMP messages become frames: Ethernet and IP
//! headers from fixed fields, without smoltcp's way through its interface.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Sum;
use super::flow::Flow;
use super::frame::{self, Medium};
use super::link::{Link, Properties, SendChecksums};
use super::neighbours::Mac;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: u16 = 20;
const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;
/// No identification, and don't fragment: the path MTU is found (RFC 1191). So the
/// identification may be 0 (RFC 6864, 4.1).
const DONT_FRAGMENT: [u8; 4] = [0, 0, 0x40, 0];
/// More fragments follow: in IPv4's flags, and in IPv6's fragment header.
const MORE_V4: u16 = 1 << 13;
const MORE_V6: u16 = 1;
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;
/// A hop-by-hop header with a router alert, as MLD has it (RFC 3810, 5).
const ROUTER_ALERT: [u8; 8] = [PROTOCOL_ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// Bytes of an IP header on the way to `remote`.
#[inline]
fn ip_header(remote: IpAddr) -> usize {
    match remote {
        IpAddr::V4(_) => IPV4_HEADER,
        IpAddr::V6(_) => IPV6_HEADER,
    }
}

/// Bytes of the headers before a segment's options: what a path MTU includes
/// beside a segment.
pub(crate) fn segment_headers(remote: IpAddr) -> u16 {
    ip_header(remote) as u16 + TCP_HEADER
}

/// Bytes of a packet with a datagram that are not its data.
pub(crate) fn datagram_headers(remote: IpAddr) -> u16 {
    (ip_header(remote) + UDP_HEADER) as u16
}

/// Most bytes of a datagram to `remote`, however many fragments they take.
pub(crate) fn datagram_longest(remote: IpAddr) -> usize {
    // The length fields of IPv4 and of UDP have 16 bits; IPv6's leaves its header out.
    let headers = match remote {
        IpAddr::V4(_) => IPV4_HEADER + UDP_HEADER,
        IpAddr::V6(_) => UDP_HEADER,
    };
    usize::from(u16::MAX) - headers
}

/// Sends a segment of `flow`. `neighbor` is the next hop's hardware address;
/// it does not matter without Ethernet.
#[inline]
pub(crate) fn send_segment<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    flow: &Flow,
    segment: &tare_tcp::Outgoing<'_>,
) {
    let route = Route {
        cut: segment.cut,
        ..Route::of(flow, PROTOCOL_TCP)
    };
    send_packet(
        link,
        properties,
        neighbor,
        route,
        segment.wire_len(),
        |rest| segment.write(flow.local.port(), flow.remote.port(), rest),
    );
}

/// Sends a datagram of `flow`. Routers of IPv4 may fragment it, so that it passes a path that
/// carries less than the link: no report of that is followed for UDP.
pub(crate) fn send_datagram<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    // Unpredictable, as of fragments.
    (flow, identification): (&Flow, [u8; 4]),
    data: &[u8],
) {
    let header = udp_header(flow, data.len());
    let route = Route {
        fragment: [identification[0], identification[1], 0, 0],
        ..Route::of(flow, PROTOCOL_UDP)
    };
    send_parts(link, properties, neighbor, route, &header, data);
}

fn udp_header(flow: &Flow, len: usize) -> [u8; UDP_HEADER] {
    let mut header = [0; UDP_HEADER];
    header[..2].copy_from_slice(&flow.local.port().to_be_bytes());
    header[2..4].copy_from_slice(&flow.remote.port().to_be_bytes());
    header[4..6].copy_from_slice(&((UDP_HEADER + len) as u16).to_be_bytes());
    header
}

/// Sends a datagram of `flow` in fragments of at most `mtu` bytes (RFC 791, 3.2; RFC
/// 8200, 4.5). The link has room for all: there are as many as [`fragments`] says.
pub(crate) fn send_fragments<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    (flow, mtu): (&Flow, u16),
    // Unpredictable (RFC 7739), and seldom the same as one on its way (RFC 6864).
    identification: [u8; 4],
    data: &[u8],
) {
    // No device computes the checksum of what is in several frames.
    let mut header = udp_header(flow, data.len());
    let checksum = checksum_of_datagram(flow, &header, data);
    header[6..].copy_from_slice(&checksum);
    let is_v4 = flow.remote.is_ipv4();
    let own = fragment_header(flow.remote.ip());
    let room = fragment_room(flow.remote.ip(), mtu);
    let len = UDP_HEADER + data.len();
    for offset in (0..len).step_by(room) {
        let end = len.min(offset + room);
        let is_last = end == len;
        let mut route = Route::of(flow, PROTOCOL_UDP);
        let mut before = [0; FRAGMENT_HEADER + UDP_HEADER];
        let place = offset as u16;
        if is_v4 {
            let flags = (place / 8) | if is_last { 0 } else { MORE_V4 };
            route.fragment[..2].copy_from_slice(&identification[..2]);
            route.fragment[2..].copy_from_slice(&flags.to_be_bytes());
        } else {
            let flags = place | if is_last { 0 } else { MORE_V6 };
            route.protocol = FRAGMENT;
            before[0] = PROTOCOL_UDP;
            before[2..4].copy_from_slice(&flags.to_be_bytes());
            before[4..FRAGMENT_HEADER].copy_from_slice(&identification);
        }
        let mut filled = own;
        if offset == 0 {
            before[own..own + UDP_HEADER].copy_from_slice(&header);
            filled += UDP_HEADER;
        }
        let data = &data[offset.saturating_sub(UDP_HEADER)..end - UDP_HEADER];
        send_parts(link, properties, neighbor, route, &before[..filled], data);
    }
}

/// Fragments of at most `mtu` bytes that a datagram of `len` bytes takes.
pub(crate) fn fragments(remote: IpAddr, mtu: u16, len: usize) -> usize {
    (UDP_HEADER + len).div_ceil(fragment_room(remote, mtu))
}

/// Bytes of a datagram in each fragment but the last.
fn fragment_room(remote: IpAddr, mtu: u16) -> usize {
    (usize::from(mtu) - ip_header(remote) - fragment_header(remote)) & !7
}

/// Bytes that a fragment has more of headers than a whole packet.
fn fragment_header(remote: IpAddr) -> usize {
    match remote {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => FRAGMENT_HEADER,
    }
}

fn checksum_of_datagram(flow: &Flow, header: &[u8], data: &[u8]) -> [u8; 2] {
    let len = header.len() + data.len();
    let sum = match (flow.local.ip(), flow.remote.ip()) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum::new().plus_pseudo_header_v6(source, destination, PROTOCOL_UDP, len as u32)
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => Sum::new().plus_pseudo_header(
            source.octets(),
            destination.octets(),
            PROTOCOL_UDP,
            len as u16,
        ),
        // No flow has both.
        _ => return [0; 2],
    };
    match sum.plus(header).plus(data).finish() {
        // A checksum of zero would mean that there is none.
        [0xff, 0xff] => [0xff, 0xff],
        [a, b] => [!a, !b],
    }
}

/// Sends an ICMP message of `flow`, in either family; its checksum is added.
pub(crate) fn send_icmp<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    flow: &Flow,
    message: &mut [u8],
) {
    let mut sum = Sum::new();
    if let (IpAddr::V6(source), IpAddr::V6(destination)) = (flow.local.ip(), flow.remote.ip()) {
        let len = message.len() as u32;
        sum = sum.plus_pseudo_header_v6(source, destination, PROTOCOL_ICMPV6, len);
    }
    finish_icmp(sum, message);
    let route = Route::of(flow, PROTOCOL_ICMP);
    send_parts(link, properties, neighbor, route, &[], message);
}

/// Sends an ICMPv6 message on the link alone, with the hop limit 255 that says so
/// (RFC 4861), or 1 and a router alert for MLD.
pub(crate) fn send_on_link<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    alert: Alert,
    message: &mut [u8],
) {
    let (protocol, hop_limit, extension): (u8, u8, &[u8]) = match alert {
        Alert::None => (PROTOCOL_ICMPV6, 255, &[]),
        Alert::Router => (0, 1, &ROUTER_ALERT),
    };
    let len = message.len() as u32;
    let sum = Sum::new().plus_pseudo_header_v6(source, destination, PROTOCOL_ICMPV6, len);
    finish_icmp(sum, message);
    let route = Route {
        source: source.into(),
        destination: destination.into(),
        protocol,
        hop_limit,
        fragment: DONT_FRAGMENT,
        cut: 0,
    };
    send_parts(link, properties, neighbor, route, extension, message);
}

/// Sends an IP packet with these two parts: one copy of the code for all that is not
/// TCP.
#[inline(never)]
fn send_parts<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    route: Route,
    first: &[u8],
    second: &[u8],
) {
    let len = first.len() + second.len();
    send_packet(link, properties, neighbor, route, len, |rest| {
        let (before, after) = rest.split_at_mut(first.len());
        before.copy_from_slice(first);
        after.copy_from_slice(second);
    });
}

/// Whether routers must look at a packet although it is not for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    None,
    Router,
}

fn finish_icmp(sum: Sum, message: &mut [u8]) {
    let [a, b] = sum.plus(message).finish();
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&[!a, !b]);
    }
}

/// The fields of an IP header that differ.
#[derive(Clone, Copy)]
struct Route {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    hop_limit: u8,
    /// Identification, flags and offset of IPv4.
    fragment: [u8; 4],
    /// Of a segment that the device cuts ([`Link::send`]).
    cut: u16,
}

impl Route {
    #[inline]
    fn of(flow: &Flow, protocol: u8) -> Self {
        Self {
            source: flow.local.ip(),
            destination: flow.remote.ip(),
            protocol,
            hop_limit: HOP_LIMIT,
            fragment: DONT_FRAGMENT,
            cut: 0,
        }
    }
}

/// Sends an IP packet with `len` bytes behind its header that `fill` writes.
fn send_packet<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    route: Route,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let before = match properties.medium {
        Medium::Ethernet => ETHERNET_HEADER,
        Medium::Ip => 0,
    };
    let header = ip_header(route.destination);
    link.send(before + header + len, route.cut, |frame| {
        let (ethernet, packet) = frame.split_at_mut(before);
        let (ip, payload) = packet.split_at_mut(header);
        let ethertype = match (route.source, route.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                write_ipv6(ip, &route, source, destination, len as u16);
                [0x86, 0xdd]
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                write_ipv4(ip, &route, source, destination, (header + len) as u16);
                [8, 0]
            }
            // No flow has both.
            _ => return,
        };
        if let Some(ethernet) = ethernet.first_chunk_mut::<ETHERNET_HEADER>() {
            ethernet[..6].copy_from_slice(&neighbor);
            ethernet[6..12].copy_from_slice(&properties.mac);
            ethernet[12..].copy_from_slice(&ethertype);
        }
        fill(payload);
        if properties.checksums == SendChecksums::Software {
            frame::complete_checksum(frame);
        }
    });
}

#[inline]
fn write_ipv4(header: &mut [u8], route: &Route, source: Ipv4Addr, to: Ipv4Addr, total_len: u16) {
    let Some(header) = header.first_chunk_mut::<IPV4_HEADER>() else {
        return;
    };
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[4..8].copy_from_slice(&route.fragment);
    header[8..12].copy_from_slice(&[route.hop_limit, route.protocol, 0, 0]);
    header[12..16].copy_from_slice(&source.octets());
    header[16..].copy_from_slice(&to.octets());
    let [a, b] = Sum::new().plus(header).finish();
    header[10..12].copy_from_slice(&[!a, !b]);
}

#[inline(never)]
fn write_ipv6(header: &mut [u8], route: &Route, source: Ipv6Addr, to: Ipv6Addr, len: u16) {
    let Some(header) = header.first_chunk_mut::<IPV6_HEADER>() else {
        return;
    };
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&len.to_be_bytes());
    header[6] = match route.protocol {
        PROTOCOL_ICMP => PROTOCOL_ICMPV6,
        protocol => protocol,
    };
    header[7] = route.hop_limit;
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&to.octets());
}
