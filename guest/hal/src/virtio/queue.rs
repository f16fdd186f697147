//! [`Queue`]: a split virtqueue (virtio 1.2, 2.7) whose length is known when it runs.
//!
//! virtio-drivers has the length in the type of its queues, so that each one is a copy of the
//! code, 3 to 4 kB of an image. Here the device chooses, within what the driver asks for.
//!
//! The device can write to all of the memory: what it says is checked against what this side
//! keeps for itself, and nothing else is read back. Drivers keep the buffers.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};

use virtio_drivers::transport::Transport as _;
use virtio_drivers::{BufferDirection, Error, Hal as _, PAGE_SIZE, PhysAddr, Result};

use super::barrier::Barrier;
use super::{Dma, Transport};

#[cfg(not(target_os = "none"))]
mod device_side;
#[cfg(not(target_os = "none"))]
pub use device_side::DeviceSide;

/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: no interrupts (without `EVENT_IDX`).
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: no notifications (without `EVENT_IDX`).
const NO_NOTIFY: u16 = 1;
/// Bytes of an entry of the used ring, and where that begins behind flags and index.
const USED_ENTRY: usize = 8;
const RING_HEADER: usize = 4;

/// An entry of the table, as the device reads it.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// What this side keeps of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next one, of the chain or of those that are free.
    next: u16,
    /// Descriptors of the chain that begins here; 0 for any other.
    chain: u16,
}

/// How a queue is set up.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Most descriptors, a power of two.
    pub longest: u16,
    /// `VIRTIO_F_INDIRECT_DESC`: a request of several buffers takes one descriptor.
    pub indirect: bool,
    /// `VIRTIO_F_EVENT_IDX`: notifications and interrupts are asked for by index.
    pub event_idx: bool,
}

/// A queue of a device.
#[derive(Debug)]
pub struct Queue {
    memory: NonNull<u8>,
    physical: PhysAddr,
    pages: usize,
    size: u16,
    /// Offsets of the available and of the used ring.
    available_at: usize,
    used_at: usize,
    links: Box<[Link]>,
    /// The first free descriptor, and how many there are.
    free: u16,
    free_len: u16,
    /// Tables of requests in flight, by their descriptor; empty without `indirect`.
    tables: Box<[Vec<Descriptor>]>,
    event_idx: bool,
    barrier: Barrier,
    /// Requests that were prepared, those of them that the device sees, and when it was last
    /// asked whether to notify.
    prepared: u16,
    published: u16,
    asked: u16,
    /// Completions that were taken.
    taken: u16,
}

// SAFETY: 1. The queue owns its memory; only the device uses it besides, and does not care which
//    core runs the driver. 2. The other fields are `Send`.
unsafe impl Send for Queue {}

/// Descriptors of a queue for which a device offers this many: a power of two, at most
/// `longest`; 0 if there is none.
fn size_within(offered: u32, longest: u16) -> u16 {
    let most = offered.min(longest.into());
    most.checked_ilog2().map_or(0, |log| 1 << log)
}

impl Queue {
    /// Sets queue `index` of the device up, as long as it may be.
    pub fn new(transport: &mut Transport, index: u16, options: QueueOptions) -> Result<Self> {
        let size = size_within(transport.max_queue_size(index), options.longest);
        if size == 0 {
            return Err(Error::InvalidParam);
        }
        // As the legacy interface has it, which others take too (virtio 1.2, 2.7.2).
        let entries = usize::from(size);
        let available_at = size_of::<Descriptor>() * entries;
        let available = RING_HEADER + 2 * entries + 2;
        let used_at = (available_at + available).next_multiple_of(PAGE_SIZE);
        let used = RING_HEADER + USED_ENTRY * entries + 2;
        let pages = (used_at + used).div_ceil(PAGE_SIZE);
        let (physical, memory) = Dma::dma_alloc(pages, BufferDirection::Both);
        if physical == 0 {
            return Err(Error::DmaError);
        }
        let links = (1..=size).map(|next| Link { next, chain: 0 });
        let tables = if options.indirect { entries } else { 0 };
        let queue = Self {
            memory,
            physical,
            pages,
            size,
            available_at,
            used_at,
            links: links.collect(),
            free: 0,
            free_len: size,
            tables: vec![Vec::new(); tables].into(),
            event_idx: options.event_idx,
            barrier: Barrier::of_this_machine(),
            prepared: 0,
            published: 0,
            asked: 0,
            taken: 0,
        };
        let at = |offset: usize| physical + offset as PhysAddr;
        transport.queue_set(index, size.into(), physical, at(available_at), at(used_at));
        Ok(queue)
    }

