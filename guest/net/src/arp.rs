//! [`Packet`]: an ARP packet (RFC 826) in its Ethernet frame.

use core::net::Ipv4Addr;

use super::neighbours::Mac;

/// Bytes of a frame without padding.
pub(crate) const FRAME_BYTES: usize = 42;
/// Every station.
pub(crate) const BROADCAST: Mac = [0xff; 6];
/// Ethernet and IPv4, with addresses of six and four bytes.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Request,
    Reply,
}

/// An ARP packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) operation: Operation,
    pub(crate) sender_mac: Mac,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: Mac,
    pub(crate) target: Ipv4Addr,
}

impl Packet {
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?.first_chunk::<28>()?;
        let operation = match packet.strip_prefix(&KIND)? {
            [0, 1, ..] => Operation::Request,
            [0, 2, ..] => Operation::Reply,
            _ => return None,
        };
        Some(Self {
            operation,
            sender_mac: *packet[8..].first_chunk()?,
            sender: Ipv4Addr::from_octets(*packet[14..].first_chunk()?),
            target_mac: *packet[18..].first_chunk()?,
            target: Ipv4Addr::from_octets(*packet[24..].first_chunk()?),
        })
    }

    pub(crate) fn write(&self, to: Mac, frame: &mut [u8; FRAME_BYTES]) {
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&self.sender_mac);
        frame[12..14].copy_from_slice(&[8, 6]);
        frame[14..20].copy_from_slice(&KIND);
        frame[20] = 0;
        frame[21] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        frame[22..28].copy_from_slice(&self.sender_mac);
        frame[28..32].copy_from_slice(&self.sender.octets());
        frame[32..38].copy_from_slice(&self.target_mac);
        frame[38..42].copy_from_slice(&self.target.octets());
    }
}
