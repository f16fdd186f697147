//! What a disk is made of: [`Device`] and what it says about itself.

use alloc::string::String;

use super::BlockError;
use crate::sync::Event;

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
    /// Capacity in sectors; the device may have become larger since.
    pub(crate) sectors: u64,
    /// Whether it takes writes.
    pub(crate) access: Access,
    /// Most bytes of one request, whole sectors.
    pub(crate) request_bytes: usize,
    /// Most requests in flight.
    pub(crate) depth: usize,
    /// Queues in use.
    pub(crate) queues: usize,
    /// Most sectors of one discard; zero: there is none.
    pub(crate) discard_sectors: u32,
    /// Most sectors that the device zeroes at once; zero: it does not.
    pub(crate) zero_sectors: u32,
}

impl Geometry {
    /// Whether it may be written.
    pub(super) fn check_writable(&self) -> Result<(), BlockError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(BlockError::ReadOnly),
        }
    }
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// When the device has it; a flush makes it durable.
    Writeback,
    /// When it is durable.
    Writethrough,
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
    /// The content of sectors is not needed any more.
    Discard {
        /// First sector.
        sector: u64,
        /// How many.
        sectors: u32,
    },
    /// Sectors become zeros.
    WriteZeroes {
        /// First sector.
        sector: u64,
        /// How many.
        sectors: u32,
    },
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

    /// Capacity in sectors now; no less than the geometry's.
    fn sectors(&self) -> u64 {
        self.geometry().sectors
    }

    /// Carries a request out; blocks the thread until it has completed.
    fn execute(&self, operation: Operation<'_>) -> Result<(), BlockError>;

    /// Switches the write cache.
    fn set_cache(&self, cache: Cache) -> Result<(), BlockError>;

    /// Sets `changed` from now on when the configuration changes, as it does with the capacity.
    fn watch(&self, changed: &'static Event) -> Result<(), BlockError> {
        let _ = changed;
        Err(BlockError::Unsupported)
    }

    /// What has happened so far.
    fn stats(&self) -> DiskStats;
}
