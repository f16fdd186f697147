//! What of a superblock must hold before ext4-view may believe it (kernel
//! `Documentation/filesystems/ext4/super.rst`): that crate allocates as many
//! group descriptors as the superblock asks for.

/// Where it is, bytes from the disk's begin.
pub(super) const OFFSET: u64 = 1024;
/// Its length.
pub(super) const LEN: usize = 1024;

const MAGIC: u16 = 0xef53;
/// Blocks of 64 KiB, the largest that Linux knows.
const MAX_LOG_BLOCK_SIZE: u32 = 6;
/// Memory of a group's descriptor, generously.
const DESCRIPTOR_BYTES: u64 = 128;

/// What is wrong with a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// There is none.
    #[error("no ext2, ext3 or ext4 file system found")]
    Magic,
    /// Blocks of an impossible size.
    #[error("invalid block size in the superblock")]
    BlockSize,
    /// More blocks than the disk has.
    #[error("the file system is larger than the disk")]
    TooLarge,
    /// Groups without blocks, or smaller than any tool makes them.
    #[error("invalid block groups in the superblock")]
    Groups,
    /// More groups than memory for them.
    #[error("no memory for the {0} block groups of the file system")]
    Memory(u64),
}

/// Checks the superblock of a disk of `disk_bytes`, with `free_bytes` of memory.
pub(super) fn check(
    bytes: &[u8; LEN],
    disk_bytes: u64,
    free_bytes: u64,
) -> Result<(), SuperblockError> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if u16::from_le_bytes([bytes[0x38], bytes[0x39]]) != MAGIC {
        return Err(SuperblockError::Magic);
    }
    let log_block_size = word(0x18);
    if log_block_size > MAX_LOG_BLOCK_SIZE {
        return Err(SuperblockError::BlockSize);
    }
    let block_bytes = 1024_u64 << log_block_size;
    // ext4-view reads the upper half without the feature `64bit` too, where it is zero on an
    // undamaged disk.
    let high = word(0x150);
    let blocks = u64::from(high) << 32 | u64::from(word(0x4));
    if blocks
        .checked_mul(block_bytes)
        .is_none_or(|bytes| bytes > disk_bytes)
    {
        return Err(SuperblockError::TooLarge);
    }
    let blocks_per_group = u64::from(word(0x20));
    // mke2fs takes multiples of eight from 256 to what a block's bits can say.
    if !(256..=block_bytes * 8).contains(&blocks_per_group) {
        return Err(SuperblockError::Groups);
    }
    let groups = blocks.div_ceil(blocks_per_group);
    if groups * DESCRIPTOR_BYTES > free_bytes {
        return Err(SuperblockError::Memory(groups));
    }
    Ok(())
}
