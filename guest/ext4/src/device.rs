//! [`Device`]: the cache as the block device that `rsext4` asks for.

use rsext4::{BlockIo, DeviceCapabilities, DeviceGeometry, Ext4Result, SectorId};
use tare_libos::block::{Access, BlockError, SECTOR_BYTES};

use crate::cache::Cache;
use crate::error::of_disk;

/// A disk behind its cache.
pub(crate) struct Device {
    pub(crate) cache: Cache,
    pub(crate) access: Access,
}

impl Device {
    /// Whether a request has as many bytes as it says.
    fn check(&self, bytes: usize, count: u32) -> Result<(), BlockError> {
        if bytes == count as usize * SECTOR_BYTES {
            Ok(())
        } else {
            Err(BlockError::NotWholeSectors)
        }
    }
}

impl BlockIo for Device {
    fn write(&mut self, buffer: &[u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        self.check(buffer.len(), count).map_err(of_disk)?;
        self.cache.write(sector.raw(), buffer).map_err(of_disk)
    }

    fn read(&mut self, buffer: &mut [u8], sector: SectorId, count: u32) -> Ext4Result<()> {
        self.check(buffer.len(), count).map_err(of_disk)?;
        self.cache.read(sector.raw(), buffer).map_err(of_disk)
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(SECTOR_BYTES as u32, self.cache.sectors())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            read_only: self.access == Access::ReadOnly,
            flush: true,
            ..DeviceCapabilities::default()
        }
    }

    fn flush(&mut self) -> Ext4Result<()> {
        self.cache.flush().map_err(of_disk)
    }
}
