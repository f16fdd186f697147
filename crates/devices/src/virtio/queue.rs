//! A live queue: takes chains, gives them back, and decides about notifications and interrupts
//! (virtio 1.2, 2.7).
//!
//! The rings are those of the virtio-queue crate. Completion and the interrupt decision are here,
//! because several entries must become visible at once (merged receive buffers, 5.1.6.4) and
//! because coalescing is part of that decision ([`Virtqueue::advise`]).

use std::sync::atomic::{Ordering, fence};

use tare_policy::coalesce;
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::descriptors::Descriptors;
use super::{Chain, InflightLog, QueueError};
use crate::GuestRam;

/// How far back an index is that has passed, whatever the driver has added: the half of all.
const PASSED: u16 = 1 << 15;

/// Whether completions cause an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing was completed since the last decision.
    Nothing,
    /// The driver wants an interrupt now.
    Interrupt,
    /// The driver does not want an interrupt yet.
    Suppress,
    /// The device holds the interrupt back.
    Hold,
}

/// A live queue.
#[derive(Debug)]
pub struct Virtqueue {
    queue: Queue,
    event_idx: bool,
    /// The used ring holds entries that the driver does not see yet.
    staged: bool,
    /// Used index at the last decision.
    decided: u16,
    /// The device's advice about completions since the last decision.
    advice: Option<coalesce::Decision>,
    /// The device's last advice was to hold.
    holding: bool,
    /// The budget cut off the work on the queue: the next call continues it and is not a new
    /// notification.
    pub(super) unfinished: bool,
    /// A chain may have more descriptors than the queue, up to this.
    pub(super) longest_chain: u16,
    /// Heads to take again before the driver's next ones, in reverse order.
    pub(super) again: Vec<u16>,
    /// The log that outlives this process.
    pub(super) log: Option<InflightLog>,
}

impl Virtqueue {
    pub(super) fn new(mut queue: Queue, event_idx: bool) -> Self {
        queue.set_event_idx(event_idx);
        Self {
            queue,
            event_idx,
            staged: false,
            decided: 0,
            advice: None,
            holding: false,
            unfinished: false,
            longest_chain: 0,
            again: Vec::new(),
            log: None,
        }
    }

    /// The driver wants no interrupt for completions up to `used`.
    pub(super) fn start_at(&mut self, used: u16) {
        self.decided = used;
    }

