//! What a disk is made of: [`Device`] and what it says about itself.

use alloc::string::String;

use super::{BlockError, SECTOR_BYTES};

/// What may be done with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// What a device says about itself when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Serial number, empty if it has none.
    pub(crate) serial: String,
    /// Capacity in sectors.
    pub(crate) sectors: u64,
    /// Whether it takes writes.
    pub(crate) access: Access,
    /// Most bytes of one request, whole sectors.
    pub(crate) request_bytes: usize,
    /// Most requests in flight.
    pub(crate) depth: usize,
    /// Queues in use.
    pub(crate) queues: usize,
}

impl Geometry {
    /// Where `bytes` from `sector` on end, if that is on the disk.
    pub(super) fn check(&self, sector: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(BlockError::NotWholeSectors);
        }
        let end = sector.checked_add((bytes / SECTOR_BYTES) as u64);
        match end {
            Some(end) if end <= self.sectors => Ok(()),
            _ => Err(BlockError::BeyondEnd),
        }
    }
}

/// One request, checked: whole sectors, on the disk, no longer than
/// [`Geometry::request_bytes`], no write to a disk that is read-only.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    /// Read from `sector` on.
    Read {
        /// First sector.
        sector: u64,
        /// Where to.
        into: &'a mut [u8],
    },
    /// Write from `sector` on.
    Write {
        /// First sector.
        sector: u64,
        /// What.
        from: &'a [u8],
    },
    /// Make durable what was written.
    Flush,
}

/// What has happened at a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Interrupts taken, as the handler counts its calls.
    pub interrupts: u64,
    /// Requests completed.
    pub completions: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Notifications sent to the device.
    pub notifications: u64,
    /// Times that a thread waited for room in a queue.
    pub waits_for_room: u64,
}

/// A disk's device. Any thread may call, also while others wait inside.
pub(crate) trait Device: Send + Sync {
    /// What it said about itself.
    fn geometry(&self) -> &Geometry;

    /// Carries a request out; blocks the thread until it has completed.
    fn execute(&self, operation: Operation<'_>) -> Result<(), BlockError>;

    /// What has happened so far.
    fn stats(&self) -> DiskStats;
}
