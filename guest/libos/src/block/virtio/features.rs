//! Feature bits (virtio 1.2, 5.2.3 and 6) and the configuration space (5.2.4).

pub(super) use crate::virtio::VERSION_1;

/// A segment's longest length is in the configuration space.
pub(super) const SIZE_MAX: u64 = 1 << 1;
/// The device takes no writes.
pub(super) const READ_ONLY: u64 = 1 << 5;
/// The device knows flush.
pub(super) const FLUSH: u64 = 1 << 9;
/// The driver may switch the device's write cache.
pub(super) const CONFIG_WCE: u64 = 1 << 11;
/// The number of queues is in the configuration space.
pub(super) const MULTI_QUEUE: u64 = 1 << 12;
/// The device knows discard.
pub(super) const DISCARD: u64 = 1 << 13;
/// The device writes zeros by itself.
pub(super) const WRITE_ZEROES: u64 = 1 << 14;
/// A request may be one descriptor that points to a table.
pub(super) const INDIRECT: u64 = 1 << 28;
/// Notifications and interrupts are asked for by index (2.7.7, 2.7.10).
pub(super) const EVENT_IDX: u64 = 1 << 29;

/// What the driver would like, whatever the command line says.
pub(super) const WANTED: u64 = SIZE_MAX
    | READ_ONLY
    | FLUSH
    | CONFIG_WCE
    | MULTI_QUEUE
    | DISCARD
    | WRITE_ZEROES
    | EVENT_IDX
    | VERSION_1;

/// Offsets in the configuration space.
pub(super) const CONFIG_CAPACITY: usize = 0;
pub(super) const CONFIG_SIZE_MAX: usize = 8;
pub(super) const CONFIG_WRITEBACK: usize = 32;
pub(super) const CONFIG_QUEUES: usize = 34;
pub(super) const CONFIG_DISCARD_SECTORS: usize = 36;
pub(super) const CONFIG_ZERO_SECTORS: usize = 48;
