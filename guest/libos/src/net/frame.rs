//! What a received frame is about, from fixed offsets: enough to find the
//! socket that it is for. All lengths are checked, and the checksums of what
//! the device has not vouched for, so that the stack behind need not.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::checksum::Sum;
use super::flow::Flow;

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

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
    /// Where its data ends in the frame: Ethernet pads short ones.
    pub end: u16,
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
    /// A fragment; none are put together here.
    #[error("frame is a fragment")]
    Fragment,
    /// It has a tag with a priority and the network number 0; what is behind the tag
    /// was not looked at.
    #[error("frame has a priority tag")]
    PriorityTag,
    /// Neither ARP nor IPv4.
    #[error("protocol is not supported")]
    Protocol,
}

/// Parses an Ethernet frame, verifying all checksums.
///
/// ```
/// use tare_libos::net::frame::{self, FrameError};
/// assert_eq!(frame::parse(&[0; 10]), Err(FrameError::Truncated));
/// ```
pub fn parse(frame: &[u8]) -> Result<Frame, FrameError> {
    parse_as(frame, Medium::Ethernet, Checksums::Unverified)
}

/// Parses a frame of `medium`.
#[inline]
pub fn parse_as(frame: &[u8], medium: Medium, checksums: Checksums) -> Result<Frame, FrameError> {
    let (packet, offset) = match medium {
        Medium::Ip => (frame, 0),
        Medium::Ethernet => {
            let header = frame
                .first_chunk::<ETHERNET_HEADER>()
                .ok_or(FrameError::Truncated)?;
            match [header[12], header[13]] {
                ETHERTYPE_IPV4 => (&frame[ETHERNET_HEADER..], ETHERNET_HEADER),
                ETHERTYPE_ARP => return Ok(Frame::Arp),
                ETHERTYPE_VLAN if is_priority_tag(frame) => return Err(FrameError::PriorityTag),
                _ => return Err(FrameError::Protocol),
            }
        }
    };
    parse_ipv4(packet, offset, checksums)
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
    if fragment & 0x3fff != 0 {
        return Err(FrameError::Fragment);
    }
    let addresses = Addresses {
        src: [header[12], header[13], header[14], header[15]],
        dst: [header[16], header[17], header[18], header[19]],
    };
    match header[9] {
        PROTOCOL_TCP => parse_tcp(addresses, payload, offset + header_len, checksums),
        PROTOCOL_UDP => parse_udp(addresses, payload, offset + header_len, checksums),
        _ => Ok(Frame::OtherIpv4),
    }
}

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
        end: (start + segment.len()) as u16,
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
    let has_checksum = header[6..8] != [0, 0];
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
struct Addresses {
    src: [u8; 4],
    dst: [u8; 4],
}

impl Addresses {
    fn sum(self, protocol: u8, payload: &[u8]) -> Sum {
        Sum::new()
            .plus_pseudo_header(self.src, self.dst, protocol, payload.len() as u16)
            .plus(payload)
    }

    /// Ports are the first two fields of TCP and of UDP; port 0 is reserved.
    fn flow(self, header: &[u8]) -> Result<Flow, FrameError> {
        let remote = u16::from_be_bytes([header[0], header[1]]);
        let local = u16::from_be_bytes([header[2], header[3]]);
        if local == 0 {
            return Err(FrameError::Malformed);
        }
        Ok(Flow {
            local: SocketAddrV4::new(Ipv4Addr::from_octets(self.dst), local),
            remote: SocketAddrV4::new(Ipv4Addr::from_octets(self.src), remote),
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

/// Leaves the checksum of an outgoing Ethernet frame that carries TCP or UDP
/// to the device: puts the pseudo-header's sum into the field. The frame is
/// our own, without IP options; others are left alone.
pub fn leave_checksum_to_device(frame: &mut [u8]) -> Option<PartialChecksum> {
    let packet = frame.get_mut(ETHERNET_HEADER..)?;
    let header = packet.first_chunk::<20>()?;
    if header[0] != 0x45 {
        return None;
    }
    let offset = match header[9] {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        _ => return None,
    };
    let len = u16::from_be_bytes([header[2], header[3]]).checked_sub(20)?;
    let sum = Sum::new()
        .plus_pseudo_header(
            [header[12], header[13], header[14], header[15]],
            [header[16], header[17], header[18], header[19]],
            header[9],
            len,
        )
        .finish();
    packet
        .get_mut(20 + offset..22 + offset)?
        .copy_from_slice(&sum);
    Some(PartialChecksum {
        start: ETHERNET_HEADER as u16 + 20,
        offset: offset as u16,
    })
}

/// Completes the checksum of an outgoing Ethernet frame for a device that does
/// not: a third of the instructions of the stack's own loop.
pub fn complete_checksum(frame: &mut [u8]) {
    let Some(PartialChecksum { start, offset }) = leave_checksum_to_device(frame) else {
        return;
    };
    let end = ETHERNET_HEADER + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
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