    /// The other side of it, for tests.
    #[cfg(not(target_os = "none"))]
    pub fn device_side(&self) -> DeviceSide {
        DeviceSide::of(self)
    }

    /// Descriptors.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// Whether a request of this many buffers has room.
    #[inline]
    pub fn has_room(&self, buffers: usize) -> bool {
        let needed = if self.tables.is_empty() { buffers } else { 1 };
        needed <= usize::from(self.free_len)
    }

    /// Publishes a request: its token, or `None` without room. Buffers are not empty.
    ///
    /// # Safety
    /// The buffers stay valid, and nothing else uses them, until [`Self::take`] has taken
    /// the token.
    pub unsafe fn add(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Option<u16> {
        // SAFETY: 1. The buffers stay valid and unused by others until the token is taken (the
        //    caller's promise).
        let token = unsafe { self.prepare(inputs, outputs) }?;
        self.publish();
        Some(token)
    }

    /// Lets the device see what was prepared, all of it at once.
    #[inline]
    pub fn publish(&mut self) {
        self.published = self.prepared;
        // What was written before is seen before it.
        self.word(self.available_at + 2)
            .store(self.published, Ordering::Release);
    }

    /// Requests that were prepared and that the device does not see yet.
    #[inline]
    pub fn unpublished(&self) -> u16 {
        self.prepared.wrapping_sub(self.published)
    }

    /// Prepares a request for [`Self::publish`]: its token, or `None` without room. Buffers are
    /// not empty.
    ///
    /// # Safety
    /// As for [`Self::add`].
    pub unsafe fn prepare(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Option<u16> {
        let count = inputs.len() + outputs.len();
        if count == 0 || !self.has_room(count) {
            return None;
        }
        let head = if self.tables.is_empty() || count == 1 {
            // SAFETY: 1. The buffers stay valid and unused by others until the token is taken (the
            //    caller's promise). 2. There is a free descriptor for each: `has_room`, checked
            //    above.
            unsafe { self.add_chain(inputs, outputs) }
        } else {
            // SAFETY: 1. The buffers stay valid and unused by others until the token is taken (the
            //    caller's promise). 2. There is a free descriptor: `has_room`, checked above. 3.
            //    There is room for tables: `tables` is not empty.
            unsafe { self.add_table(inputs, outputs) }
        };
        let slot = usize::from(self.prepared & (self.size - 1));
        self.write(self.available_at + RING_HEADER + 2 * slot, head);
        self.prepared = self.prepared.wrapping_add(1);
        Some(head)
    }

    /// # Safety
    /// As for [`Self::add`]; there is a free descriptor for each buffer.
    #[inline]
    unsafe fn add_chain(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> u16 {
        let head = self.free;
        let count = (inputs.len() + outputs.len()) as u16;
        let mut left = count;
        for input in inputs {
            left -= 1;
            // SAFETY: 1. The buffer stays valid until the token is taken (the caller's promise). 2.
            //    There is a free descriptor for it (the caller's promise).
            unsafe { self.chain_one(NonNull::from(*input), 0, left) };
        }
        for output in outputs {
            left -= 1;
            // SAFETY: 1. The buffer stays valid until the token is taken (the caller's promise). 2.
            //    There is a free descriptor for it (the caller's promise).
            unsafe { self.chain_one(NonNull::from(&mut **output), WRITE, left) };
        }
        self.links[usize::from(head)].chain = count;
        self.free_len -= count;
        head
    }

    /// Writes the descriptor of one buffer, before `left` others of its chain.
    ///
    /// # Safety
    /// As for [`Self::add`]; there is a free descriptor.
    #[inline]
    unsafe fn chain_one(&mut self, buffer: NonNull<[u8]>, write: u16, left: u16) {
        let index = usize::from(self.free);
        let next = self.links[index].next;
        let descriptor = Descriptor {
            // SAFETY: 1. The buffer is valid (the caller's promise).
            address: unsafe { share(buffer, write) },
            len: buffer.len() as u32,
            flags: write | if left == 0 { 0 } else { NEXT },
            next,
        };
        self.write(index * size_of::<Descriptor>(), descriptor);
        self.free = next;
    }

    /// # Safety
    /// As for [`Self::add`]; there is a free descriptor, and room for tables.
    unsafe fn add_table(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> u16 {
        let inputs = inputs.iter().map(|it| (NonNull::from(*it), 0));
        let outputs = outputs
            .iter_mut()
            .map(|it| (NonNull::from(&mut **it), WRITE));
        let buffers = inputs.chain(outputs);
        let head = self.free;
        let mut table = core::mem::take(&mut self.tables[usize::from(head)]);
        table.clear();
        for (buffer, write) in buffers {
            table.push(Descriptor {
                // SAFETY: 1. The buffer is valid (the caller's promise).
                address: unsafe { share(buffer, write) },
                len: buffer.len() as u32,
                flags: write | NEXT,
                next: table.len() as u16 + 1,
            });
        }
        if let Some(last) = table.last_mut() {
            last.flags &= !NEXT;
        }
        let bytes = size_of_val(&*table);
        let start = NonNull::from(&*table).cast::<u8>();
        let whole = NonNull::slice_from_raw_parts(start, bytes);
        let descriptor = Descriptor {
            // SAFETY: 1. The table is initialised and lies on the heap. 2. It stays there until the
            //    request is taken: `tables` keeps it, moving a `Vec` moves no element, and a token
            //    comes back into use only by `take`.
            address: unsafe { share(whole, 0) },
            len: bytes as u32,
            flags: INDIRECT,
            next: 0,
        };
        self.tables[usize::from(head)] = table;
        self.write(usize::from(head) * size_of::<Descriptor>(), descriptor);
        let link = &mut self.links[usize::from(head)];
        self.free = link.next;
        link.chain = 1;
        self.free_len -= 1;
        head
    }

    /// Whether the device wants to know of what was added since this was last asked.
    #[inline]
    pub fn should_notify(&mut self) -> bool {
        // What was published is seen before this looks, or a device that goes to sleep may be
        // seen awake.
        self.barrier();
        let asked = core::mem::replace(&mut self.asked, self.published);
        if !self.event_idx {
            return self.word(self.used_at).load(Ordering::Acquire) & NO_NOTIFY == 0;
        }
        let event = self.used_at + RING_HEADER + USED_ENTRY * self.size();
        let event = self.word(event).load(Ordering::Acquire);
        // `vring_need_event` (virtio 1.2, 2.7.10.2).
        let since = self.published.wrapping_sub(event).wrapping_sub(1);
        since < self.published.wrapping_sub(asked)
    }

    /// Whether the device interrupts for completions; with `EVENT_IDX` this says nothing.
    pub fn set_interrupts(&mut self, wanted: bool) {
        if !self.event_idx {
            let flags = if wanted { 0 } else { NO_INTERRUPT };
            self.word(self.available_at).store(flags, Ordering::Release);
        }
    }

    /// Orders what was written before it and what is read behind it, as the device sees both. A
    /// completion that a look behind it does not show comes with an interrupt, if interrupts are on
    /// (virtio 1.2, 2.7.7.2).
    #[inline]
    pub fn barrier(&self) {
        self.barrier.pass();
    }

    /// Whether there is a completion.
    #[inline]
    pub fn can_take(&self) -> bool {
        self.taken != self.word(self.used_at + 2).load(Ordering::Acquire)
    }

    /// The token that the next completion claims to be of, if there is one.
    #[inline]
    pub fn peek(&self) -> Option<u16> {
        if !self.can_take() {
            return None;
        }
        Some(self.used_word(0) as u16)
    }

    /// Takes the next completion, which is to be of `token`: bytes that the device says to
    /// have written. `None`, and nothing is taken, if it is of another or of none in flight.
    #[inline]
    pub fn take(&mut self, token: u16) -> Option<u32> {
        if !self.can_take() || self.used_word(0) != token.into() {
            return None;
        }
        let chain = self.links.get(usize::from(token))?.chain;
        let mut tail = usize::from(token);
        for _ in 1..chain {
            tail = usize::from(self.links[tail].next);
        }
        if chain == 0 {
            return None;
        }
        let len = self.used_word(4);
        self.links[tail].next = self.free;
        self.links[usize::from(token)].chain = 0;
        self.free = token;
        self.free_len += chain;
        self.taken = self.taken.wrapping_add(1);
        if self.event_idx {
            let event = self.available_at + RING_HEADER + 2 * self.size();
            self.word(event).store(self.taken, Ordering::Release);
        }
        Some(len)
    }

    /// A word of the next completion.
    #[inline]
    fn used_word(&self, offset: usize) -> u32 {
        let slot = usize::from(self.taken & (self.size - 1));
        let at = self.used_at + RING_HEADER + USED_ENTRY * slot + offset;
        let word = self.memory.as_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: 1. The slot is below `size` by the mask, and the used ring has `size` entries of
        //    eight bytes within the memory (`new`). 2. The ring begins at a multiple of the page's
        //    size, so the word is aligned. 3. The device may write meanwhile: the read is volatile,
        //    and every value is valid.
        unsafe { word.read_volatile() }
    }

    /// Writes to the table or the available ring.
    #[inline]
    fn write<T>(&mut self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.pages * PAGE_SIZE);
        let place = self.memory.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: 1. The callers give offsets of a descriptor or a slot below `size`, in the table
        //    or the available ring: within the memory, aligned for `T`. 2. No reference to there
        //    exists: `word` gives references to the rings' indices and flags only.
        unsafe { place.write_volatile(value) };
    }

    /// A word that driver and device share.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU16 {
        let word = self
            .memory
            .as_ptr()
            .wrapping_add(offset)
            .cast::<AtomicU16>();
        // SAFETY: 1. The callers give offsets of the rings' flags, indices and events: within the
        //    memory, at a multiple of 2. 2. The memory lives as long as the queue, which the
        //    reference borrows. 3. The device may write meanwhile: both sides use these words as
        //    atomics.
        unsafe { &*word }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: 1. The pages are those that `new` took from `dma_alloc`, with their count. 2. The
        //    device does not use them any more: drivers declare their transport before their
        //    queues, so that it is dropped first, which resets the device; on errors of set-up the
        //    device does not run yet.
        unsafe { Dma::dma_dealloc(self.physical, self.memory, self.pages) };
    }
}

/// The address at which the device reaches a buffer.
///
/// # Safety
/// The buffer is valid.
#[inline]
unsafe fn share(buffer: NonNull<[u8]>, write: u16) -> PhysAddr {
    let direction = match write {
        0 => BufferDirection::DriverToDevice,
        _ => BufferDirection::DeviceToDriver,
    };
    // SAFETY: 1. The buffer is valid (the caller's promise).
    unsafe { Dma::share(buffer, direction) }
}

#[cfg(test)]
mod tests;
