//! Features and configuration space (virtio 1.2, 5.2.3 to 5.2.5).

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};

use super::{Disk, MAX_ZERO_SECTORS, SEG_MAX, SIZE_MAX};

/// Length of the configuration structure up to write-zeroes.
const CONFIG_BYTES: usize = 60;
const PAGE_BYTES: u64 = 4096;
/// Where the driver sets the cache mode.
pub(super) const WRITEBACK: usize = 32;

/// When a write counts as done. The driver may change it while it runs
/// (CONFIG_WCE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// When the host has it; a flush makes it durable.
    #[default]
    Writeback,
    /// When it is durable.
    Writethrough,
}

/// Feature bits that a disk with `queues` queues offers.
pub(super) fn features(disk: &Disk, queues: u16) -> u64 {
    let mut features = bit(VIRTIO_BLK_F_SIZE_MAX)
        | bit(VIRTIO_BLK_F_SEG_MAX)
        | bit(VIRTIO_BLK_F_BLK_SIZE)
        | bit(VIRTIO_BLK_F_FLUSH)
        | bit(VIRTIO_BLK_F_TOPOLOGY);
    if queues > 1 {
        features |= bit(VIRTIO_BLK_F_MQ);
    }
    features
        | if disk.is_writable() {
            bit(VIRTIO_BLK_F_CONFIG_WCE)
                | bit(VIRTIO_BLK_F_DISCARD)
                | bit(VIRTIO_BLK_F_WRITE_ZEROES)
        } else {
            bit(VIRTIO_BLK_F_RO)
        }
}

/// Whether `features` has feature `number`.
pub(super) fn has(features: u64, number: u32) -> bool {
    features & bit(number) != 0
}

fn bit(number: u32) -> u64 {
    1 << number
}

/// The structure as the driver reads it.
pub(super) fn space(disk: &Disk, queues: u16, cache: Cache) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &disk.sectors().to_le_bytes());
    put(8, &SIZE_MAX.to_le_bytes());
    put(12, &SEG_MAX.to_le_bytes());
    let block = disk.block().bytes();
    put(20, &(block as u32).to_le_bytes());
    // Topology, in blocks: what the host reads or writes at once is a page.
    let page = PAGE_BYTES / block;
    put(24, &[page.ilog2() as u8, 0]);
    put(26, &(page as u16).to_le_bytes());
    put(WRITEBACK, &[u8::from(cache == Cache::Writeback)]);
    put(34, &queues.to_le_bytes());
    put(36, &u32::MAX.to_le_bytes());
    put(40, &1u32.to_le_bytes());
    put(44, &8u32.to_le_bytes());
    put(48, &MAX_ZERO_SECTORS.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[1]);
    space
}
