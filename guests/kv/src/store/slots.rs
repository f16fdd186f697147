//! Items by number: pages that are never moved, so that growing costs one page
//! and no copy, and the list from the latest to the earliest used item.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::item::{Item, NIL, NoMemory};

/// Items of a page, as a shift.
const PAGE_SHIFT: u32 = 6;
const PAGE: u32 = 1 << PAGE_SHIFT;

/// All items and free slots.
#[derive(Debug)]
pub(super) struct Slots {
    pages: Vec<Vec<Item>>,
    free: u32,
    newest: u32,
    oldest: u32,
    len: u32,
}

impl Slots {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            free: NIL,
            newest: NIL,
            oldest: NIL,
            len: 0,
        }
    }

    /// How many items there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The item that was used first, or [`NIL`].
    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Sees to it that there is a free slot.
    pub(super) fn reserve(&mut self) -> Result<(), NoMemory> {
        if self.free != NIL {
            return Ok(());
        }
        let mut page = Vec::new();
        page.try_reserve_exact(PAGE as usize)
            .map_err(|_| NoMemory)?;
        self.pages.try_reserve(1).map_err(|_| NoMemory)?;
        let first = (self.pages.len() as u32) << PAGE_SHIFT;
        page.extend((1..PAGE).map(|at| Item::free(first + at)));
        page.push(Item::free(NIL));
        self.pages.push(page);
        self.free = first;
        Ok(())
    }

    /// Takes a slot, as the latest used item. There must be one.
    pub(super) fn take(&mut self) -> u32 {
        let at = self.free;
        self.free = self[at].chain;
        self.len += 1;
        self.link(at);
        at
    }

    /// Frees an item.
    pub(super) fn release(&mut self, at: u32) {
        self.unlink(at);
        self[at] = Item::free(self.free);
        self.free = at;
        self.len -= 1;
    }

    /// Makes an item the latest used one.
    pub(super) fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    fn link(&mut self, at: u32) {
        let older = self.newest;
        let item = &mut self[at];
        (item.newer, item.older) = (NIL, older);
        match older {
            NIL => self.oldest = at,
            older => self[older].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self[at].newer, self[at].older);
        match newer {
            NIL => self.newest = older,
            newer => self[newer].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self[older].newer = newer,
        }
    }
}

impl Index<u32> for Slots {
    type Output = Item;

    fn index(&self, at: u32) -> &Item {
        &self.pages[(at >> PAGE_SHIFT) as usize][(at % PAGE) as usize]
    }
}

impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, at: u32) -> &mut Item {
        &mut self.pages[(at >> PAGE_SHIFT) as usize][(at % PAGE) as usize]
    }
}
