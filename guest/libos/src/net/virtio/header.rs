//! The header before each frame (virtio 1.2, 5.1.6).

use tare_net::frame::{Checksums, PartialChecksum};

/// Bytes of the header; a legacy device has no `num_buffers` at its end.
pub(super) const LEN: usize = 12;
/// Bytes of a legacy device's header.
pub(super) const LEGACY_LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

/// What a received frame's header says of its checksums. A frame whose
/// checksum was left unfinished never was on a wire.
pub(super) fn checksums(header: &[u8]) -> Checksums {
    match header.first() {
        Some(flags) if flags & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0 => Checksums::Trusted,
        _ => Checksums::Unverified,
    }
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
