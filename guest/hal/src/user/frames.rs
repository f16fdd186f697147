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
    used: [u64; BLOCK / 64],
    free: usize,
}

impl Block {
    fn is_used(&self, page: usize) -> bool {
        self.used[page / 64] & 1 << (page % 64) != 0
    }

    /// The first run of free pages, of `most` at most.
    fn take(&mut self, most: usize) -> Option<(u64, usize)> {
        let start = (0..self.pages).find(|&page| !self.is_used(page))?;
        let count = (start..self.pages)
            .take_while(|&page| !self.is_used(page))
            .take(most)
            .count();
        for page in start..start + count {
            self.used[page / 64] |= 1 << (page % 64);
        }
        self.free -= count;
        Some((self.base + start as u64 * PAGE, count))
    }

    fn contains(&self, frame: u64) -> bool {
        (self.base..self.base + self.pages as u64 * PAGE).contains(&frame)
    }
}

static BLOCKS: SpinLock<Vec<Block>> = SpinLock::new(Vec::new());

/// `most` contiguous frames or fewer, with whatever is in them; `None` without memory.
pub(super) fn take(most: usize) -> Option<(u64, usize)> {
    let mut blocks = BLOCKS.lock();
    let roomy = blocks.iter_mut().find(|block| block.free > 0);
    if let Some(run) = roomy.and_then(|block| block.take(most)) {
        return Some(run);
    }
    let (base, pages) = [BLOCK, SMALL]
        .into_iter()
        .find_map(|pages| Some((heap::raw_pages(pages)?, pages)))?;
    let mut block = Block {
        base: base.addr().get() as u64,
        pages,
        used: [0; BLOCK / 64],
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
    if block.is_used(page) {
        block.used[page / 64] &= !(1 << (page % 64));
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
    // SAFETY: 1. `take` got the block from `raw_pages` with this count. 2. No page of it is
    //    in use: each was given back.
    unsafe { heap::free_pages(base, pages) };
}
