//! Frames of large pages, in chunks of the heap, and blocks of frames of small pages where there are
//! many; Tare's monitor has the host back each by a huge page. One by one they would waste as much again, since a
//! word of the allocator's behind each keeps the next from its multiple of 2 MiB; and where free
//! memory begins the allocator has written, so that the host has a small page there.

use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::lock::SpinLock;
use crate::memory::heap;
use crate::ring::service;

const LARGE: u64 = 2 << 20;
/// Large pages of a chunk, at first and at most.
const FIRST: u64 = 4;
const MOST: u64 = 32;

/// Up to 64 large pages, a bit for each.
struct Chunk {
    base: u64,
    pages: u64,
    used: u64,
    /// Those that were never used and are zero.
    new: u64,
}

impl Chunk {
    /// The first that is free, and whether it is zero.
    fn take(&mut self) -> Option<(u64, bool)> {
        let page = u64::from(self.used.trailing_ones());
        if page >= self.pages {
            return None;
        }
        let is_zero = self.new & 1 << page != 0;
        self.used |= 1 << page;
        self.new &= !(1 << page);
        Some((self.base + page * LARGE, is_zero))
    }

    fn contains(&self, frame: u64) -> bool {
        (self.base..self.base + self.pages * LARGE).contains(&frame)
    }
}

static CHUNKS: SpinLock<Vec<Chunk>> = SpinLock::new(Vec::new());

/// A large page, and whether it is zero; `None` without memory, or where the heap would have to
/// give more than `most` of them.
pub(super) fn take(most: u64) -> Option<(u64, bool)> {
    let mut chunks = CHUNKS.lock();
    if let Some((frame, is_zero)) = chunks.iter_mut().find_map(Chunk::take) {
        // Else the host has given it already.
        if is_zero {
            ask(frame);
        }
        return Some((frame, is_zero));
    }
    chunks.try_reserve(1).ok()?;
    // As many as there are, so that few chunks hold many.
    let held: u64 = chunks.iter().map(|chunk| chunk.pages).sum();
    let mut pages = held.clamp(FIRST, MOST);
    while pages > 0 {
        if pages <= most
            && let Some((base, is_new)) = heap::new_large_pages(pages as usize, ask)
        {
            let mut chunk = Chunk {
                base: base.addr().get() as u64,
                pages,
                used: 0,
                new: if is_new { u64::MAX } else { 0 },
            };
            let page = chunk.take();
            chunks.push(chunk);
            return page;
        }
        pages /= 2;
    }
    None
}

/// Asks for a huge page of the host's, which is given with the first use.
fn ask(frame: u64) {
    service::call(service::ASK_FOR_HUGE_PAGE, [frame, 0, 0]);
}

/// Gives a large page back.
pub(super) fn give(frame: u64) {
    let mut chunks = CHUNKS.lock();
    let Some(index) = chunks.iter().position(|chunk| chunk.contains(frame)) else {
        return;
    };
    let chunk = &mut chunks[index];
    chunk.used &= !(1 << ((frame - chunk.base) / LARGE));
    if chunk.used == 0 {
        let chunk = chunks.swap_remove(index);
        let base = NonNull::new(core::ptr::with_exposed_provenance_mut(chunk.base as usize));
        if let Some(base) = base {
            free(base, chunk.pages);
        }
    }
}

#[allow(unsafe_code)]
fn free(base: NonNull<u8>, pages: u64) {
    // SAFETY: 1. `take` got the chunk from `new_large_pages` with this count. 2. No page of it is
    //    in use: each was given back.
    unsafe { heap::free_large_pages(base, pages as usize) };
}
