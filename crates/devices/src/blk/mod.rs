//! virtio-blk (virtio 1.2, 5.2): a raw file or block device as the guest's disk.
//!
//! Requests go to an [`IoEngine`]: io_uring, which reports completions by an eventfd,
//! or plain system calls on the I/O thread where io_uring is not allowed.
//! Which completions interrupt the guest is `tare_policy::coalesce`'s decision,
//! one coalescer for each queue; a held completion has a deadline, which the I/O
//! loop takes as its timeout.
//!
//! What is answered as durable is durable: a flush is fdatasync(2) begun
//! after the writes completed that it covers; in write-through mode, and for a
//! driver that does not know flush, every write is RWF_DSYNC, and what cannot be
//! is followed by a flush. The driver may change the mode (`cache`).
//!
//! A disk can have an artificial latency ([`paced()`]), and become longer while it is
//! served ([`Growth`]).
//!
//! A reset waits for what is in flight, on the thread that resets: only then may
//! the driver use the memory for something else.
//!
//! Limits: raw images of whole sectors, one range in each discard and
//! write-zeroes request, requests up to `MAX_REQUEST_BYTES`, no zoned storage,
//! no secure erase, no lifetime. O_DIRECT where blocks of 512 bytes can be
//! addressed with it; buffers that it cannot take are copied.

mod aligned;
mod cache;
mod config;
mod counters;
mod device;
mod disk;
mod engine_choice;
mod finish;
mod format;
mod growth;
mod in_flight;
mod io_engine;
mod measure;
mod paced;
mod raw_io;
mod request;
mod slow;
#[cfg(test)]
mod tests;

pub use crate::clock::{Clock, MonotonicClock};
pub use config::Cache;
pub use counters::BlkCounters;
pub use device::{Blk, BlkSettings};
pub use disk::{Access, Disk, DiskError, Format, Problem};
pub use engine_choice::{IoEngineChoice, choose};
pub use growth::{Growth, GrowthError};
pub use io_engine::{Durability, Finished, IoEngine, Operation, SyncIoEngine};
pub use paced::paced;
pub use raw_io::{Buffers, Ring};
pub use request::{Refusal, Request, RequestLimits, Shape, parse};

/// Bytes of a sector, the unit of every request (5.2.4).
pub const SECTOR_BYTES: u64 = 512;
/// Entries of each queue.
pub const QUEUE_SIZE: u16 = 256;
/// Most queues.
pub const MAX_QUEUES: u16 = 16;
/// Most segments of one request: a queue without header and status.
pub const SEG_MAX: u32 = QUEUE_SIZE as u32 - 2;
/// Longest segment that a driver may use (SIZE_MAX).
pub const SIZE_MAX: u32 = 256 << 10;
/// Most data bytes of one request.
pub(crate) const MAX_REQUEST_BYTES: u64 = SEG_MAX as u64 * SIZE_MAX as u64;
/// Most sectors of one write-zeroes request: where the file cannot do it by
/// itself, zeros are written while others wait.
pub(crate) const MAX_ZERO_SECTORS: u32 = 16_384;
/// Requests taken from a queue before other work gets its turn.
pub const BATCH: usize = 64;
/// Requests in flight, of all queues.
pub(crate) const MAX_IN_FLIGHT: usize = 512;
/// Length of the serial number (5.2.6, GET_ID).
pub const SERIAL_BYTES: usize = 20;
