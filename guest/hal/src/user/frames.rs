//! Page frames for programs: blocks from the heap, handed out by the page. A page from
//! the heap itself would cost a second one, for the allocator's bookkeeping.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::large_frames;
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
    /// Whether it is a large page's ([`large_frames`]).
    is_large: bool,
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

/// Blocks from which on further ones are large pages, which the host backs by huge pages if it can:
/// of a program that uses 8 MiB it may give 2 MiB more than the program uses.
const MANY: usize = 4;

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
    blocks.try_reserve(1).ok()?;
    let mut block = new_block(blocks.len())?;
    let run = block.take(most);
    blocks.push(block);
    run
}

/// A block beside this many others.
fn new_block(others: usize) -> Option<Block> {
    let large = || {
        let (base, is_new) = large_frames::take(spare_large_pages())?;
        Some((base, is_new, BLOCK, true))
    };
    let small = || {
        [BLOCK, SMALL].into_iter().find_map(|pages| {
            let (base, is_new) = heap::new_pages(pages)?;
            Some((base.addr().get() as u64, is_new, pages, false))
        })
    };
    let found = if others < MANY { None } else { large() };
    let (base, is_new, pages, is_large) = found.or_else(small)?;
    Some(Block {
        base,
        pages,
        used: Pages::NONE,
        new: if is_new { Pages::ALL } else { Pages::NONE },
        free: pages,
        is_large,
    })
}

/// How many large pages may be taken from the heap, so that a quarter of the machine's memory is left.
fn spare_large_pages() -> u64 {
    let heap::HeapStats { total, used } = heap::stats();
    (total - total / 4).saturating_sub(used) / (BLOCK as u64 * PAGE)
}

/// The frames of 2 MiB at a multiple of as much; `None` if less than a quarter of the machine's memory
/// would be left. They are given back one by one.
pub(super) fn take_large() -> Option<Run> {
    let mut blocks = BLOCKS.lock();
    blocks.try_reserve(1).ok()?;
    let (frame, is_zero) = large_frames::take(spare_large_pages())?;
    blocks.push(Block {
        base: frame,
        pages: BLOCK,
        used: Pages::ALL,
        new: Pages::NONE,
        free: 0,
        is_large: true,
    });
    Some(Run {
        frame,
        count: BLOCK,
        is_zero,
    })
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
        if block.is_large {
            large_frames::give(block.base);
            return;
        }
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
