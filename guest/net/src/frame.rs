//! What a received frame is about, from fixed offsets: enough to find the
//! socket that it is for. All lengths are checked, and the checksums of what
//! the device has not vouched for, so that the stack behind need not.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::checksum::Sum;
use super::flow::Flow;

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;
/// More fragments, and the offset, in IPv4's flags (RFC 791, 3.1).
const FRAGMENT_BITS: u16 = 0x3fff;
/// Extension headers of IPv6 (RFC 8200, 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// More of them than any packet has for a reason.
const EXTENSIONS_MAX: usize = 8;
const IPV6_HEADER: usize = 40;

/// Bits of a TCP header's flags (RFC 9293, 3.1).
pub mod flags {
    /// The sender has finished.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 1 << 1;
    /// The connection is gone.
    pub const RST: u8 = 1 << 2;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 1 << 4;
}

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// With an Ethernet header.
    Ethernet,
    /// With an IP header.
    Ip,
}

/// Whether the checksums of TCP and UDP have been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// They must be verified.
    Unverified,
    /// The device verified them, or the frame never left this host.
    Trusted,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp(Datagram),
    /// An ARP packet, not looked into.
    Arp,
    /// IPv4 with another protocol, such as ICMP.
    OtherIpv4,
    /// An ICMPv6 message.
    Icmpv6(Icmpv6),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `local` is the destination.
    pub flow: Flow,
    /// [`flags`].
    pub flags: u8,
    /// Where its header begins in the frame.
    pub start: u16,
    /// Where its data ends in the frame: Ethernet pads short ones, and a frame with the longest packet
    /// has more than 65,535 bytes.
    pub end: u32,
}

impl Segment {
    /// Whether this asks for a new connection.
    pub fn opens(&self) -> bool {
        self.flags & (flags::SYN | flags::ACK | flags::RST | flags::FIN) == flags::SYN
    }
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// `local` is the destination.
    pub flow: Flow,
    /// Where its data begins in the frame.
    pub start: u16,
    /// Where its data ends in the frame.
    pub end: u16,
}

/// An ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6 {
    /// Who sent it.
    pub source: Ipv6Addr,
    /// Whom it is for, maybe a group.
    pub destination: Ipv6Addr,
    /// 255 if no router has passed it on.
    pub hop_limit: u8,
    /// Where it begins in the frame.
    pub start: u16,
    /// Where it ends in the frame.
    pub end: u16,
}

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It ends within a header or before its stated length.
    #[error("frame is cut short")]
    Truncated,
    /// A header contradicts itself.
    #[error("header is invalid")]
    Malformed,
    /// A checksum is wrong.
    #[error("checksum is wrong")]
    Checksum,
    /// A fragment: [`tare_fragments::Fragment::of`] says of what.
    #[error("frame is a fragment")]
    Fragment,
    /// It has a tag with a priority and the network number 0; what is behind the tag
    /// was not looked at.
    #[error("frame has a priority tag")]
    PriorityTag,
    /// Neither ARP nor IP, or IPv6 with a protocol other than TCP, UDP and ICMPv6.
    #[error("protocol is not supported")]
    Protocol,
}

/// Parses an Ethernet frame, verifying all checksums.
///
/// ```
/// use tare_net::frame::{self, FrameError};
/// assert_eq!(frame::parse(&[0; 10]), Err(FrameError::Truncated));
/// ```
pub fn parse(frame: &[u8]) -> Result<Frame, FrameError> {
    parse_as(frame, Medium::Ethernet, Checksums::Unverified)
}

/// Parses a frame of `medium`.
#[inline]
pub fn parse_as(frame: &[u8], medium: Medium, checksums: Checksums) -> Result<Frame, FrameError> {
    match medium {
        Medium::Ip => match frame.first() {
            Some(first) if first >> 4 == 6 => parse_ipv6(frame, 0, checksums),
            _ => parse_ipv4(frame, 0, checksums),
        },
        Medium::Ethernet => {
            let (header, packet) = frame
                .split_first_chunk::<ETHERNET_HEADER>()
                .ok_or(FrameError::Truncated)?;
            match [header[12], header[13]] {
                ETHERTYPE_IPV4 => parse_ipv4(packet, ETHERNET_HEADER, checksums),
                ETHERTYPE_ARP => Ok(Frame::Arp),
                ETHERTYPE_IPV6 => parse_ipv6(packet, ETHERNET_HEADER, checksums),
                ETHERTYPE_VLAN if is_priority_tag(frame) => Err(FrameError::PriorityTag),
                _ => Err(FrameError::Protocol),
            }
        }
    }
}

/// Whether the tag of a tagged frame names no network (IEEE 802.1Q, 9.6).
fn is_priority_tag(frame: &[u8]) -> bool {
    matches!(frame.get(14..18), Some([high, 0, ..]) if high & 0x0f == 0)
}

