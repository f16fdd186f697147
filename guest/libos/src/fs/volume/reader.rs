//! [`Reader`]: bytes anywhere on a disk of sectors.

use alloc::boxed::Box;
use core::error::Error;

use ext4_view::Ext4Read;

use crate::block::{BlockError, Disk, SECTOR_BYTES};

/// What the crate reads through.
pub(super) struct Reader(pub(super) Disk);

impl Reader {
    /// Fills `into` from byte `start` on. Whole sectors in the middle are read
    /// into their place, the ends through a sector's buffer.
    pub(super) fn fill(&self, start: u64, mut into: &mut [u8]) -> Result<(), BlockError> {
        let mut sector = start / SECTOR_BYTES as u64;
        let mut skip = (start % SECTOR_BYTES as u64) as usize;
        while !into.is_empty() {
            let whole = into.len() / SECTOR_BYTES * SECTOR_BYTES;
            let filled = if skip == 0 && whole > 0 {
                self.0.read(sector, &mut into[..whole])?;
                whole
            } else {
                let mut bounce = [0; SECTOR_BYTES];
                self.0.read(sector, &mut bounce)?;
                let here = into.len().min(SECTOR_BYTES - skip);
                into[..here].copy_from_slice(&bounce[skip..skip + here]);
                here
            };
            sector = sector
                .checked_add(((skip + filled) / SECTOR_BYTES) as u64)
                .ok_or(BlockError::BeyondEnd)?;
            skip = (skip + filled) % SECTOR_BYTES;
            into = &mut into[filled..];
        }
        Ok(())
    }
}

impl Ext4Read for Reader {
    fn read(
        &mut self,
        start_byte: u64,
        dst: &mut [u8],
    ) -> Result<(), Box<dyn Error + Send + Sync + 'static>> {
        Ok(self.fill(start_byte, dst)?)
    }
}
