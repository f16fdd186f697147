//! [`Disk`].

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::memory::MemoryDisk;
use super::{Access, BlockError, Cache, Device, DiskStats, Operation, SECTOR_BYTES};
use crate::sync::Event;

/// A disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    name: Arc<str>,
    device: Arc<dyn Device>,
    /// The most sectors that it has been seen to have: it never becomes shorter.
    known: Arc<AtomicU64>,
}

impl Disk {
    pub(crate) fn new(name: &str, device: Arc<dyn Device>) -> Self {
        Self {
            name: Arc::from(name),
            known: Arc::new(AtomicU64::new(device.geometry().sectors)),
            device,
        }
    }

    /// A disk whose sectors are `bytes`; a partial sector at the end is
    /// left out.
    pub fn in_memory(name: &str, bytes: Vec<u8>, access: Access) -> Self {
        Self::new(name, Arc::new(MemoryDisk::new(bytes, access)))
    }

    /// What the machine calls it: `disk0`, `disk1`, ...
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its serial number; empty if it has none.
    pub fn serial(&self) -> &str {
        &self.device.geometry().serial
    }

    /// Capacity in sectors of [`SECTOR_BYTES`], as the device says now: it may grow.
    pub fn sectors(&self) -> u64 {
        let now = self.device.sectors();
        self.known.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// An event that is set when the device has changed its configuration, as it does when it
    /// has become longer; for one caller. Unsupported for others, and where the machine has no
    /// interrupt for that.
    pub fn watch(&self) -> Result<&'static Event, BlockError> {
        // Handlers live forever.
        let changed: &'static Event = Box::leak(Box::new(Event::new()));
        self.device.watch(changed)?;
        Ok(changed)
    }

    /// Capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors().saturating_mul(SECTOR_BYTES as u64)
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.device.geometry().access
    }

    /// Most requests that the device has at a time; further ones wait.
    pub fn depth(&self) -> usize {
        self.device.geometry().depth
    }

    /// Queues in use; a thread's requests go through the queue of its core.
    pub fn queues(&self) -> usize {
        self.device.geometry().queues
    }

    /// What has happened so far.
    pub fn stats(&self) -> DiskStats {
        self.device.stats()
    }

    /// Fills `into` from `sector` on. After an error its content is undefined.
    pub fn read(&self, mut sector: u64, into: &mut [u8]) -> Result<(), BlockError> {
        let geometry = self.device.geometry();
        self.check(sector, into.len())?;
        for into in into.chunks_mut(geometry.request_bytes) {
            let sectors = (into.len() / SECTOR_BYTES) as u64;
            self.device.execute(Operation::Read { sector, into })?;
            sector += sectors;
        }
        Ok(())
    }

    /// Writes `from` from `sector` on. Durable once a later [`flush`](Self::flush) has
    /// returned; after an error any part of it may have been written.
    pub fn write(&self, mut sector: u64, from: &[u8]) -> Result<(), BlockError> {
        let geometry = self.device.geometry();
        self.check(sector, from.len())?;
        geometry.check_writable()?;
        for from in from.chunks(geometry.request_bytes) {
            self.device.execute(Operation::Write { sector, from })?;
            sector += (from.len() / SECTOR_BYTES) as u64;
        }
        Ok(())
    }

    /// Tells the device that the content of `sectors` sectors from `sector` on is
    /// not needed any more: what is read there then is anything. Unsupported where
    /// the device has no discard.
    pub fn discard(&self, sector: u64, sectors: u64) -> Result<(), BlockError> {
        let most = self.device.geometry().discard_sectors;
        self.erase((sector, sectors), most, |sector, sectors| {
            Operation::Discard { sector, sectors }
        })
    }

    /// Makes `sectors` sectors from `sector` on zeros, by the device; Unsupported
    /// where it does not do that.
    pub fn write_zeroes(&self, sector: u64, sectors: u64) -> Result<(), BlockError> {
        let most = self.device.geometry().zero_sectors;
        self.erase((sector, sectors), most, |sector, sectors| {
            Operation::WriteZeroes { sector, sectors }
        })
    }

    /// Whether `bytes` from `sector` on are on the disk.
    fn check(&self, sector: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(BlockError::NotWholeSectors);
        }
        self.check_sectors(sector, (bytes / SECTOR_BYTES) as u64)
    }

    /// Whether `sectors` from `sector` on are on the disk. Asks the device for its size only
    /// where they are not on the disk as it was last seen.
    fn check_sectors(&self, sector: u64, sectors: u64) -> Result<(), BlockError> {
        let end = sector.checked_add(sectors).ok_or(BlockError::BeyondEnd)?;
        if end <= self.known.load(Ordering::Relaxed) || end <= self.sectors() {
            Ok(())
        } else {
            Err(BlockError::BeyondEnd)
        }
    }

    /// Requests of at most `most` sectors each.
    fn erase(
        &self,
        (mut sector, mut left): (u64, u64),
        most: u32,
        operation: fn(u64, u32) -> Operation<'static>,
    ) -> Result<(), BlockError> {
        let geometry = self.device.geometry();
        self.check_sectors(sector, left)?;
        geometry.check_writable()?;
        if most == 0 {
            return Err(BlockError::Unsupported);
        }
        while left > 0 {
            let sectors = u32::try_from(left).map_or(most, |left| left.min(most));
            self.device.execute(operation(sector, sectors))?;
            sector += u64::from(sectors);
            left -= u64::from(sectors);
        }
        Ok(())
    }

    /// Switches the write cache. To [`Cache::Writethrough`]: all that was written is
    /// durable when it returns, and from then on each write when its own call does.
    pub fn set_cache(&self, cache: Cache) -> Result<(), BlockError> {
        self.device.set_cache(cache)
    }

    /// Makes durable what was written before this call.
    pub fn flush(&self) -> Result<(), BlockError> {
        self.device.execute(Operation::Flush)
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.device.geometry();
        f.debug_struct("Disk")
            .field("name", &self.name)
            .field("geometry", geometry)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serial: Option<String> = Some(self.serial())
            .filter(|serial| !serial.is_empty())
            .map(|serial| alloc::format!(" ({serial})"));
        write!(f, "{}{}", self.name, serial.unwrap_or_default())
    }
}