fn parse_ipv4(packet: &[u8], offset: usize, checksums: Checksums) -> Result<Frame, FrameError> {
    let header = packet.first_chunk::<20>().ok_or(FrameError::Truncated)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_len < 20 || total_len < header_len {
        return Err(FrameError::Malformed);
    }
    // Ethernet pads short frames: what follows the packet is not part of it.
    let packet = packet.get(..total_len).ok_or(FrameError::Truncated)?;
    let (header_bytes, payload) = packet.split_at(header_len);
    if !Sum::new().plus(header_bytes).is_valid() {
        return Err(FrameError::Checksum);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & FRAGMENT_BITS != 0 {
        return Err(FrameError::Fragment);
    }
    let addresses = Addresses::V4(Pair {
        src: [header[12], header[13], header[14], header[15]],
        dst: [header[16], header[17], header[18], header[19]],
    });
    match header[9] {
        PROTOCOL_TCP => parse_tcp(addresses, payload, offset + header_len, checksums),
        PROTOCOL_UDP => parse_udp(addresses, payload, offset + header_len, checksums),
        _ => Ok(Frame::OtherIpv4),
    }
}

fn parse_ipv6(packet: &[u8], offset: usize, checksums: Checksums) -> Result<Frame, FrameError> {
    let (header, rest) = packet
        .split_first_chunk::<IPV6_HEADER>()
        .ok_or(FrameError::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(FrameError::Malformed);
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut rest = rest.get(..len).ok_or(FrameError::Truncated)?;
    let address = |at: usize| {
        let octets = header[at..].first_chunk::<16>();
        octets.map_or(Ipv6Addr::UNSPECIFIED, |octets| {
            Ipv6Addr::from_octets(*octets)
        })
    };
    let pair = Pair {
        src: address(8),
        dst: address(24),
    };
    let mut next = header[6];
    for _ in 0..EXTENSIONS_MAX {
        let start = offset + IPV6_HEADER + len - rest.len();
        match next {
            PROTOCOL_TCP => return parse_tcp(Addresses::V6(pair), rest, start, checksums),
            PROTOCOL_UDP => return parse_udp(Addresses::V6(pair), rest, start, checksums),
            PROTOCOL_ICMPV6 => return parse_icmpv6(&pair, rest, start, header[7]),
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING | FRAGMENT => {
                (next, rest) = skip_extension(next, rest)?;
            }
            _ => return Err(FrameError::Protocol),
        }
    }
    Err(FrameError::Malformed)
}

/// The next header's number and what follows an extension header.
fn skip_extension(kind: u8, rest: &[u8]) -> Result<(u8, &[u8]), FrameError> {
    let fixed = rest.first_chunk::<8>().ok_or(FrameError::Truncated)?;
    let len = match kind {
        // Offset 0 and no more to come: a fragment that is the whole (RFC 6946).
        FRAGMENT if u16::from_be_bytes([fixed[2], fixed[3]]) & 0xfff9 == 0 => 8,
        FRAGMENT => return Err(FrameError::Fragment),
        // This host is not a router: a path that goes on from here is wrong.
        ROUTING if fixed[3] != 0 => return Err(FrameError::Malformed),
        _ => (usize::from(fixed[1]) + 1) * 8,
    };
    let rest = rest.get(len..).ok_or(FrameError::Truncated)?;
    Ok((fixed[0], rest))
}

/// Devices do not verify ICMP's checksum, so it is always verified here.
fn parse_icmpv6(
    pair: &Pair<Ipv6Addr>,
    message: &[u8],
    start: usize,
    hop_limit: u8,
) -> Result<Frame, FrameError> {
    if message.len() < 8 {
        return Err(FrameError::Truncated);
    }
    if !Addresses::V6(*pair)
        .sum(PROTOCOL_ICMPV6, message)
        .is_valid()
    {
        return Err(FrameError::Checksum);
    }
    Ok(Frame::Icmpv6(Icmpv6 {
        source: pair.src,
        destination: pair.dst,
        hop_limit,
        start: start as u16,
        end: (start + message.len()) as u16,
    }))
}

#[inline]
fn parse_tcp(
    on: Addresses,
    segment: &[u8],
    start: usize,
    checksums: Checksums,
) -> Result<Frame, FrameError> {
    let header = segment.first_chunk::<20>().ok_or(FrameError::Truncated)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 || header_len > segment.len() {
        return Err(FrameError::Malformed);
    }
    if checksums == Checksums::Unverified && !on.sum(PROTOCOL_TCP, segment).is_valid() {
        return Err(FrameError::Checksum);
    }
    Ok(Frame::Tcp(Segment {
        flow: on.flow(header)?,
        flags: header[13],
        start: start as u16,
        end: (start + segment.len()) as u32,
    }))
}

fn parse_udp(
    on: Addresses,
    datagram: &[u8],
    start: usize,
    checksums: Checksums,
) -> Result<Frame, FrameError> {
    let header = datagram.first_chunk::<8>().ok_or(FrameError::Truncated)?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if len < 8 {
        return Err(FrameError::Malformed);
    }
    let datagram = datagram.get(..len).ok_or(FrameError::Truncated)?;
    // IPv6 has no header checksum, so there the datagram's is required (RFC 8200, 8.1).
    let has_checksum = header[6..8] != [0, 0] || matches!(on, Addresses::V6(_));
    if checksums == Checksums::Unverified
        && has_checksum
        && !on.sum(PROTOCOL_UDP, datagram).is_valid()
    {
        return Err(FrameError::Checksum);
    }
    Ok(Frame::Udp(Datagram {
        flow: on.flow(header)?,
        start: (start + 8) as u16,
        end: (start + len) as u16,
    }))
}

#[derive(Clone, Copy)]
struct Pair<A> {
    src: A,
    dst: A,
}

#[derive(Clone, Copy)]
enum Addresses {
    V4(Pair<[u8; 4]>),
    V6(Pair<Ipv6Addr>),
}

impl Addresses {
    fn sum(self, protocol: u8, payload: &[u8]) -> Sum {
        let len = payload.len();
        let sum = match self {
            Self::V4(Pair { src, dst }) => {
                Sum::new().plus_pseudo_header(src, dst, protocol, len as u16)
            }
            Self::V6(Pair { src, dst }) => {
                Sum::new().plus_pseudo_header_v6(src, dst, protocol, len as u32)
            }
        };
        sum.plus(payload)
    }

    /// Ports are the first two fields of TCP and of UDP; port 0 is reserved.
    #[inline]
    fn flow(self, header: &[u8]) -> Result<Flow, FrameError> {
        let remote_port = u16::from_be_bytes([header[0], header[1]]);
        let local_port = u16::from_be_bytes([header[2], header[3]]);
        if local_port == 0 {
            return Err(FrameError::Malformed);
        }
        let (local, remote): (IpAddr, IpAddr) = match self {
            Self::V4(Pair { src, dst }) => (
                Ipv4Addr::from_octets(dst).into(),
                Ipv4Addr::from_octets(src).into(),
            ),
            Self::V6(Pair { src, dst }) => (dst.into(), src.into()),
        };
        Ok(Flow {
            local: SocketAddr::new(local, local_port),
            remote: SocketAddr::new(remote, remote_port),
        })
    }
}

/// A checksum that the device is to finish: it adds up from `start` and puts
/// the complement `offset` bytes further (virtio 1.2, 5.1.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// First byte to add, from the frame's begin.
    pub start: u16,
    /// Where the checksum is, from `start`.
    pub offset: u16,
}

/// Where TCP or UDP begins in an outgoing Ethernet frame and ends, its protocol, and
/// the pseudo-header's sum. The frame is our own, without IP options or extension
/// headers; others are left alone, and so are fragments.
fn transport(frame: &[u8]) -> Option<(usize, usize, u8, Sum)> {
    let packet = frame.get(ETHERNET_HEADER..)?;
    let (start, len, protocol, sum) = match packet.first()? {
        0x45 => {
            let header = packet.first_chunk::<20>()?;
            if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS != 0 {
                return None;
            }
            let len = u16::from_be_bytes([header[2], header[3]]).checked_sub(20)?;
            let sum = Sum::new().plus_pseudo_header(
                [header[12], header[13], header[14], header[15]],
                [header[16], header[17], header[18], header[19]],
                header[9],
                len,
            );
            (20, len, header[9], sum)
        }
        0x60 => {
            let header = packet.first_chunk::<IPV6_HEADER>()?;
            let len = u16::from_be_bytes([header[4], header[5]]);
            let mut pseudo = [0; 8];
            pseudo[2..4].copy_from_slice(&len.to_be_bytes());
            pseudo[7] = header[6];
            let sum = Sum::new().plus(&header[8..]).plus(&pseudo);
            (IPV6_HEADER, len, header[6], sum)
        }
        _ => return None,
    };
    let start = ETHERNET_HEADER + start;
    Some((start, start + usize::from(len), protocol, sum))
}

/// Leaves the checksum of an outgoing Ethernet frame that carries TCP or UDP
/// to the device: puts the pseudo-header's sum into the field.
pub fn leave_checksum_to_device(frame: &mut [u8]) -> Option<PartialChecksum> {
    let (start, _, protocol, sum) = transport(frame)?;
    let offset = match protocol {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        _ => return None,
    };
    let field = start + offset..start + offset + 2;
    frame.get_mut(field)?.copy_from_slice(&sum.finish());
    Some(PartialChecksum {
        start: start as u16,
        offset: offset as u16,
    })
}

/// Completes the checksum of an outgoing Ethernet frame for a device that does
/// not: a third of the instructions of the stack's own loop.
pub fn complete_checksum(frame: &mut [u8]) {
    let Some(PartialChecksum { start, offset }) = leave_checksum_to_device(frame) else {
        return;
    };
    let Some((_, end, _, _)) = transport(frame) else {
        return;
    };
    let (start, field) = (usize::from(start), usize::from(start + offset));
    let Some(payload) = frame.get(start..end) else {
        return;
    };
    let [a, b] = Sum::new().plus(payload).finish();
    // In UDP a checksum of zero would mean that there is none.
    let sum = match [!a, !b] {
        [0, 0] => [0xff, 0xff],
        sum => sum,
    };
    frame[field..field + 2].copy_from_slice(&sum);
}
