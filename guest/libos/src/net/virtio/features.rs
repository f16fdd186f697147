//! Feature bits (virtio 1.2, 5.1.3 and 6) and the configuration space.

pub(super) use crate::virtio::VERSION_1;

/// The device finishes checksums of frames that are sent.
pub(super) const CSUM: u64 = 1 << 0;
/// The driver takes frames with unfinished or already verified checksums.
pub(super) const GUEST_CSUM: u64 = 1 << 1;
/// The configuration space has the largest packet's size.
pub(super) const MTU: u64 = 1 << 3;
/// The configuration space has a hardware address.
pub(super) const MAC: u64 = 1 << 5;
/// The driver takes several TCP segments as one, of IPv4 and of IPv6.
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
/// A frame may take several buffers, and its header says how many.
pub(super) const MRG_RXBUF: u64 = 1 << 15;
/// The device cuts TCP segments of IPv4, and of IPv6.
pub(super) const HOST_TSO4: u64 = 1 << 11;
pub(super) const HOST_TSO6: u64 = 1 << 12;
/// Notifications are asked for by index (virtio 1.2, 2.7.7).
pub(super) const EVENT_IDX: u64 = 1 << 29;

/// Long frames come in merged buffers: others would have to be as long as they may be.
const MERGED: u64 = GUEST_TSO4 | GUEST_TSO6 | MRG_RXBUF;
/// What the driver would like. No indirect descriptors: a frame to be sent is one buffer.
const WANTED: u64 =
    CSUM | GUEST_CSUM | MTU | MAC | MERGED | HOST_TSO4 | HOST_TSO6 | EVENT_IDX | VERSION_1;

/// What the driver takes of what a device offers.
pub(super) fn choose(offered: u64) -> u64 {
    const NEEDED: u64 = GUEST_CSUM | MRG_RXBUF;
    match offered & NEEDED {
        NEEDED => offered & WANTED,
        _ => offered & WANTED & !MERGED,
    }
}

/// Offset of the hardware address in the configuration space.
pub(super) const CONFIG_MAC: usize = 0;
/// Offset of the largest packet's size.
pub(super) const CONFIG_MTU: usize = 10;
