//! Items by key: linear hashing (Litwin, 1980). The table grows by one bucket
//! for an insertion, never by a pause in which everything is hashed again, and
//! in segments, so that no large allocation is ever needed.

use alloc::vec;
use alloc::vec::Vec;

use super::item::NIL;
use super::slots::Slots;

/// Buckets of a segment, as a shift.
const SEGMENT_SHIFT: u32 = 10;
const SEGMENT: u32 = 1 << SEGMENT_SHIFT;

/// Buckets of item numbers, each a chain through the items.
#[derive(Debug)]
pub(super) struct Table {
    segments: Vec<Vec<u32>>,
    /// Buckets of the last full round less one, a mask for hashes.
    mask: u32,
    /// Buckets that this round has split already.
    split: u32,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            segments: vec![vec![NIL; SEGMENT as usize]],
            mask: SEGMENT - 1,
            split: 0,
        }
    }

    /// The item of that key and its hash, or [`NIL`].
    pub(super) fn find(&self, slots: &Slots, hash: u32, key: &[u8]) -> u32 {
        let mut at = *self.bucket(self.place(hash));
        while at != NIL {
            let item = &slots[at];
            if item.hash == hash && item.has_key(key) {
                break;
            }
            at = item.chain;
        }
        at
    }

    /// Enters an item whose hash is set.
    pub(super) fn insert(&mut self, slots: &mut Slots, at: u32) {
        if slots.len() > self.mask + self.split {
            self.grow(slots);
        }
        self.push(slots, at);
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, slots: &mut Slots, gone: u32) {
        let place = self.place(slots[gone].hash);
        let next = slots[gone].chain;
        let mut at = *self.bucket(place);
        if at == gone {
            *self.bucket_mut(place) = next;
            return;
        }
        while at != NIL {
            let chain = &mut slots[at].chain;
            if *chain == gone {
                *chain = next;
                return;
            }
            at = *chain;
        }
    }

    fn push(&mut self, slots: &mut Slots, at: u32) {
        let place = self.place(slots[at].hash);
        let bucket = self.bucket_mut(place);
        slots[at].chain = *bucket;
        *bucket = at;
    }

    /// Splits one bucket. Without memory for it, chains become longer instead.
    fn grow(&mut self, slots: &mut Slots) {
        let added = self.mask + 1 + self.split;
        if added.is_multiple_of(SEGMENT) && self.add_segment().is_none() {
            return;
        }
        let mut at = core::mem::replace(self.bucket_mut(self.split), NIL);
        self.split += 1;
        if self.split > self.mask {
            self.mask = 2 * self.mask + 1;
            self.split = 0;
        }
        while at != NIL {
            let next = slots[at].chain;
            self.push(slots, at);
            at = next;
        }
    }

    fn add_segment(&mut self) -> Option<()> {
        let mut segment = Vec::new();
        segment.try_reserve_exact(SEGMENT as usize).ok()?;
        self.segments.try_reserve(1).ok()?;
        segment.resize(SEGMENT as usize, NIL);
        self.segments.push(segment);
        Some(())
    }

    fn place(&self, hash: u32) -> u32 {
        let place = hash & self.mask;
        if place < self.split {
            hash & (2 * self.mask + 1)
        } else {
            place
        }
    }

    fn bucket(&self, place: u32) -> &u32 {
        &self.segments[(place >> SEGMENT_SHIFT) as usize][(place % SEGMENT) as usize]
    }

    fn bucket_mut(&mut self, place: u32) -> &mut u32 {
        &mut self.segments[(place >> SEGMENT_SHIFT) as usize][(place % SEGMENT) as usize]
    }
}
