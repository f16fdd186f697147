//! Page frames for programs: blocks from the heap, handed out by the page. A page from
//! the heap itself would cost a second one, for the allocator's bookkeeping. Where the heap is
//! short they are blocks of low memory, from its end down.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::large_frames;
use crate::lock::SpinLock;
use crate::memory::heap::{self, HeapStats};
use crate::memory::layout::low;

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
    source: Source,
}

/// Where a block is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Heap,
    /// It is a large page's ([`large_frames`]).
    Large,
    /// Low memory, which only programs reach, and the library OS at their addresses.
    Low,
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
    /// Whether they are reached only where they are mapped.
    pub(super) is_low: bool,
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
            is_low: self.source == Source::Low,
        })
    }

    fn contains(&self, frame: u64) -> bool {
        (self.base..self.base + self.pages as u64 * PAGE).contains(&frame)
    }
}

static BLOCKS: SpinLock<Vec<Block>> = SpinLock::new(Vec::new());

/// Low memory: programs that are linked at fixed addresses have it from its begin, at its own
/// addresses; blocks of frames come from its end. Used under the lock of [`BLOCKS`].
static LOW: SpinLock<Low> = SpinLock::new(Low {
    fixed_end: 0,
    blocks_start: u64::MAX,
});

struct Low {
    /// Where what is mapped at its own address ends. It does not fall again.
    fixed_end: u64,
    /// Where the blocks begin.
    blocks_start: u64,
}

/// Keeps low memory up to `end` for what is mapped at its own address; `false` if some of it is
/// used otherwise.
pub(super) fn keep_fixed(end: u64) -> bool {
    let mut memory = LOW.lock();
    let is_kept = end <= memory.blocks_start;
    if is_kept {
        memory.fixed_end = memory.fixed_end.max(end);
    }
    is_kept
}

/// Bytes of a block of low memory.
const BYTES: u64 = BLOCK as u64 * PAGE;

/// Takes back the first blocks of low memory as far as they are free, so that another program may
/// have fixed addresses there.
fn take_back_low(blocks: &mut Vec<Block>) {
    let mut memory = LOW.lock();
    let is_first = |block: &Block, start| block.base == start && block.free == block.pages;
    while let Some(index) = blocks
        .iter()
        .position(|block| is_first(block, memory.blocks_start))
    {
        blocks.swap_remove(index);
        memory.blocks_start += BYTES;
    }
}

/// The next block of low memory.
fn low_block() -> Option<u64> {
    let mut memory = LOW.lock();
    let base = memory.blocks_start.min(low().end).checked_sub(BYTES)? & !(BYTES - 1);
    if base < memory.fixed_end.max(low().start) {
        return None;
    }
    memory.blocks_start = base;
    Some(base)
}

/// Memory that programs may have, and what is used of it: the heap and low memory.
pub fn memory_stats() -> HeapStats {
    let heap = heap::stats();
    let range = low();
    let low_used = {
        let memory = LOW.lock();
        let blocks = range.end.saturating_sub(memory.blocks_start);
        blocks + memory.fixed_end.saturating_sub(range.start)
    };
    let free: usize = {
        let blocks = BLOCKS.lock();
        let low = blocks.iter().filter(|block| block.source == Source::Low);
        low.map(|block| block.free).sum()
    };
    HeapStats {
        total: heap.total + (range.end - range.start),
        used: heap.used + low_used.saturating_sub(free as u64 * PAGE),
    }
}

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
        Some((base, is_new, BLOCK, Source::Large))
    };
    let low = || Some((low_block()?, false, BLOCK, Source::Low));
    let small = || {
        [BLOCK, SMALL].into_iter().find_map(|pages| {
            let (base, is_new) = heap::new_pages(pages)?;
            Some((base.addr().get() as u64, is_new, pages, Source::Heap))
        })
    };
    let found = if others < MANY {
        small().or_else(low)
    } else {
        // The last quarter of the heap is for the library OS as long as there is other memory.
        large().or_else(low).or_else(small)
    };
    let (base, is_new, pages, source) = found?;
    Some(Block {
        base,
        pages,
        used: Pages::NONE,
        new: if is_new { Pages::ALL } else { Pages::NONE },
        free: pages,
        source,
    })
}

/// How many large pages may be taken from the heap, so that a quarter of the machine's memory is left.
fn spare_large_pages() -> u64 {
    let HeapStats { total, used } = heap::stats();
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
        source: Source::Large,
    });
    Some(Run {
        frame,
        count: BLOCK,
        is_zero,
        is_low: false,
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
        if block.source == Source::Low {
            take_back_low(&mut blocks);
            return;
        }
        let block = blocks.swap_remove(index);
        if block.source == Source::Large {
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
