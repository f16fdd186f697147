//! Page frames for programs: blocks from the heap, handed out by the page. A page from
//! the heap itself would cost a second one, for the allocator's bookkeeping.

use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::lock::SpinLock;
use crate::memory::heap;

const PAGE: u64 = 4096;
/// Pages of a block, and of a smaller one when memory is short.
const BLOCK: usize = 512;
const SMALL: usize = 16;

struct Block {
    base: u64,
    pages: usize,
    used: Pages,
    /// Those that were never used and are zero.
    new: Pages,
    free: usize,
}

/// A bit for each page.
#[derive(Clone, Copy)]
struct Pages([u64; BLOCK / 64]);

impl Pages {
    const NONE: Self = Self([0; BLOCK / 64]);
    const ALL: Self = Self([u64::MAX; BLOCK / 64]);

    fn has(&self, page: usize) -> bool {
        self.0[page / 64] & 1 << (page % 64) != 0
    }

    fn add(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    fn remove(&mut self, page: usize) {
        self.0[page / 64] &= !(1 << (page % 64));
    }
}

/// Contiguous frames.
pub(super) struct Run {
    pub(super) frame: u64,
    pub(super) count: usize,
    /// Whether they are zero; else whatever was in them is.
    pub(super) is_zero: bool,
}

impl Block {
    /// The first run of free pages, of `most` at most, all of them zero or none.
    fn take(&mut self, most: usize) -> Option<Run> {
        let start = (0..self.pages).find(|&page| !self.used.has(page))?;
        let is_zero = self.new.has(start);
        let count = (start..self.pages)
            .take_while(|&page| !self.used.has(page) && self.new.has(page) == is_zero)
            .take(most)
            .count();
        for page in start..start + count {
            self.used.add(page);
            self.new.remove(page);
        }
        self.free -= count;
        Some(Run {
            frame: self.base + start as u64 * PAGE,
            count,
            is_zero,
        })
    }

    fn contains(&self, frame: u64) -> bool {
        (self.base..self.base + self.pages as u64 * PAGE).contains(&frame)
    }
}

static BLOCKS: SpinLock<Vec<Block>> = SpinLock::new(Vec::new());

/// `most` frames or fewer; `None` without memory.
pub(super) fn take(most: usize) -> Option<Run> {
    let mut blocks = BLOCKS.lock();
    let roomy = blocks.iter_mut().find(|block| block.free > 0);
    if let Some(run) = roomy.and_then(|block| block.take(most)) {
        return Some(run);
    }
    let (base, is_new, pages) = [BLOCK, SMALL].into_iter().find_map(|pages| {
        let (base, is_new) = heap::new_pages(pages)?;
        Some((base, is_new, pages))
    })?;
    let mut block = Block {
        base: base.addr().get() as u64,
        pages,
        used: Pages::NONE,
        new: if is_new { Pages::ALL } else { Pages::NONE },
        free: pages,
    };
    let run = block.take(most);
    blocks.try_reserve(1).ok()?;
    blocks.push(block);
    run
}

/// Gives a frame back.
pub(super) fn give(frame: u64) {
    let mut blocks = BLOCKS.lock();
    let Some(index) = blocks.iter().position(|block| block.contains(frame)) else {
        return;
    };
    let block = &mut blocks[index];
    let page = ((frame - block.base) / PAGE) as usize;
    if block.used.has(page) {
        block.used.remove(page);
        block.free += 1;
    }
    if block.free == block.pages {
        let block = blocks.swap_remove(index);
        let base = NonNull::new(core::ptr::with_exposed_provenance_mut(block.base as usize));
        if let Some(base) = base {
            free(base, block.pages);
        }
    }
}

#[allow(unsafe_code)]
fn free(base: NonNull<u8>, pages: usize) {
    // SAFETY: 1. `take` got the block from `new_pages` with this count. 2. No page of it is
    //    in use: each was given back.
    unsafe { heap::free_pages(base, pages) };
}
