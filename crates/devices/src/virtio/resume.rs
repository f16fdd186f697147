//! Resumes a queue of another process or in other memory: where it continues, and the chains to
//! execute again.

use std::sync::atomic::Ordering;

use virtio_queue::QueueT;

use super::{InflightLog, QueueError, QueueSettings, Virtqueue};
use crate::GuestRam;

/// Whether driver and device tell each other the index to notify at (2.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIdx {
    /// They do.
    Negotiated,
    /// They do not.
    Absent,
}

impl Virtqueue {
    /// The queue at `settings`, from available index `next_available` on. With a log, unanswered
    /// chains come first, and the log says where to continue. `longest_chain` may exceed the
    /// queue's size: the driver follows the device's configuration.
    pub fn resume(
        settings: &QueueSettings,
        event_idx: EventIdx,
        next_available: u16,
        longest_chain: u16,
        log: Option<InflightLog>,
        memory: &GuestRam,
    ) -> Result<Self, QueueError> {
        let mut queue = settings.build(memory)?;
        let used = queue
            .used_idx(memory, Ordering::Acquire)
            .map_err(QueueError::Ring)?
            .0;
        queue.set_next_avail(next_available);
        queue.set_next_used(used);
        let mut resumed = Self::new(queue, event_idx == EventIdx::Negotiated);
        resumed.start_at(used);
        resumed.longest_chain = longest_chain;
        if let Some(mut log) = log {
            let mut heads = log.recover(used)?.heads;
            let taken = used.wrapping_add(heads.len() as u16);
            resumed.queue_mut().set_next_avail(taken);
            heads.reverse();
            resumed.again = heads;
            resumed.log = Some(log);
        }
        Ok(resumed)
    }

    /// Number of chains to execute again.
    pub fn unanswered(&self) -> usize {
        self.again.len()
    }

    /// Where the driver's next chain is, in the available ring.
    pub fn next_available(&self) -> u16 {
        self.queue_ref().next_avail()
    }
}
