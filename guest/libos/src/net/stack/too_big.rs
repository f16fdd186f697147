//! ICMP messages about connections: a router that cannot forward a segment
//! (RFC 792, type 3 code 4; RFC 1191). Other messages do not end connections
//! (RFC 5927).

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::net::flow::Flow;

const ETHERNET_HEADER: usize = 14;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
/// ICMP's own header.
const ICMP_HEADER: usize = 8;

/// A segment that a router could not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooBig {
    /// Whose segment it was, seen from this side.
    pub(super) flow: Flow,
    /// Its sequence number.
    pub(super) seq: u32,
    /// The next hop's MTU; 0 from routers that do not know RFC 1191.
    pub(super) mtu: u16,
}

/// What a "fragmentation needed" message in an Ethernet frame says. Lengths and
/// the IP header's checksum have been verified.
pub(super) fn packet_too_big(frame: &[u8]) -> Option<TooBig> {
    let packet = frame.get(ETHERNET_HEADER..)?;
    let message = payload(packet, PROTOCOL_ICMP)?;
    let header = message.first_chunk::<ICMP_HEADER>()?;
    if header[..2] != [UNREACHABLE, FRAGMENTATION_NEEDED] {
        return None;
    }
    let original = message.get(ICMP_HEADER..)?;
    let tcp = payload(original, PROTOCOL_TCP)?.first_chunk::<8>()?;
    let address = |at: usize| {
        let octets: Option<[u8; 4]> = original.get(at..)?.first_chunk().copied();
        octets.map(Ipv4Addr::from_octets)
    };
    Some(TooBig {
        flow: Flow {
            local: SocketAddrV4::new(address(12)?, u16::from_be_bytes([tcp[0], tcp[1]])),
            remote: SocketAddrV4::new(address(16)?, u16::from_be_bytes([tcp[2], tcp[3]])),
        },
        seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        mtu: u16::from_be_bytes([header[6], header[7]]),
    })
}

/// What follows the header of an IPv4 packet of `protocol`.
fn payload(packet: &[u8], protocol: u8) -> Option<&[u8]> {
    let header = packet.first_chunk::<20>()?;
    let len = usize::from(header[0] & 15) * 4;
    let is_it = header[0] >> 4 == 4 && len >= 20 && header[9] == protocol;
    packet.get(len..).filter(|_| is_it)
}
