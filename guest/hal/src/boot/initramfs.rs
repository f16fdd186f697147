//! The initramfs: lent for good, or given away once ([`Place`]). What is given away becomes heap
//! with its last byte in use ([`Initramfs`]).

#![allow(unsafe_code)]

use core::ops::{Deref, Range};

use super::claim::Claim;
use crate::memory::heap;

/// Where the initramfs is, and what became of it.
pub(super) struct Place {
    /// Empty for none.
    range: Range<u64>,
    claim: Claim,
}

impl Place {
    /// # Safety
    /// `range` must be empty or mapped RAM that is outside of the heap, that nothing writes to,
    /// and to which no other value of this type and no reference leads.
    pub(super) const unsafe fn new(range: Range<u64>) -> Self {
        Self {
            range,
            claim: Claim::new(),
        }
    }

    /// The bytes for good; `None` if there are none, or if they were taken.
    pub(super) fn lend(&self) -> Option<&'static [u8]> {
        let is_lent = !self.range.is_empty() && self.claim.lend();
        // SAFETY: 1. The range is mapped RAM that nothing writes to (`new`). 2. What is lent is never
        //    taken (`Claim`), so that it stays so.
        is_lent.then(|| unsafe { bytes(&self.range) })
    }

    /// The bytes with their memory; `None` if there are none, or if they were lent or taken.
    pub(super) fn take(&self) -> Option<Initramfs> {
        let is_taken = !self.range.is_empty() && self.claim.take();
        is_taken.then(|| Initramfs(self.range.clone()))
    }
}

/// The initramfs, which this value alone leads to. Dropped, it gives its memory to the heap.
pub struct Initramfs(Range<u64>);

impl Deref for Initramfs {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: 1. The range is mapped RAM that nothing writes to (`Place::new`). 2. It becomes heap
        //    when this value is dropped, which the reference does not outlive.
        unsafe { bytes(&self.0) }
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        heap::add_used(self.0.clone());
    }
}

/// # Safety
/// `range` must be mapped RAM that nothing writes to for as long as the reference lives.
unsafe fn bytes<'a>(range: &Range<u64>) -> &'a [u8] {
    let length = (range.end - range.start) as usize;
    // SAFETY: 1. The bytes are mapped, initialized by the loader and not written to, by this
    //    function's contract. 2. Any address is aligned for bytes.
    unsafe { core::slice::from_raw_parts(range.start as *const u8, length) }
}
