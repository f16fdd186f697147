//! Feature bits (virtio 1.2, 5.2.3 and 6) and the configuration space (5.2.4).

/// A segment's longest length is in the configuration space.
pub(super) const SIZE_MAX: u64 = 1 << 1;
/// The device takes no writes.
pub(super) const READ_ONLY: u64 = 1 << 5;
/// The device knows flush.
pub(super) const FLUSH: u64 = 1 << 9;
/// The number of queues is in the configuration space.
pub(super) const MULTI_QUEUE: u64 = 1 << 12;
/// A request may be one descriptor that points to a table.
pub(super) const INDIRECT: u64 = 1 << 28;
/// Notifications and interrupts are asked for by index (2.7.7, 2.7.10).
pub(super) const EVENT_IDX: u64 = 1 << 29;
/// Not a legacy device.
pub(super) const VERSION_1: u64 = 1 << 32;

/// What the driver would like, whatever the command line says.
pub(super) const WANTED: u64 = SIZE_MAX | READ_ONLY | FLUSH | MULTI_QUEUE | EVENT_IDX | VERSION_1;

/// Offsets in the configuration space.
pub(super) const CONFIG_CAPACITY: usize = 0;
pub(super) const CONFIG_SIZE_MAX: usize = 8;
pub(super) const CONFIG_QUEUES: usize = 34;
