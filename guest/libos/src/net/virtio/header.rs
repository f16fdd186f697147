//! The header before each frame (virtio 1.2, 5.1.6).

use tare_net::frame::{Checksums, PartialChecksum};

/// Bytes of the header; a legacy device has no `num_buffers` at its end.
pub(super) const LEN: usize = 12;
/// Bytes of a legacy device's header.
pub(super) const LEGACY_LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

/// How many buffers a received frame is in, where buffers are merged.
pub(super) fn buffers(header: &[u8]) -> u16 {
    match header.get(10..12) {
        Some(&[low, high]) => u16::from_le_bytes([low, high]),
        _ => 1,
    }
}

/// What a received frame's header says of its checksums. A frame whose
/// checksum was left unfinished never was on a wire.
pub(super) fn checksums(header: &[u8]) -> Checksums {
    match header.first() {
        Some(flags) if flags & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0 => Checksums::Trusted,
        _ => Checksums::Unverified,
    }
}

/// The device cuts a segment of IPv4, or of IPv6.
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Where an Ethernet frame says what it carries, and what it says of IPv6.
const ETHERTYPE: usize = 12;
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Where a TCP header has its length, in units of four bytes in the upper half.
const DATA_OFFSET: usize = 12;

/// Adds to the header of a frame that the device cuts its segment into parts with `size` bytes of
/// payload.
pub(super) fn write_cut(header: &mut [u8], frame: &[u8], tcp_at: u16, size: u16) {
    let ethertype = frame.get(ETHERTYPE..ETHERTYPE + 2);
    let length = frame.get(usize::from(tcp_at) + DATA_OFFSET);
    let headers = tcp_at + u16::from(length.map_or(0, |it| it >> 4)) * 4;
    header[1] = match ethertype {
        Some(bytes) if bytes == IPV6 => GSO_TCPV6,
        _ => GSO_TCPV4,
    };
    header[2..4].copy_from_slice(&headers.to_le_bytes());
    header[4..6].copy_from_slice(&size.to_le_bytes());
}

/// Writes the header of a frame to be sent.
#[inline]
pub(super) fn write(header: &mut [u8], checksum: Option<PartialChecksum>) {
    header.fill(0);
    if let Some(PartialChecksum { start, offset }) = checksum {
        header[0] = FLAG_NEEDS_CSUM;
        header[6..8].copy_from_slice(&start.to_le_bytes());
        header[8..10].copy_from_slice(&offset.to_le_bytes());
    }
}
