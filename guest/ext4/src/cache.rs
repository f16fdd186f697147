//! Pages of a disk in memory, with a bound.
//!
//! What is written stays here until the file system flushes, as in the write cache of a disk:
//! the journal orders its writes by flushes, so that any order between two of them is right.
//! Pages that were not used since the last look make room (second chance).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::block::{BlockError, Disk, SECTOR_BYTES};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Sectors of a page.
const SECTORS: u64 = (PAGE / SECTOR_BYTES) as u64;
/// Most pages of one request.
const RUN: usize = 64;

struct Page {
    bytes: Box<[u8]>,
    is_dirty: bool,
    /// Used since it was last looked at for room.
    is_used: bool,
}

/// Requests to the disk since the mount.
#[derive(Debug, Default)]
pub struct Requests {
    /// Reads.
    pub reads: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
}

/// What is under the cache: whole sectors of [`SECTOR_BYTES`], as [`Disk`] has them.
pub trait Sectors: Send {
    /// How many there are.
    fn sectors(&self) -> u64;
    /// Fills `to` from a sector on.
    fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), BlockError>;
    /// Writes from a sector on; durable after a later flush.
    fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), BlockError>;
    /// Makes durable what was written.
    fn flush(&mut self) -> Result<(), BlockError>;
}

impl Sectors for Disk {
    fn sectors(&self) -> u64 {
        Self::sectors(self)
    }

    fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), BlockError> {
        Self::read(self, sector, to)
    }

    fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), BlockError> {
        Self::write(self, sector, from)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        Self::flush(self)
    }
}

/// The pages.
pub(crate) struct Cache {
    disk: Box<dyn Sectors>,
    /// How many it had at the mount: a file system does not grow under way, and to ask a device
    /// is an exit.
    sectors: u64,
    pages: BTreeMap<u64, Page>,
    /// Their numbers, the next to be looked at first.
    order: VecDeque<u64>,
    /// Most pages.
    most: usize,
    /// Whether the heap has room for this many bytes.
    has_room: fn(usize) -> bool,
    requests: Arc<Requests>,
}

impl Cache {
    /// An empty cache of at most `most` pages.
    pub(crate) fn new(disk: Box<dyn Sectors>, most: usize, requests: Arc<Requests>) -> Self {
        Self {
            sectors: disk.sectors(),
            disk,
            pages: BTreeMap::new(),
            order: VecDeque::new(),
            most: most.max(2 * RUN),
            has_room: tare_libos::heap::has_room,
            requests,
        }
    }

