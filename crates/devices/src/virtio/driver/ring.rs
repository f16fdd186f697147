//! The driver's half of a queue.

use super::{get, put};
use crate::GuestRam;

/// Rings of queue n are in the n-th of these pages; buffers come behind.
const RINGS: u64 = 0x1_0000;
const RINGS_LEN: u64 = 0x8000;
/// First address that no ring uses.
pub(crate) const BUFFERS: u64 = 0x8_0000;
/// Bit of a descriptor: another follows.
pub(crate) const NEXT: u16 = 1;
/// Bit of a descriptor: the device writes.
pub(crate) const WRITE: u16 = 2;
/// Bit of a descriptor: it is a table.
pub(crate) const INDIRECT: u16 = 4;

/// The driver's view of one queue. Buffers are the test's own.
pub(crate) struct Ring<'m> {
    memory: &'m GuestRam,
    pub(crate) size: u16,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    next_descriptor: u16,
    pub(crate) available_index: u16,
    seen: u16,
    event_idx: bool,
}

impl<'m> Ring<'m> {
    pub(crate) fn new(memory: &'m GuestRam, queue: u16, size: u16, features: u64) -> Self {
        let base = RINGS + u64::from(queue) * RINGS_LEN;
        let ring = Self {
            memory,
            size,
            descriptors: base,
            available: base + 0x4000,
            used: base + 0x6000,
            next_descriptor: 0,
            available_index: 0,
            seen: 0,
            event_idx: features & 1 << 29 != 0,
        };
        let zeros = [0; RINGS_LEN as usize];
        ring.put(base, &zeros);
        ring
    }

    /// Offers a chain of (address, length, flags); returns its head.
    pub(crate) fn offer(&mut self, buffers: &[(u64, u32, u16)]) -> u16 {
        let head = self.next_descriptor;
        for (n, (address, len, flags)) in buffers.iter().enumerate() {
            let at = self.next_descriptor;
            self.next_descriptor = (at + 1) % self.size;
            let more = if n + 1 < buffers.len() { NEXT } else { 0 };
            self.set_descriptor(at, *address, *len, flags | more, self.next_descriptor);
        }
        self.offer_head(head);
        head
    }

    /// Makes a head available, whatever it is.
    pub(crate) fn offer_head(&mut self, head: u16) {
        let slot = u64::from(self.available_index % self.size);
        self.put(self.available + 4 + slot * 2, &head.to_le_bytes());
        self.set_available_index(self.available_index.wrapping_add(1));
    }

    pub(crate) fn set_available_index(&mut self, index: u16) {
        self.available_index = index;
        self.put(self.available + 2, &index.to_le_bytes());
    }

    pub(crate) fn set_descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        write_descriptor(
            self.memory,
            self.descriptors + u64::from(index) * 16,
            (address, len, flags, next),
        );
    }

    /// The next used entry: head and bytes written.
    pub(crate) fn take_used(&mut self) -> Option<(u32, u32)> {
        if self.used_index() == self.seen {
            return None;
        }
        let entry = self.used + 4 + u64::from(self.seen % self.size) * 8;
        self.seen = self.seen.wrapping_add(1);
        Some((self.get32(entry), self.get32(entry + 4)))
    }

    pub(crate) fn used_index(&self) -> u16 {
        self.get16(self.used + 2)
    }

    /// Asks for an interrupt when used entry `index` is written.
    pub(crate) fn set_used_event(&self, index: u16) {
        let at = self.available + 4 + u64::from(self.size) * 2;
        self.put(at, &index.to_le_bytes());
    }

    pub(crate) fn set_available_flags(&self, flags: u16) {
        self.put(self.available, &flags.to_le_bytes());
    }

    /// Whether the device wants a notification for what was made available
    /// since index `before`.
    pub(crate) fn notification_wanted(&self, before: u16) -> bool {
        if !self.event_idx {
            return self.get16(self.used) & 1 == 0;
        }
        let event = self.get16(self.used + 4 + u64::from(self.size) * 8);
        let new = self.available_index;
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(before)
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        put(self.memory, address, bytes);
    }

    fn get16(&self, address: u64) -> u16 {
        let bytes = get(self.memory, address, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    fn get32(&self, address: u64) -> u32 {
        u32::from(self.get16(address)) | u32::from(self.get16(address + 2)) << 16
    }
}

/// Writes a descriptor (address, length, flags, next) anywhere.
pub(crate) fn write_descriptor(memory: &GuestRam, at: u64, descriptor: (u64, u32, u16, u16)) {
    let (address, len, flags, next) = descriptor;
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&next.to_le_bytes());
    put(memory, at, &bytes);
}
