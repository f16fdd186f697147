//! What makes a queue unusable.

use vm_memory::GuestMemoryError;

/// What makes a queue unusable until the driver resets the device.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Size or alignment is wrong.
    #[error("queue settings are invalid")]
    Settings(#[source] virtio_queue::Error),
    /// A ring, a table or a buffer is not in guest memory.
    #[error("queue or buffer lies outside guest memory")]
    OutsideMemory,
    /// The available index ran ahead of the queue's size.
    #[error("available ring is inconsistent")]
    Ring(#[source] virtio_queue::Error),
    /// A chain loops, names a descriptor that does not exist, nests indirect
    /// tables, or is longer than 4 GiB.
    #[error("descriptor chain is broken")]
    Broken,
    /// A chain has more descriptors than the queue.
    #[error("descriptor chain is longer than the queue")]
    TooLong,
    /// Buffers have the wrong direction for this queue, or are mixed.
    #[error("descriptor chain has a buffer of the wrong direction")]
    Direction,
    /// A chain is shorter than what was to be copied.
    #[error("descriptor chain is too short")]
    TooShort,
    /// Guest memory is not accessible any more.
    #[error("guest memory is not accessible")]
    Memory(#[from] GuestMemoryError),
}
