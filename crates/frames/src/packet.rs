//! The addresses and ports of an Ethernet frame.
//!
//! Lengths are checked here once; what comes out is plain values. Upper-layer
//! ports are read only where they certainly are: in the first fragment of an
//! IPv4 packet, or behind an IPv6 header without extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Reason;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_RARP: u16 = 0x8035;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the number that was used before 802.1ad.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Most tags that are looked through: a service tag and a customer tag.
const MAX_TAGS: usize = 2;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
/// IPv6 options before the upper layer.
pub(crate) const HOP_BY_HOP: u8 = 0;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// An IPv4 or IPv6 packet.
    Ip(Ip),
    /// An ARP packet for IPv4 over Ethernet.
    Arp {
        /// Address of its sender.
        sender: Ipv4Addr,
        /// Address that it asks for or answers to.
        target: Ipv4Addr,
    },
    /// Reverse ARP, which names no address that anything is sent to.
    Rarp,
}

/// What of an IP packet matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The protocol, or the first next header of IPv6.
    pub(crate) protocol: u8,
    /// Type of an ICMPv6 message, also behind hop-by-hop options that come first.
    pub(crate) icmpv6: Option<u8>,
    /// Ports of TCP or UDP.
    pub(crate) ports: Option<Ports>,
    /// Whether it may open a TCP connection: SYN without ACK, or a header that ends before its flags.
    pub(crate) opens: bool,
}

/// Ports of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) source: u16,
    pub(crate) destination: u16,
}

impl Packet {
    /// Reads an Ethernet frame.
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, Reason> {
        let (mut ethertype, mut rest) = number_at(frame, 12)?;
        let mut tags = 0;
        while ETHERTYPES_VLAN.contains(&ethertype) {
            tags += 1;
            if tags > MAX_TAGS {
                return Err(Reason::Protocol);
            }
            (ethertype, rest) = number_at(rest, 2)?;
        }
        match ethertype {
            ETHERTYPE_IPV4 => ipv4(rest).map(Self::Ip),
            ETHERTYPE_IPV6 => ipv6(rest).map(Self::Ip),
            ETHERTYPE_ARP => arp(rest),
            ETHERTYPE_RARP => Ok(Self::Rarp),
            _ => Err(Reason::Protocol),
        }
    }
}

/// The 16-bit number behind `skip` bytes, and what follows it.
fn number_at(bytes: &[u8], skip: usize) -> Result<(u16, &[u8]), Reason> {
    let (number, rest) = bytes
        .get(skip..)
        .and_then(|bytes| bytes.split_first_chunk())
        .ok_or(Reason::Malformed)?;
    Ok((u16::from_be_bytes(*number), rest))
}

/// RFC 791, section 3.1.
fn ipv4(bytes: &[u8]) -> Result<Ip, Reason> {
    let (header, _) = bytes.split_first_chunk::<20>().ok_or(Reason::Malformed)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    let payload = bytes.get(header_bytes..).ok_or(Reason::Malformed)?;
    if header[0] >> 4 != 4 || header_bytes < header.len() {
        return Err(Reason::Malformed);
    }
    let fragment_offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let protocol = header[9];
    Ok(Ip {
        source: ipv4_at(header, 12).into(),
        destination: ipv4_at(header, 16).into(),
        protocol,
        icmpv6: None,
        ports: (fragment_offset == 0)
            .then(|| ports(protocol, payload))
            .flatten(),
        opens: opens(protocol, payload),
    })
}

fn ipv4_at(header: &[u8; 20], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3])
}

/// RFC 8200, section 3.
fn ipv6(bytes: &[u8]) -> Result<Ip, Reason> {
    let (header, payload) = bytes.split_first_chunk::<40>().ok_or(Reason::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(Reason::Malformed);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(octets)
    };
    let protocol = header[6];
    Ok(Ip {
        source: address(8).into(),
        destination: address(24).into(),
        protocol,
        icmpv6: icmpv6(protocol, payload),
        ports: ports(protocol, payload),
        opens: opens(protocol, payload),
    })
}

/// Options of RFC 8200, 4.3: the next header, then how many 8 bytes follow the first.
fn icmpv6(protocol: u8, payload: &[u8]) -> Option<u8> {
    match (protocol, payload) {
        (ICMPV6, [kind, ..]) => Some(*kind),
        (HOP_BY_HOP, [ICMPV6, more, ..]) => payload.get(8 * (usize::from(*more) + 1)).copied(),
        _ => None,
    }
}

fn ports(protocol: u8, payload: &[u8]) -> Option<Ports> {
    if !matches!(protocol, TCP | UDP) {
        return None;
    }
    let (ports, _) = payload.split_first_chunk::<4>()?;
    Some(Ports {
        source: u16::from_be_bytes([ports[0], ports[1]]),
        destination: u16::from_be_bytes([ports[2], ports[3]]),
    })
}

/// RFC 9293, section 3.1.
fn opens(protocol: u8, payload: &[u8]) -> bool {
    const SYN_AND_ACK: u8 = 0x12;
    const SYN: u8 = 0x02;
    protocol == TCP
        && payload
            .get(13)
            .is_none_or(|flags| flags & SYN_AND_ACK == SYN)
}

/// RFC 826: hardware type Ethernet, protocol IPv4, lengths 6 and 4, operation,
/// then both ends' addresses.
fn arp(bytes: &[u8]) -> Result<Packet, Reason> {
    let (packet, _) = bytes.split_first_chunk::<28>().ok_or(Reason::Malformed)?;
    if packet[..6] != [0, 1, 8, 0, 6, 4] {
        return Err(Reason::Malformed);
    }
    Ok(Packet::Arp {
        sender: Ipv4Addr::new(packet[14], packet[15], packet[16], packet[17]),
        target: Ipv4Addr::new(packet[24], packet[25], packet[26], packet[27]),
    })
}
