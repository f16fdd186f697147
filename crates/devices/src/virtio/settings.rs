//! A queue before it lives: what the driver wrote, in any order and with any
//! values (virtio 1.2, 4.1.4.3, 4.1.5.1.3).

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use super::{NO_VECTOR, QueueError};
use crate::GuestRam;

/// One queue's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Largest size, as offered.
    pub max_size: u16,
    /// Size that the driver chose.
    pub size: u16,
    /// MSI-X vector, or [`NO_VECTOR`].
    pub vector: u16,
    /// Whether the driver enabled the queue, after the values were found good.
    pub enabled: bool,
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring ("driver area").
    pub available: u64,
    /// Used ring ("device area").
    pub used: u64,
}

impl QueueSettings {
    /// As after a reset.
    pub(super) fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            vector: NO_VECTOR,
            enabled: false,
            descriptors: 0,
            available: 0,
            used: 0,
        }
    }

    /// The queue in `memory`, if size, alignment and place are right.
    pub(super) fn build(&self, memory: &GuestRam) -> Result<Queue, QueueError> {
        let mut queue = Queue::new(self.max_size).map_err(QueueError::Settings)?;
        queue
            .try_set_size(self.size)
            .and_then(|()| queue.try_set_desc_table_address(GuestAddress(self.descriptors)))
            .and_then(|()| queue.try_set_avail_ring_address(GuestAddress(self.available)))
            .and_then(|()| queue.try_set_used_ring_address(GuestAddress(self.used)))
            .map_err(QueueError::Settings)?;
        queue.set_ready(true);
        // The virtio-queue crate takes an available ring at 0 as unset.
        if self.available == 0 || !queue.is_valid(memory) {
            return Err(QueueError::OutsideMemory);
        }
        Ok(queue)
    }
}
