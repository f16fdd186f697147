//! [`OutFrame`]: the frame for the guest that is on its way.

use std::net::SocketAddr;

use tare_devices::net::{FLAG_NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6, NetHeader, RxOffload, checksum};
use tare_tcp::{FourTuple, Outgoing};

use crate::Settings;
use crate::frame::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_HEADER, IPV6_HEADER, PROTOCOL_TCP,
    PROTOCOL_UDP, UDP_HEADER,
};

const HOP_LIMIT: u8 = 64;
const DO_NOT_FRAGMENT: u8 = 0x40;
/// In the word with the offset (RFC 791, 3.1).
const MORE_FRAGMENTS: u16 = 0x2000;

/// What is behind the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    #[default]
    Tcp,
    Udp,
}

impl Transport {
    fn protocol(self) -> u8 {
        match self {
            Self::Tcp => PROTOCOL_TCP,
            Self::Udp => PROTOCOL_UDP,
        }
    }

    /// Where the checksum is in its header.
    pub(crate) fn checksum(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// Writes the lengths into a packet's IP header, before `payload` bytes, and IPv4's checksum.
fn complete_ip(ip: &mut [u8], payload: usize) {
    if ip[0] >> 4 == 4 {
        let total = (ip.len() + payload) as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[10..12].fill(0);
        let sum = !checksum::fold(checksum::sum(ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    }
}

/// Completes the IP header of a frame whose transport's header begins at `transport_at`, and puts the sum of the
/// pseudo header into the checksum there; gives the header that leaves the rest to the other end.
pub(crate) fn leave_checksum(
    frame: &mut [u8],
    transport_at: usize,
    transport: Transport,
) -> NetHeader {
    let (before, behind) = frame.split_at_mut(transport_at);
    let ip = &mut before[ETHERNET_HEADER..];
    complete_ip(ip, behind.len());
    let addresses = if ip[0] >> 4 == 4 {
        12..IPV4_HEADER
    } else {
        8..IPV6_HEADER
    };
    let pseudo =
        checksum::sum(&ip[addresses]) + u64::from(transport.protocol()) + behind.len() as u64;
    let at = usize::from(transport.checksum());
    behind[at..at + 2].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    NetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: transport_at as u16,
        csum_offset: transport.checksum(),
        ..NetHeader::default()
    }
}

/// A frame with its virtio header.
#[derive(Debug, Default)]
pub(crate) struct OutFrame {
    pub(crate) header: NetHeader,
    pub(crate) bytes: Vec<u8>,
    transport: Transport,
    /// Where its header begins.
    transport_at: usize,
    /// Bytes of headers, and of payload in each segment, of one that the guest takes as several.
    cut: Option<(u16, u16)>,
}

impl OutFrame {
    /// Makes it a frame that is complete.
    pub(crate) fn set(&mut self, frame: Vec<u8>) {
        self.header = NetHeader::default();
        self.bytes = frame;
    }

    /// Makes it a frame with a segment. [`finish`](Self::finish) follows.
    pub(crate) fn begin(&mut self, settings: &Settings, tuple: &FourTuple, out: &Outgoing<'_>) {
        self.headers(settings, tuple, Transport::Tcp);
        self.bytes.resize(self.transport_at + out.wire_len(), 0);
        if out.cut > 0 {
            let headers = self.bytes.len() - out.payload_len();
            self.cut = Some((headers as u16, out.cut));
        }
        let segment = &mut self.bytes[self.transport_at..];
        out.write(tuple.local.port(), tuple.remote.port(), segment);
    }

    /// Makes it a frame with a datagram (RFC 768), of a length that was looked at. [`finish`](Self::finish) follows.
    pub(crate) fn begin_datagram(&mut self, settings: &Settings, tuple: &FourTuple, data: &[u8]) {
        self.headers(settings, tuple, Transport::Udp);
        let len = (UDP_HEADER + data.len()) as u16;
        for number in [tuple.local.port(), tuple.remote.port(), len, 0] {
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
        self.bytes.extend_from_slice(data);
    }

    fn headers(&mut self, settings: &Settings, tuple: &FourTuple, transport: Transport) {
        self.header = NetHeader::default();
        self.cut = None;
        self.transport = transport;
        let protocol = transport.protocol();
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend_from_slice(&settings.guest_mac);
        bytes.extend_from_slice(&settings.gateway_mac);
        match (tuple.local, tuple.remote) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                bytes.extend_from_slice(&ETHERTYPE_IPV4);
                bytes.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, DO_NOT_FRAGMENT, 0]);
                bytes.extend_from_slice(&[HOP_LIMIT, protocol, 0, 0]);
                bytes.extend_from_slice(&from.ip().octets());
                bytes.extend_from_slice(&to.ip().octets());
            }
            (from, to) => {
                bytes.extend_from_slice(&ETHERTYPE_IPV6);
                bytes.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, HOP_LIMIT]);
                for address in [from, to] {
                    if let SocketAddr::V6(address) = address {
                        bytes.extend_from_slice(&address.ip().octets());
                    }
                }
            }
        }
        self.transport_at = bytes.len();
    }

    /// The finished frame of a datagram, in fragments if its packet is longer than `mtu` (RFC 791, 3.2). By IPv6 it
    /// is not.
    pub(crate) fn into_fragments(self, mtu: u16, identification: u16) -> Vec<Vec<u8>> {
        let (header, payload) = self.bytes.split_at(self.transport_at);
        if self.bytes.len() - ETHERNET_HEADER <= usize::from(mtu) {
            return vec![self.bytes];
        }
        // Whole units of eight bytes, and one at least.
        let room = (usize::from(mtu).saturating_sub(IPV4_HEADER) & !7).max(8);
        let units = (0..).step_by(room / 8);
        let last = payload.len().div_ceil(room) - 1;
        let parts = payload.chunks(room).zip(units).enumerate();
        let fragment = |(number, (part, unit)): (usize, (&[u8], u16))| {
            let mut frame = [header, part].concat();
            let ip = &mut frame[ETHERNET_HEADER..][..IPV4_HEADER];
            let flags = if number == last { 0 } else { MORE_FRAGMENTS };
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[6..8].copy_from_slice(&(flags | unit).to_be_bytes());
            complete_ip(ip, part.len());
            frame
        };
        parts.map(fragment).collect()
    }

    /// Completes lengths and checksums. TCP's or UDP's is left to a guest that accepts that: the frame was on no
    /// wire.
    pub(crate) fn finish(&mut self, accepted: RxOffload) {
        self.header = leave_checksum(&mut self.bytes, self.transport_at, self.transport);
        if let Some((headers, size)) = self.cut {
            let is_v4 = self.transport_at == ETHERNET_HEADER + IPV4_HEADER;
            self.header.gso_type = if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 };
            (self.header.hdr_len, self.header.gso_size) = (headers, size);
        }
        if !accepted.csum {
            // The field is there: a whole header was written.
            let _ = checksum::complete(&self.header, &mut self.bytes);
            self.header = NetHeader::default();
        }
    }
}
