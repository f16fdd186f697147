//! A queue that lived before, in another process or on other memory: where it
//! goes on, and the chains that are to be done again.

use std::sync::atomic::Ordering;

use virtio_queue::QueueT;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

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
    /// The queue at `settings`, going on at available index `next_available`.
    /// With a log, what was left unanswered comes first, and the log says where
    /// to go on. `longest_chain` is what a chain may have although the queue is
    /// smaller: the driver went by the device's configuration.
    pub fn resume(
        settings: &QueueSettings,
        event_idx: EventIdx,
        next_available: u16,
        longest_chain: u16,
        log: Option<InflightLog>,
        memory: &GuestRam,
    ) -> Result<Self, QueueError> {
        let mut queue = settings.build(memory)?;
        let used = queue.used_idx(memory, Ordering::Acquire);
        let used = used.map_err(QueueError::Ring)?.0;
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

    /// Chains that are to be done again.
    pub fn unanswered(&self) -> usize {
        self.again.len()
    }

    /// Where the driver's next chain is, in the available ring.
    pub fn next_available(&self) -> u16 {
        self.queue_ref().next_avail()
    }
}

/// The descriptors of a chain by its head. Ends early at whatever makes no
/// sense: [`super::Chain`] sees that more was promised.
pub(super) struct Descriptors<'a> {
    memory: &'a GuestRam,
    table: u64,
    len: u16,
    next: Option<u16>,
    left: u16,
    depth: Depth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Direct,
    Indirect,
}

impl<'a> Descriptors<'a> {
    pub(super) fn new(memory: &'a GuestRam, table: u64, len: u16, head: u16) -> Self {
        Self {
            memory,
            table,
            len,
            next: Some(head),
            left: len,
            depth: Depth::Direct,
        }
    }

    /// Goes on in the table that `descriptor` points to (2.7.5.3).
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let entries = u16::try_from(descriptor.len() / 16).ok()?;
        if self.depth == Depth::Indirect || !descriptor.len().is_multiple_of(16) || entries == 0 {
            return None;
        }
        (self.table, self.len) = (descriptor.addr().0, entries);
        (self.next, self.left) = (Some(0), entries);
        self.depth = Depth::Indirect;
        Some(())
    }

    fn read(&mut self) -> Option<Descriptor> {
        let index = self.next.take().filter(|index| *index < self.len)?;
        self.left = self.left.checked_sub(1)?;
        let address = self.table.checked_add(16 * u64::from(index))?;
        self.memory.read_obj(GuestAddress(address)).ok()
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        let mut descriptor = self.read()?;
        if descriptor.refers_to_indirect_table() {
            self.enter(descriptor)?;
            descriptor = self.read()?;
            if descriptor.refers_to_indirect_table() {
                return None;
            }
        }
        self.next = descriptor.has_next().then(|| descriptor.next());
        Some(descriptor)
    }
}