    pub(super) fn queue_ref(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Whether a chain waits.
    pub(crate) fn has_waiting(&self, memory: &GuestRam) -> Result<bool, QueueError> {
        let offered = self
            .queue
            .avail_idx(memory, Ordering::Acquire)
            .map_err(QueueError::Ring)?
            .0;
        Ok(!self.again.is_empty() || offered != self.queue.next_avail())
    }

    /// Takes the next chain into `chain`; `false` when none waits.
    pub fn pop(&mut self, memory: &GuestRam, chain: &mut Chain) -> Result<bool, QueueError> {
        let limit = self.queue.size().max(self.longest_chain);
        if let Some(head) = self.again.pop() {
            let (table, size) = (self.queue.desc_table(), self.queue.size());
            let descriptors = Descriptors::new(memory, table, size, head);
            chain.load(head, descriptors, limit, memory)?;
            return Ok(true);
        }
        let mut waiting = self.queue.iter(memory).map_err(QueueError::Ring)?;
        let Some(descriptors) = waiting.next() else {
            return Ok(false);
        };
        let head = descriptors.head_index();
        if let Some(log) = &mut self.log {
            log.taken(head)?;
        }
        chain.load(head, descriptors, limit, memory)?;
        Ok(true)
    }

    /// As [`pop`](Self::pop); if no chain waits, requests a notification for the next one.
    pub(crate) fn pop_or_ask(
        &mut self,
        memory: &GuestRam,
        chain: &mut Chain,
    ) -> Result<bool, QueueError> {
        if self.pop(memory, chain)? {
            return Ok(true);
        }
        // What used the chains up is seen before the request: a driver may notify only where all
        // chains of its queue came back since it last saw none.
        self.publish(memory)?;
        // A chain may arrive before the driver sees the request.
        Ok(self.enable_notification(memory)? && self.pop(memory, chain)?)
    }

    /// Puts the last `count` chains back: `pop` gives them again.
    pub(crate) fn unpop(&mut self, count: u16) {
        let back = self.queue.next_avail().wrapping_sub(count);
        self.queue.set_next_avail(back);
    }

    /// Gives one chain back with `written` bytes in it.
    pub fn complete(
        &mut self,
        memory: &GuestRam,
        head: u16,
        written: u32,
    ) -> Result<(), QueueError> {
        if let Some(log) = &self.log {
            log.answers(head)?;
        }
        self.complete_all(memory, &[(head, written)])?;
        match &self.log {
            Some(log) => log.answered(head, self.queue.next_used()),
            None => Ok(()),
        }
    }

    /// Gives chains (head, bytes written) back; the driver sees all or none. A
    /// queue with a log takes [`complete`](Self::complete).
    pub(crate) fn complete_all(
        &mut self,
        memory: &GuestRam,
        chains: &[(u16, u32)],
    ) -> Result<(), QueueError> {
        self.stage(memory, chains)?;
        self.publish(memory)
    }

    /// Puts chains (head, bytes written) into the used ring, for the driver to see with the next
    /// [`publish`](Self::publish).
    pub(crate) fn stage(
        &mut self,
        memory: &GuestRam,
        chains: &[(u16, u32)],
    ) -> Result<(), QueueError> {
        let mut next = self.queue.next_used();
        for (head, written) in chains {
            let slot = u64::from(next % self.queue.size());
            let entry = u64::from(*written) << 32 | u64::from(*head);
            memory.write_obj(entry.to_le(), self.used(4 + slot * 8))?;
            next = next.wrapping_add(1);
        }
        self.queue.set_next_used(next);
        self.staged = true;
        Ok(())
    }

    /// Makes all staged entries visible to the driver.
    pub(crate) fn publish(&mut self, memory: &GuestRam) -> Result<(), QueueError> {
        if std::mem::take(&mut self.staged) {
            let next = self.queue.next_used().to_le();
            memory.store(next, self.used(2), Ordering::Release)?;
        }
        Ok(())
    }

    /// Suppresses notifications while work goes on.
    pub(crate) fn disable_notification(&mut self, memory: &GuestRam) -> Result<(), QueueError> {
        if self.event_idx {
            // An index that has passed, so that the driver's next one does not (2.7.10): virtio-queue leaves
            // the last one, by which the driver notifies a device that works already.
            let passed = self.queue.next_avail().wrapping_sub(PASSED).to_le();
            let event = self.used(4 + 8 * u64::from(self.queue.size()));
            memory.store(passed, event, Ordering::Relaxed)?;
            return Ok(());
        }
        let told = self.queue.disable_notification(memory);
        told.map_err(QueueError::Ring)
    }

    /// Requests the next notification; `true` if chains arrived meanwhile, for which none may come.
    pub(crate) fn enable_notification(&mut self, memory: &GuestRam) -> Result<bool, QueueError> {
        let more = self.queue.enable_notification(memory);
        more.map_err(QueueError::Ring)
    }

    /// Records the coalescing policy's advice about a completion, or about those held so far. If
    /// several come before one decision, one that delivers wins. Without advice every completion is
    /// delivered.
    pub fn advise(&mut self, advice: coalesce::Decision) {
        self.advice = Some(match self.advice {
            Some(before) => before.or(advice),
            None => advice,
        });
    }

    /// The decision point: evaluates the completions since the last call and returns whether to
    /// interrupt the driver (2.7.7, 2.7.10). Called once after each batch. Held completions are
    /// decided about again with the next ones that are delivered: the driver's event index then
    /// covers all of them.
    pub fn decide(&mut self, memory: &GuestRam) -> Result<Decision, QueueError> {
        match self.advice.take() {
            Some(advice) => self.holding = advice == coalesce::Decision::Hold,
            None if self.holding => return Ok(Decision::Nothing),
            None => {}
        }
        if self.holding {
            return Ok(Decision::Hold);
        }
        let used = self.queue.next_used();
        let before = std::mem::replace(&mut self.decided, used);
        if used == before {
            return Ok(Decision::Nothing);
        }
        // The used index must be visible before the driver's event index is read.
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            let event: u16 = self.driver_word(4 + u64::from(self.queue.size()) * 2, memory)?;
            used.wrapping_sub(event).wrapping_sub(1) < used.wrapping_sub(before)
        } else {
            u32::from(self.driver_word(0, memory)?) & VRING_AVAIL_F_NO_INTERRUPT == 0
        };
        Ok(if wanted {
            Decision::Interrupt
        } else {
            Decision::Suppress
        })
    }

    fn driver_word(&self, offset: u64, memory: &GuestRam) -> Result<u16, QueueError> {
        let address = GuestAddress(self.queue.avail_ring().wrapping_add(offset));
        let word: u16 = memory.load(address, Ordering::Relaxed)?;
        Ok(u16::from_le(word))
    }

    fn used(&self, offset: u64) -> GuestAddress {
        // Cannot overflow: the ring was found to lie in guest memory.
        GuestAddress(self.queue.used_ring().wrapping_add(offset))
    }
}