    /// Sectors of the disk.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Reads whole sectors.
    pub(crate) fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), BlockError> {
        self.check(sector, to.len())?;
        let mut at = sector * SECTOR_BYTES as u64;
        let mut to = to;
        while !to.is_empty() {
            let number = at / PAGE as u64;
            if !self.pages.contains_key(&number) {
                let end = (at + to.len() as u64).div_ceil(PAGE as u64);
                self.load(number, end)?;
            }
            let page = self.pages.get_mut(&number).ok_or(BlockError::Io)?;
            page.is_used = true;
            let in_page = (at % PAGE as u64) as usize;
            let count = to.len().min(PAGE - in_page);
            let (part, rest) = to.split_at_mut(count);
            part.copy_from_slice(&page.bytes[in_page..in_page + count]);
            at += count as u64;
            to = rest;
        }
        Ok(())
    }

    /// Writes whole sectors, into the cache.
    pub(crate) fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), BlockError> {
        self.check(sector, from.len())?;
        let mut at = sector * SECTOR_BYTES as u64;
        let mut from = from;
        while !from.is_empty() {
            let number = at / PAGE as u64;
            let in_page = (at % PAGE as u64) as usize;
            let count = from.len().min(PAGE - in_page);
            let (part, rest) = from.split_at(count);
            if !self.pages.contains_key(&number) {
                if count == PAGE {
                    self.insert(number, vec![0; PAGE].into())?;
                } else {
                    self.load(number, number + 1)?;
                }
            }
            let page = self.pages.get_mut(&number).ok_or(BlockError::Io)?;
            page.bytes[in_page..in_page + count].copy_from_slice(part);
            (page.is_dirty, page.is_used) = (true, true);
            at += count as u64;
            from = rest;
        }
        Ok(())
    }

    /// Whether a request is on the disk.
    fn check(&self, sector: u64, bytes: usize) -> Result<(), BlockError> {
        match sector.checked_add((bytes / SECTOR_BYTES) as u64) {
            Some(end) if end <= self.sectors => Ok(()),
            _ => Err(BlockError::BeyondEnd),
        }
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&mut self) -> Result<(), BlockError> {
        self.write_back()?;
        self.requests.flushes.fetch_add(1, Ordering::Relaxed);
        self.disk.flush()
    }

    /// Reads pages from `first` on, up to `end` or the next one that is there.
    fn load(&mut self, first: u64, end: u64) -> Result<(), BlockError> {
        // Without room a page takes the place of another, also of one that was read with it.
        let run = if (self.has_room)(RUN * PAGE) { RUN } else { 1 };
        let next = self.pages.range(first..).next().map(|(number, _)| *number);
        let end = end.min(next.unwrap_or(end)).min(first + run as u64);
        let sector = first * SECTORS;
        let there = self.sectors.saturating_sub(sector);
        let sectors = ((end - first) * SECTORS).min(there);
        if sectors == 0 {
            return Err(BlockError::BeyondEnd);
        }
        let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
        self.requests.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read(sector, &mut bytes)?;
        for (number, part) in (first..).zip(bytes.chunks(PAGE)) {
            let mut page = Vec::from(part);
            page.resize(PAGE, 0);
            self.insert(number, page.into())?;
        }
        Ok(())
    }

    fn insert(&mut self, number: u64, bytes: Box<[u8]>) -> Result<(), BlockError> {
        while self.pages.len() >= self.most || !(self.has_room)(PAGE) {
            if !self.make_room()? {
                break;
            }
        }
        let page = Page {
            bytes,
            is_dirty: false,
            // One look longer than a page that was there: it was read for a reason.
            is_used: true,
        };
        if self.pages.insert(number, page).is_none() {
            self.order.push_back(number);
        }
        Ok(())
    }

    /// Drops a page; says whether there was one.
    fn make_room(&mut self) -> Result<bool, BlockError> {
        while let Some(number) = self.order.pop_front() {
            let Some(page) = self.pages.get_mut(&number) else {
                continue;
            };
            if page.is_used {
                page.is_used = false;
                self.order.push_back(number);
                continue;
            }
            if page.is_dirty
                && let Err(error) = self.write_back()
            {
                self.order.push_front(number);
                return Err(error);
            }
            self.pages.remove(&number);
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes all that is dirty, neighbours in one request.
    fn write_back(&mut self) -> Result<(), BlockError> {
        let dirty = self.pages.iter().filter(|(_, page)| page.is_dirty);
        let numbers: Vec<u64> = dirty.map(|(number, _)| *number).collect();
        let runs = numbers.chunk_by(|before, number| before + 1 == *number);
        for run in runs.flat_map(|run| run.chunks(RUN)) {
            let mut bytes = Vec::with_capacity(run.len() * PAGE);
            for number in run {
                let page = self.pages.get(number).ok_or(BlockError::Io)?;
                bytes.extend_from_slice(&page.bytes);
            }
            let sector = run[0] * SECTORS;
            let there = self.sectors.saturating_sub(sector) as usize * SECTOR_BYTES;
            bytes.truncate(there);
            self.requests.writes.fetch_add(1, Ordering::Relaxed);
            self.disk.write(sector, &bytes)?;
            for number in run {
                if let Some(page) = self.pages.get_mut(number) {
                    page.is_dirty = false;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_libos::block::Access;

    fn cache(sectors: usize, most: usize) -> (Disk, Cache) {
        let bytes = (0..sectors * SECTOR_BYTES).map(|at| (at / SECTOR_BYTES) as u8);
        let disk = Disk::in_memory("d", bytes.collect(), Access::ReadWrite);
        let cache = Cache::new(Box::new(disk.clone()), most, Arc::default());
        (disk, cache)
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_written_reaches_the_disk_by_a_flush() {
        let (disk, mut cache) = cache(64, 4);
        let mut sector = [0; SECTOR_BYTES];
        assert_eq!(cache.write(9, &[7; 3 * SECTOR_BYTES]), Ok(()));
        assert_eq!(disk.read(9, &mut sector), Ok(()));
        assert_eq!(sector, [9; SECTOR_BYTES], "the disk has it not yet");
        assert_eq!(cache.read(11, &mut sector), Ok(()));
        assert_eq!(sector, [7; SECTOR_BYTES]);
        assert_eq!(cache.flush(), Ok(()));
        assert_eq!(disk.read(9, &mut sector), Ok(()));
        assert_eq!(sector, [7; SECTOR_BYTES]);
        assert_eq!(disk.read(12, &mut sector), Ok(()));
        assert_eq!(sector, [12; SECTOR_BYTES]);
        assert_eq!(count(&cache.requests.writes), 1);
    }

    #[test]
    fn neighbours_go_together_and_a_bound_holds() {
        let (_, mut cache) = cache(8 * 4 * RUN, 0);
        for page in 0..4 * RUN as u64 {
            assert_eq!(cache.write(page * SECTORS, &[3; PAGE]), Ok(()));
            assert!(cache.pages.len() <= 2 * RUN && cache.order.len() <= 2 * RUN);
        }
        assert_eq!(cache.flush(), Ok(()));
        assert_eq!(count(&cache.requests.reads), 0, "whole pages need no read");
        assert!(count(&cache.requests.writes) <= 5);
        let mut all = vec![0; 8 * 4 * RUN * SECTOR_BYTES];
        assert_eq!(cache.read(0, &mut all), Ok(()));
        assert!(all.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_disk_may_end_within_a_page() {
        let (_, mut cache) = cache(11, 4);
        let mut three = [0; 3 * SECTOR_BYTES];
        assert_eq!(cache.read(8, &mut three), Ok(()));
        assert_eq!(three[..SECTOR_BYTES], [8; SECTOR_BYTES]);
        assert_eq!(cache.write(10, &[5; SECTOR_BYTES]), Ok(()));
        assert_eq!(cache.flush(), Ok(()));
        let beyond = cache.write(10, &[5; 2 * SECTOR_BYTES]);
        assert_eq!(beyond, Err(BlockError::BeyondEnd));
        assert_eq!(cache.read(16, &mut three), Err(BlockError::BeyondEnd));
        assert_eq!(cache.read(10, &mut three), Err(BlockError::BeyondEnd));
    }

    #[test]
    fn without_room_all_is_read_page_by_page() {
        let (_, mut cache) = cache(128, 128);
        cache.has_room = |_| false;
        let mut bytes = [0; 16 * SECTOR_BYTES];
        assert_eq!(cache.read(0, &mut bytes), Ok(()));
        assert_eq!(cache.write(3, &[9; 12 * SECTOR_BYTES]), Ok(()));
        assert_eq!(cache.read(0, &mut bytes), Ok(()));
        assert!(
            bytes[3 * SECTOR_BYTES..15 * SECTOR_BYTES]
                .iter()
                .all(|byte| *byte == 9)
        );
    }
}
