//! Outgoing segments, datagrams and ICMP messages become frames: Ethernet and IPv4
//! headers from fixed fields, without smoltcp's way through its interface.

use super::checksum::Sum;
use super::flow::Flow;
use super::frame::{self, Medium};
use super::link::{Link, Properties, SendChecksums};
use super::neighbours::Mac;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
/// Bytes of the headers before a segment's options: what a path MTU includes
/// beside a segment.
pub(crate) const HEADERS: u16 = 40;
const TTL: u8 = 64;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Bytes of a packet with a datagram that are not its data.
pub(crate) const DATAGRAM_HEADERS: u16 = 28;
/// Don't fragment: the path MTU is found (RFC 1191). So the identification may
/// be 0 (RFC 6864, 4.1).
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

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
    let packet_len = IPV4_HEADER + segment.wire_len();
    send_packet(link, properties, neighbor, packet_len, |packet| {
        if let Some((ipv4, rest)) = packet.split_first_chunk_mut::<IPV4_HEADER>() {
            write_ipv4(ipv4, PROTOCOL_TCP, flow, packet_len as u16);
            segment.write(flow.local.port(), flow.remote.port(), rest);
        }
    });
}

/// Sends a datagram of `flow`.
pub(crate) fn send_datagram<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    flow: &Flow,
    data: &[u8],
) {
    let len = UDP_HEADER + data.len();
    let packet_len = IPV4_HEADER + len;
    send_packet(link, properties, neighbor, packet_len, |packet| {
        let Some((ipv4, rest)) = packet.split_first_chunk_mut::<IPV4_HEADER>() else {
            return;
        };
        write_ipv4(ipv4, PROTOCOL_UDP, flow, packet_len as u16);
        if let Some((udp, payload)) = rest.split_first_chunk_mut::<UDP_HEADER>() {
            udp[..2].copy_from_slice(&flow.local.port().to_be_bytes());
            udp[2..4].copy_from_slice(&flow.remote.port().to_be_bytes());
            udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            udp[6..].fill(0);
            payload.copy_from_slice(data);
        }
    });
}

/// Sends an ICMP message of `len` bytes that `fill` writes; its checksum is added.
pub(crate) fn send_icmp<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    flow: &Flow,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let packet_len = IPV4_HEADER + len;
    send_packet(link, properties, neighbor, packet_len, |packet| {
        if let Some((ipv4, message)) = packet.split_first_chunk_mut::<IPV4_HEADER>() {
            write_ipv4(ipv4, PROTOCOL_ICMP, flow, packet_len as u16);
            fill(message);
            let [a, b] = Sum::new().plus(message).finish();
            if let Some(field) = message.get_mut(2..4) {
                field.copy_from_slice(&[!a, !b]);
            }
        }
    });
}

/// Sends an IP packet of `len` bytes that `fill` writes.
#[inline]
fn send_packet<L: Link>(
    link: &mut L,
    properties: &Properties,
    neighbor: Mac,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let header = match properties.medium {
        Medium::Ethernet => ETHERNET_HEADER,
        Medium::Ip => 0,
    };
    link.send(header + len, |frame| {
        let (ethernet, packet) = frame.split_at_mut(header);
        if let Some(ethernet) = ethernet.first_chunk_mut::<ETHERNET_HEADER>() {
            ethernet[..6].copy_from_slice(&neighbor);
            ethernet[6..12].copy_from_slice(&properties.mac);
            ethernet[12..].copy_from_slice(&[8, 0]);
        }
        fill(packet);
        if properties.checksums == SendChecksums::Software {
            frame::complete_checksum(frame);
        }
    });
}

#[inline]
fn write_ipv4(header: &mut [u8; IPV4_HEADER], protocol: u8, flow: &Flow, total_len: u16) {
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[4..6].fill(0);
    header[6..8].copy_from_slice(&DONT_FRAGMENT);
    header[8..12].copy_from_slice(&[TTL, protocol, 0, 0]);
    header[12..16].copy_from_slice(&flow.local.ip().octets());
    header[16..].copy_from_slice(&flow.remote.ip().octets());
    let [a, b] = Sum::new().plus(header).finish();
    header[10..12].copy_from_slice(&[!a, !b]);
}
