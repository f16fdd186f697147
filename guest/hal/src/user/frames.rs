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

static FRAMES: SpinLock<Frames> = SpinLock::new(Frames {
    blocks: Vec::new(),
    fixed_end: 0,
});

struct Frames {
    blocks: Vec<Block>,
    /// Where what is mapped at its own address in low memory ends; blocks of low memory lie behind.
    /// It does not fall again.
    fixed_end: u64,
}

/// Bytes of a block of low memory.
const LOW_BLOCK: u64 = BLOCK as u64 * PAGE;

impl Frames {
    fn low_blocks(&self) -> impl Iterator<Item = &Block> {
        let blocks = self.blocks.iter();
        blocks.filter(|block| block.source == Source::Low)
    }

    /// Where blocks of low memory begin; its end without any.
    fn low_start(&self) -> u64 {
        let starts = self.low_blocks().map(|block| block.base);
        starts.min().unwrap_or_else(|| low().end)
    }

    /// The base of another block of low memory, in front of those that there are.
    fn next_low(&self) -> Option<u64> {
        let base = self.low_start().checked_sub(LOW_BLOCK)? & !(LOW_BLOCK - 1);
        (base >= self.fixed_end.max(low().start)).then_some(base)
    }

    /// Takes back blocks of low memory from its begin as far as they are free, so that another
    /// program may have fixed addresses there.
    fn take_back_low(&mut self) {
        let is_free = |block: &Block, start| block.base == start && block.free == block.pages;
        loop {
            let start = self.low_start();
            let first = self.blocks.iter().position(|block| is_free(block, start));
            let Some(first) = first else { return };
            self.blocks.swap_remove(first);
        }
    }
}

/// Keeps low memory up to `end` for what is mapped at its own address; `false` if some of it is
/// used otherwise.
pub(super) fn keep_fixed(end: u64) -> bool {
    let mut frames = FRAMES.lock();
    let is_kept = end <= frames.low_start();
    if is_kept {
        frames.fixed_end = frames.fixed_end.max(end);
    }
    is_kept
}

/// Bytes of memory that programs may have: the heap and low memory.
pub fn memory_total() -> u64 {
    let low = low();
    heap::stats().total + (low.end - low.start)
}

/// The same, and what is used of it.
pub fn memory_stats() -> HeapStats {
    let frames = FRAMES.lock();
    let in_blocks = frames.low_blocks().map(|block| block.pages - block.free);
    let low_used = in_blocks.sum::<usize>() as u64 * PAGE;
    let fixed = frames.fixed_end.saturating_sub(low().start);
    HeapStats {
        total: memory_total(),
        used: heap::stats().used + low_used + fixed,
    }
}

/// `most` frames or fewer; `None` without memory.
pub(super) fn take(most: usize) -> Option<Run> {
    let mut frames = FRAMES.lock();
    let roomy = frames.blocks.iter_mut().find(|block| block.free > 0);
    if let Some(run) = roomy.and_then(|block| block.take(most)) {
        return Some(run);
    }
    frames.blocks.try_reserve(1).ok()?;
    let mut block = new_block(&frames)?;
    let run = block.take(most);
    frames.blocks.push(block);
    run
}

/// A block beside the others.
fn new_block(others: &Frames) -> Option<Block> {
    let large = || {
        let (base, is_new) = large_frames::take(spare_large_pages())?;
        Some((base, is_new, BLOCK, Source::Large))
    };
    let low = || Some((others.next_low()?, false, BLOCK, Source::Low));
    let small = || {
        [BLOCK, SMALL].into_iter().find_map(|pages| {
            let (base, is_new) = heap::new_pages(pages)?;
            Some((base.addr().get() as u64, is_new, pages, Source::Heap))
        })
    };
    let found = if others.blocks.len() < MANY {
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
    let blocks = &mut FRAMES.lock().blocks;
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
    let mut frames = FRAMES.lock();
    let blocks = &mut frames.blocks;
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
            frames.take_back_low();
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
