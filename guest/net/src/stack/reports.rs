//! ICMP messages about what this side sent: a router that cannot forward a segment
//! (RFC 792, type 3 code 4; RFC 1191), and closed UDP ports (code 3). Other
//! messages do not end connections (RFC 5927).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::Sum;
use crate::flow::Flow;
use crate::ipv6::message;
use crate::ipv6::table::MTU_MIN;

const ETHERNET_HEADER: usize = 14;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const UNREACHABLE: u8 = 3;
const PORT_UNREACHABLE: u8 = 3;
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

/// What an ICMP message says of a packet of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    TooBig(TooBig),
    /// The peer's UDP port is closed.
    PortUnreachable(Flow),
}

/// What an ICMP message in an Ethernet frame reports, unless it is damaged (RFC 792). Lengths and
/// the IP header's checksum have been verified.
pub(super) fn report(frame: &[u8]) -> Option<Report> {
    report_in_packet(frame.get(ETHERNET_HEADER..)?)
}

/// The same for an IPv4 packet.
#[inline(never)]
pub(super) fn report_in_packet(packet: &[u8]) -> Option<Report> {
    // An Ethernet frame may be longer than its packet.
    let len = packet.get(2..)?.first_chunk::<2>()?;
    let packet = packet.get(..u16::from_be_bytes(*len).into())?;
    let message = payload(packet, PROTOCOL_ICMP)?;
    if !Sum::new().plus(message).is_valid() {
        return None;
    }
    let header = message.first_chunk::<ICMP_HEADER>()?;
    let original = message.get(ICMP_HEADER..)?;
    match header[..2] {
        [UNREACHABLE, FRAGMENTATION_NEEDED] => {
            let tcp = payload(original, PROTOCOL_TCP)?.first_chunk::<8>()?;
            Some(Report::TooBig(TooBig {
                flow: flow(original, tcp)?,
                seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
                mtu: u16::from_be_bytes([header[6], header[7]]),
            }))
        }
        [UNREACHABLE, PORT_UNREACHABLE] => {
            let udp = payload(original, PROTOCOL_UDP)?.first_chunk::<8>()?;
            flow(original, udp).map(Report::PortUnreachable)
        }
        _ => None,
    }
}

/// The flow of a packet that this side sent.
fn flow(packet: &[u8], transport: &[u8; 8]) -> Option<Flow> {
    let address = |at: usize| {
        let octets: Option<[u8; 4]> = packet.get(at..)?.first_chunk().copied();
        octets.map(Ipv4Addr::from_octets)
    };
    Some(flow_of(address(12)?.into(), address(16)?.into(), transport))
}

/// A flow from the addresses and ports of a packet that this side sent.
fn flow_of(source: IpAddr, destination: IpAddr, transport: &[u8; 8]) -> Flow {
    let port = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    Flow {
        local: SocketAddr::new(source, port(0)),
        remote: SocketAddr::new(destination, port(2)),
    }
}

/// What an ICMPv6 message reports (RFC 4443, 3.1 and 3.2). A packet of this side has
/// no extension headers.
pub(super) fn report_v6(message: &[u8]) -> Option<Report> {
    const PORT_UNREACHABLE: u8 = 4;
    let (header, original) = message.split_first_chunk::<ICMP_HEADER>()?;
    let (ip, transport) = original.split_first_chunk::<40>()?;
    let transport = transport.first_chunk::<8>()?;
    let address = |at: usize| {
        let octets: Option<[u8; 16]> = ip[at..].first_chunk().copied();
        octets.map(|octets| IpAddr::V6(Ipv6Addr::from_octets(octets)))
    };
    let flow = flow_of(address(8)?, address(24)?, transport);
    match (header[0], header[1], ip[6]) {
        (message::PACKET_TOO_BIG, 0, PROTOCOL_TCP) => {
            let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            Some(Report::TooBig(TooBig {
                flow,
                seq: u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]),
                // No link has less, whatever a message says (RFC 8201, 4).
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX).max(MTU_MIN),
            }))
        }
        (message::UNREACHABLE, PORT_UNREACHABLE, PROTOCOL_UDP) => {
            Some(Report::PortUnreachable(flow))
        }
        _ => None,
    }
}

/// What follows the header of an IPv4 packet of `protocol`.
fn payload(packet: &[u8], protocol: u8) -> Option<&[u8]> {
    let header = packet.first_chunk::<20>()?;
    let len = usize::from(header[0] & 15) * 4;
    let is_it = header[0] >> 4 == 4 && len >= 20 && header[9] == protocol;
    packet.get(len..).filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A router's message: a segment of 10.0.0.1:80 to 10.0.0.2:4000 needs an MTU of 1,280.
    fn too_big() -> Vec<u8> {
        let ip = |protocol: u8, len: u16| {
            let mut header = [0; 20];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&len.to_be_bytes());
            header[9] = protocol;
            header[12..16].copy_from_slice(&[10, 0, 0, 1]);
            header[16..20].copy_from_slice(&[10, 0, 0, 2]);
            header
        };
        let mut message = Vec::from([3, 4, 0, 0, 0, 0, 5, 0]);
        message.extend(ip(PROTOCOL_TCP, 1500));
        message.extend([0, 80, 15, 160, 0, 0, 0, 7]);
        let [a, b] = Sum::new().plus(&message).finish();
        message[2..4].copy_from_slice(&[!a, !b]);
        let len = 20 + message.len() as u16;
        [&ip(PROTOCOL_ICMP, len)[..], &message].concat()
    }

    #[test]
    fn a_damaged_message_reports_nothing() {
        let mut packet = too_big();
        let Some(Report::TooBig(found)) = report_in_packet(&packet) else {
            panic!("a report");
        };
        assert_eq!((found.seq, found.mtu), (7, 1280));
        // A frame may be longer than its packet.
        packet.extend([0xaa; 6]);
        assert!(report_in_packet(&packet).is_some());
        for byte in 20..56 {
            let mut damaged = packet.clone();
            damaged[byte] ^= 4;
            assert_eq!(report_in_packet(&damaged), None, "byte {byte}");
        }
    }
}
