//! A log of the chains of a queue that are in flight, in memory that outlives the process: the
//! successor of a killed vhost-user back-end executes again what it left unanswered.
//!
//! Layout and order of writes are vhost-user's ("Inflight I/O tracking", split
//! virtqueue): a header of 16 bytes and an entry of 16 for each descriptor.
//!
//! Limits: one chain is completed at a time, so that a batch has one entry. The
//! memory is the front-end's as well: what is read from it is not trusted.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress};

use super::QueueError;
use crate::GuestRam;

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
/// Each queue's part begins at a multiple of a cache line.
const ALIGN: u64 = 64;
const VERSION: u16 = 1;

// Header: features (u64), version, descriptors, last batch's head, used index.
const AT_VERSION: u64 = 8;
const AT_SIZE: u64 = 10;
const AT_LAST_HEAD: u64 = 12;
const AT_USED: u64 = 14;
// Entry: in flight (u8), padding, next (u16), counter (u64).
const AT_COUNTER: u64 = 8;

/// The log of one queue.
#[derive(Debug)]
pub struct InflightLog {
    memory: Arc<GuestRam>,
    /// Where the queue's part begins.
    base: u64,
    size: u16,
    /// Grows with each chain taken; it gives the order in which to execute them again.
    counter: u64,
}

/// Requests that the previous process left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unanswered {
    /// Heads of chains without an answer, the oldest first.
    pub(super) heads: Vec<u16>,
}

impl InflightLog {
    /// Bytes of one queue's part for `size` descriptors.
    pub fn part_bytes(size: u16) -> u64 {
        (HEADER_BYTES + ENTRY_BYTES * u64::from(size)).next_multiple_of(ALIGN)
    }

    /// The log of a queue with `size` descriptors at `base` of `memory`, which
    /// holds nothing but logs. `None`: it does not fit there.
    pub fn new(memory: Arc<GuestRam>, base: u64, size: u16) -> Option<Self> {
        let bytes = usize::try_from(Self::part_bytes(size)).ok()?;
        let fits = vm_memory::GuestMemory::check_range(
            &*memory,
            GuestAddress(base),
            bytes,
            vm_memory::Permissions::ReadWrite,
        );
        fits.then_some(Self {
            memory,
            base,
            size,
            counter: 0,
        })
    }

    /// Reads what was left and updates the log to match `used`, the used index that the driver
    /// sees.
    pub(super) fn recover(&mut self, used: u16) -> Result<Unanswered, QueueError> {
        let version: u16 = self.read(AT_VERSION)?;
        let size: u16 = self.read(AT_SIZE)?;
        if version != VERSION || size != self.size {
            self.clear(used)?;
            return Ok(Unanswered::default());
        }
        if self.read::<u16>(AT_USED)? != used {
            // The process was killed between writing the used index and the log's entry.
            let last: u16 = self.read(AT_LAST_HEAD)?;
            if last < self.size {
                self.write(self.entry(last), 0u8)?;
            }
            self.write(AT_USED, used)?;
        }
        let mut found = Vec::new();
        for head in 0..self.size {
            if self.read::<u8>(self.entry(head))? != 0 {
                let counter: u64 = self.read(self.entry(head) + AT_COUNTER)?;
                self.counter = self.counter.max(counter.wrapping_add(1));
                found.push((counter, head));
            }
        }
        found.sort_unstable();
        Ok(Unanswered {
            heads: found.into_iter().map(|(_, head)| head).collect(),
        })
    }

    /// The device takes the chain.
    pub(super) fn taken(&mut self, head: u16) -> Result<(), QueueError> {
        self.counter = self.counter.wrapping_add(1);
        let entry = self.entry(head % self.size);
        self.write(entry + AT_COUNTER, self.counter)?;
        fence(Ordering::Release);
        self.write(entry, 1u8)
    }

    /// Before the answer becomes visible to the driver.
    pub(super) fn answers(&self, head: u16) -> Result<(), QueueError> {
        self.write(AT_LAST_HEAD, head % self.size)?;
        fence(Ordering::Release);
        Ok(())
    }

    /// After the answer has become visible, with the used index `used`.
    pub(super) fn answered(&self, head: u16, used: u16) -> Result<(), QueueError> {
        fence(Ordering::Release);
        self.write(self.entry(head % self.size), 0u8)?;
        fence(Ordering::Release);
        self.write(AT_USED, used)
    }

    fn clear(&self, used: u16) -> Result<(), QueueError> {
        for head in 0..self.size {
            self.write(self.entry(head), 0u8)?;
        }
        self.write(0, 0u64)?;
        self.write(AT_SIZE, self.size)?;
        self.write(AT_USED, used)?;
        fence(Ordering::Release);
        self.write(AT_VERSION, VERSION)
    }

    fn entry(&self, head: u16) -> u64 {
        HEADER_BYTES + ENTRY_BYTES * u64::from(head)
    }

    fn read<T: vm_memory::ByteValued>(&self, at: u64) -> Result<T, QueueError> {
        // Cannot overflow: `new` checked that the part lies in the memory.
        Ok(self
            .memory
            .read_obj(GuestAddress(self.base.wrapping_add(at)))?)
    }

    fn write<T: vm_memory::ByteValued>(&self, at: u64, value: T) -> Result<(), QueueError> {
        let address = GuestAddress(self.base.wrapping_add(at));
        Ok(self.memory.write_obj(value, address)?)
    }
}
