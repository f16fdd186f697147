//! [`BlockMap`]: the blocks of a file without extents (kernel
//! `Documentation/filesystems/ext4/ifork.rst`, "Direct/Indirect Block Addressing").
//!
//! ext4-view 1.0 takes a hole as large as an indirect block for damage: it reads block 0
//! instead. Such files are read here. What is on the disk only in a journal that was not
//! written back is not seen here, so a file system with one is left to the crate. The
//! inode, its checksum included, was judged by the crate before.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::reader::Reader;
use super::superblock;
use crate::block::BlockError;

/// Feature `recover`: there is a journal to be written back.
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_64BIT: u32 = 0x80;
/// The inode has extents, or its data in itself.
const NO_BLOCK_MAP: u32 = 0x8_0000 | 0x1000_0000;
/// Where the block map is in an inode, and its entries.
const MAP: usize = 0x28;
const ENTRIES: usize = 15;
const DIRECT: u64 = 12;
/// Bytes of an inode up to the end of its block map.
const INODE_BYTES: usize = 0x64;

/// Why a file's blocks cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BlockMapError {
    /// A block that the file system does not have, or a file longer than a map can be.
    #[error("invalid block {0} in a block map")]
    Block(u64),
    /// The disk.
    #[error("the disk cannot be read")]
    Disk(#[from] BlockError),
}

/// The block map of one file.
pub(super) struct BlockMap<'a> {
    reader: &'a Reader,
    block_bytes: u64,
    blocks: u64,
    root: [u32; ENTRIES],
    /// The indirect block last used, by level: its number and content.
    indirect: [(u32, Vec<u8>); 3],
}

impl<'a> BlockMap<'a> {
    /// The map of inode `number`; `None`: it has none, or the journal is not written back.
    pub(super) fn of(reader: &'a Reader, number: u32) -> Result<Option<Self>, BlockError> {
        let mut block = [0; superblock::LEN];
        reader.fill(superblock::OFFSET, &mut block)?;
        let incompatible = word32(&block, 0x60);
        // Both were checked when the disk was mounted.
        let block_bytes = 1024_u64 << word32(&block, 0x18).min(6);
        let inodes_per_group = word32(&block, 0x28);
        if incompatible & INCOMPAT_RECOVER != 0 || number == 0 || inodes_per_group == 0 {
            return Ok(None);
        }
        let is_64bit = incompatible & INCOMPAT_64BIT != 0;
        let descriptor_bytes = if is_64bit {
            u64::from(word16(&block, 0xfe))
        } else {
            32
        };
        // Revision 0 has inodes of one size.
        let inode_bytes = match word32(&block, 0x4c) {
            0 => 128,
            _ => u64::from(word16(&block, 0x58)),
        };
        let (group, index) = (
            (number - 1) / inodes_per_group,
            (number - 1) % inodes_per_group,
        );
        let table = block_bytes * (u64::from(word32(&block, 0x14)) + 1);
        let mut descriptor = [0; 0x2c];
        let has_high = is_64bit && descriptor_bytes >= 64;
        let known = if has_high { 0x2c } else { 0x20 };
        let at = table.saturating_add(u64::from(group) * descriptor_bytes);
        reader.fill(at, &mut descriptor[..known])?;
        let inodes = u64::from(word32(&descriptor, 0x28)) << 32 | u64::from(word32(&descriptor, 8));
        let at = inodes
            .checked_mul(block_bytes)
            .and_then(|at| at.checked_add(u64::from(index) * inode_bytes));
        let mut inode = [0; INODE_BYTES];
        reader.fill(at.ok_or(BlockError::BeyondEnd)?, &mut inode)?;
        if word32(&inode, 0x20) & NO_BLOCK_MAP != 0 {
            return Ok(None);
        }
        let high = if is_64bit { word32(&block, 0x150) } else { 0 };
        Ok(Some(Self {
            reader,
            block_bytes,
            blocks: u64::from(high) << 32 | u64::from(word32(&block, 4)),
            root: core::array::from_fn(|entry| word32(&inode, MAP + 4 * entry)),
            indirect: Default::default(),
        }))
    }

    /// Fills `bytes` with the file's first ones; holes are zeros.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<(), BlockMapError> {
        // At most 64 KiB.
        let block_bytes = self.block_bytes as usize;
        for (index, part) in (0..).zip(bytes.chunks_mut(block_bytes)) {
            match self.block(index)? {
                0 => part.fill(0),
                block => self.fill(block, part)?,
            }
        }
        Ok(())
    }

    /// The file's block `index` on the disk; 0: a hole.
    fn block(&mut self, index: u64) -> Result<u32, BlockMapError> {
        if index < DIRECT {
            return Ok(self.root[index as usize]);
        }
        let each = self.block_bytes / 4;
        let mut left = index - DIRECT;
        // Blocks below an entry of an indirect block, of one of those ...
        let mut below = 1;
        for level in 0..3 {
            if left < below * each {
                let entry = self.root[DIRECT as usize + level];
                return self.descend(level, entry, left, below);
            }
            left -= below * each;
            below *= each;
        }
        Err(BlockMapError::Block(index))
    }

    fn descend(
        &mut self,
        level: usize,
        mut block: u32,
        mut index: u64,
        mut below: u64,
    ) -> Result<u32, BlockMapError> {
        for level in (0..=level).rev() {
            if block == 0 {
                return Ok(0);
            }
            let place = (index / below) as usize;
            (index, below) = (index % below, (below / (self.block_bytes / 4)).max(1));
            block = word32(self.indirect(level, block)?, 4 * place);
        }
        Ok(block)
    }

    fn indirect(&mut self, level: usize, block: u32) -> Result<&[u8], BlockMapError> {
        if self.indirect[level].0 != block {
            let mut content = vec![0; self.block_bytes as usize];
            self.fill(block, &mut content)?;
            self.indirect[level] = (block, content);
        }
        Ok(&self.indirect[level].1)
    }

    fn fill(&self, block: u32, into: &mut [u8]) -> Result<(), BlockMapError> {
        let block = u64::from(block);
        if block >= self.blocks {
            return Err(BlockMapError::Block(block));
        }
        Ok(self.reader.fill(block * self.block_bytes, into)?)
    }
}

/// The number of a file's inode. The crate tells it in the file's debug output only.
pub(super) fn inode(file: &ext4_view::File) -> Option<u32> {
    let shown = format!("{file:?}");
    let digits = shown.split_once("inode: ")?.1;
    let digits = digits.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
