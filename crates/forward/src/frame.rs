//! Frames of the guest, parsed: the addresses are checked once, and what comes out is valid.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tare_tcp::FourTuple;

pub(crate) const ETHERNET_HEADER: usize = 14;
pub(crate) const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
pub(crate) const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
pub(crate) const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
pub(crate) const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ICMP: u8 = 1;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
pub(crate) const UDP_HEADER: usize = 8;
pub(crate) const IPV4_HEADER: usize = 20;
pub(crate) const IPV6_HEADER: usize = 40;
/// More fragments, and the offset, in IPv4's flags (RFC 791, 3.1).
const FRAGMENT_BITS: u16 = 0x3fff;
/// An ARP request for IPv4 over Ethernet (RFC 826).
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
/// Neighbour solicitation (RFC 4861, 4.3).
const SOLICITATION: u8 = 135;
const SOLICITATION_LEN: usize = 24;
/// Echo requests (RFC 792; RFC 4443, 4.1).
const ECHO: u8 = 8;
const ECHO_V6: u8 = 128;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A whole TCP segment from the guest (`remote`), header and data.
    Tcp(FourTuple, &'a [u8]),
    /// A whole datagram of UDP from the guest (`remote`), and its data.
    Udp(FourTuple, &'a [u8]),
    /// A fragment of one by IPv4, with where it goes.
    Part(IpAddr),
    /// An echo request, or a part of it, with where it goes.
    Datagram(IpAddr),
    /// The guest asks for a hardware address.
    Question(Question),
    /// Something else.
    Other,
}

/// Who has an address?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Arp { asker: Ipv4Addr, wanted: Ipv4Addr },
    Solicitation { asker: Ipv6Addr, wanted: Ipv6Addr },
}

/// The frame ends within a header, or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Frame<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let (header, packet) = frame
            .split_first_chunk::<ETHERNET_HEADER>()
            .ok_or(Malformed)?;
        match [header[12], header[13]] {
            ETHERTYPE_IPV4 => ipv4(packet),
            ETHERTYPE_IPV6 => ipv6(packet),
            ETHERTYPE_ARP => arp(packet),
            _ => Ok(Self::Other),
        }
    }
}

/// RFC 791, 3.1.
pub(crate) fn ipv4(packet: &[u8]) -> Result<Frame<'_>, Malformed> {
    let header = packet.first_chunk::<IPV4_HEADER>().ok_or(Malformed)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(number(header, 2));
    if header[0] >> 4 != 4 || header_len < IPV4_HEADER {
        return Err(Malformed);
    }
    // Ethernet pads short frames: what follows the packet is not part of it.
    let payload = packet.get(header_len..total_len).ok_or(Malformed)?;
    let (source, destination) = (ipv4_at(header, 12).into(), ipv4_at(header, 16).into());
    let is_whole = number(header, 6) & FRAGMENT_BITS == 0;
    match header[9] {
        PROTOCOL_TCP if is_whole => tcp(source, destination, payload),
        PROTOCOL_UDP if is_whole => udp(source, destination, payload),
        PROTOCOL_UDP => Ok(Frame::Part(destination)),
        PROTOCOL_ICMP if payload.first() == Some(&ECHO) => Ok(Frame::Datagram(destination)),
        _ => Ok(Frame::Other),
    }
}

/// RFC 8200, 3.
fn ipv6(packet: &[u8]) -> Result<Frame<'_>, Malformed> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>().ok_or(Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed);
    }
    let payload = rest
        .get(..usize::from(number(header, 4)))
        .ok_or(Malformed)?;
    let (source, destination) = (ipv6_at(header, 8), ipv6_at(header, 24));
    match header[6] {
        PROTOCOL_TCP => tcp(source.into(), destination.into(), payload),
        PROTOCOL_UDP => udp(source.into(), destination.into(), payload),
        PROTOCOL_ICMPV6 if payload.first() == Some(&ECHO_V6) => {
            Ok(Frame::Datagram(destination.into()))
        }
        PROTOCOL_ICMPV6 => Ok(solicitation(source, payload)),
        _ => Ok(Frame::Other),
    }
}

fn tcp(source: IpAddr, destination: IpAddr, segment: &[u8]) -> Result<Frame<'_>, Malformed> {
    let ports = segment.first_chunk::<4>().ok_or(Malformed)?;
    Ok(Frame::Tcp(ends(source, destination, ports), segment))
}

/// RFC 768. A jumbogram's length of 0 (RFC 2675) is none here.
fn udp(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> Result<Frame<'_>, Malformed> {
    let header = datagram.first_chunk::<UDP_HEADER>().ok_or(Malformed)?;
    let data = datagram.get(UDP_HEADER..usize::from(number(header, 4)));
    let ports = [header[0], header[1], header[2], header[3]];
    Ok(Frame::Udp(
        ends(source, destination, &ports),
        data.ok_or(Malformed)?,
    ))
}

/// What a frame of the guest goes between. Both protocols begin with the ports.
fn ends(source: IpAddr, destination: IpAddr, ports: &[u8; 4]) -> FourTuple {
    FourTuple {
        local: SocketAddr::new(destination, number(ports, 2)),
        remote: SocketAddr::new(source, number(ports, 0)),
    }
}

fn arp(packet: &[u8]) -> Result<Frame<'_>, Malformed> {
    let packet = packet.first_chunk::<28>().ok_or(Malformed)?;
    if packet[..8] != ARP_REQUEST {
        return Ok(Frame::Other);
    }
    Ok(Frame::Question(Question::Arp {
        asker: ipv4_at(packet, 14),
        wanted: ipv4_at(packet, 24),
    }))
}

fn solicitation(asker: Ipv6Addr, message: &[u8]) -> Frame<'_> {
    match message.first_chunk::<SOLICITATION_LEN>() {
        Some(message) if message[0] == SOLICITATION => Frame::Question(Question::Solicitation {
            asker,
            wanted: ipv6_at(message, 8),
        }),
        _ => Frame::Other,
    }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn ipv4_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

fn ipv6_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    octets.into()
}
