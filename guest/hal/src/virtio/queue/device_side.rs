//! [`DeviceSide`].

use core::ptr::NonNull;

use virtio_drivers::PAGE_SIZE;

use super::{Queue, RING_HEADER, USED_ENTRY};

/// A queue as its device has it, for tests that play the device on the host. It is used for as
/// long as the queue lives.
#[derive(Debug)]
pub struct DeviceSide {
    memory: NonNull<u8>,
    bytes: usize,
    size: u16,
    available_at: usize,
    used_at: usize,
    /// Requests that were taken, and those that were completed.
    seen: u16,
    used: u16,
}

// SAFETY: 1. The memory is that of a queue, which lives (the type's contract) and is `Send` itself. 2.
//    Both sides use it as atomics or by volatile accesses, since a device is on its own too.
unsafe impl Send for DeviceSide {}

impl DeviceSide {
    pub(super) fn of(queue: &Queue) -> Self {
        Self {
            memory: queue.memory,
            bytes: queue.pages * PAGE_SIZE,
            size: queue.size,
            available_at: queue.available_at,
            used_at: queue.used_at,
            seen: 0,
            used: 0,
        }
    }

    /// Requests that were published since the queue was set up, modulo 2^16.
    pub fn published(&self) -> u16 {
        self.at(self.available_at + 2)
    }

    /// Takes the next request: its token.
    pub fn take_next(&mut self) -> Option<u16> {
        if self.published() == self.seen {
            return None;
        }
        let slot = usize::from(self.seen % self.size);
        self.seen = self.seen.wrapping_add(1);
        Some(self.at(self.available_at + RING_HEADER + 2 * slot))
    }

    /// Completes the request of `token`, or of what a hostile device makes up, with `len` bytes
    /// written.
    pub fn complete(&mut self, token: u32, len: u32) {
        let slot = usize::from(self.used % self.size);
        let entry = self.used_at + RING_HEADER + USED_ENTRY * slot;
        self.put(entry, [token, len]);
        self.used = self.used.wrapping_add(1);
        self.put(self.used_at + 2, self.used);
    }

    /// Takes the last completion back, which a device never does.
    pub fn take_back(&mut self) {
        self.used = self.used.wrapping_sub(1);
    }

    /// Asks for a notification of the request with that index (`VIRTIO_F_EVENT_IDX`).
    pub fn ask_at(&self, index: u16) {
        let event = self.used_at + RING_HEADER + USED_ENTRY * usize::from(self.size);
        self.put(event, index);
    }

    /// The completion that is to interrupt, by its index (`VIRTIO_F_EVENT_IDX`).
    pub fn interrupts_at(&self) -> u16 {
        self.at(self.available_at + RING_HEADER + 2 * usize::from(self.size))
    }

    /// Sets the flags of the used ring.
    pub fn set_flags(&self, flags: u16) {
        self.put(self.used_at, flags);
    }

    pub(super) fn at<T: Copy>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= self.bytes);
        let place = self.memory.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: 1. Within the queue's memory (asserted above). 2. The queue lives (the type's
        //    contract). 3. Any bytes are a `T` of the callers. 4. Both sides use this memory as
        //    atomics or by volatile accesses.
        unsafe { place.read_volatile() }
    }

    fn put<T>(&self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= self.bytes);
        let place = self.memory.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: 1. Within the queue's memory (asserted above). 2. The queue lives
        //    (the type's contract). 3. As for `at`.
        unsafe { place.write_volatile(value) };
    }
}
