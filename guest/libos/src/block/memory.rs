//! A disk in memory: for tests, for the host, and as scratch space.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Access, BlockError, Cache, Device, DiskStats, Geometry, Operation, SECTOR_BYTES};
use crate::sync::SpinLock;

/// Longest request, as a device might have it.
const REQUEST_BYTES: usize = 256 * 1024;
/// Requests at a time, as a device might have it.
const DEPTH: usize = 256;

pub(super) struct MemoryDisk {
    geometry: Geometry,
    bytes: SpinLock<Vec<u8>>,
    completions: AtomicU64,
}

impl MemoryDisk {
    pub(super) fn new(bytes: Vec<u8>, access: Access) -> Self {
        Self {
            geometry: Geometry {
                serial: String::new(),
                sectors: (bytes.len() / SECTOR_BYTES) as u64,
                access,
                request_bytes: REQUEST_BYTES,
                depth: DEPTH,
                queues: 1,
                discard_sectors: u32::MAX,
                zero_sectors: u32::MAX,
            },
            bytes: SpinLock::new(bytes),
            completions: AtomicU64::new(0),
        }
    }
}

impl Device for MemoryDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn execute(&self, operation: Operation<'_>) -> Result<(), BlockError> {
        self.completions.fetch_add(1, Ordering::Relaxed);
        let mut bytes = self.bytes.lock();
        match operation {
            Operation::Read { sector, into } => {
                let start = sector as usize * SECTOR_BYTES;
                let from = bytes.get(start..start + into.len());
                into.copy_from_slice(from.ok_or(BlockError::BeyondEnd)?);
            }
            Operation::Write { sector, from } => {
                let start = sector as usize * SECTOR_BYTES;
                let into = bytes.get_mut(start..start + from.len());
                into.ok_or(BlockError::BeyondEnd)?.copy_from_slice(from);
            }
            Operation::Discard { sector, sectors } | Operation::WriteZeroes { sector, sectors } => {
                let start = sector as usize * SECTOR_BYTES;
                let erased = bytes.get_mut(start..start + sectors as usize * SECTOR_BYTES);
                erased.ok_or(BlockError::BeyondEnd)?.fill(0);
            }
            Operation::Flush => {}
        }
        Ok(())
    }

    /// Memory is as durable as it gets.
    fn set_cache(&self, _: Cache) -> Result<(), BlockError> {
        Ok(())
    }

    fn stats(&self) -> DiskStats {
        DiskStats {
            completions: self.completions.load(Ordering::Relaxed),
            ..DiskStats::default()
        }
    }
}
