//! The heap: the talc allocator behind a lock that interrupt handlers may take
//! too. It gets all free RAM at the start; memory is touched only when used.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

use super::layout::BOOT_MAPPED;
use crate::lock::IrqLock;

/// Size and use of the heap, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// Given to the heap at start.
    pub total: u64,
    /// Allocated now, without the allocator's own overhead.
    pub used: u64,
}

/// The heap's state now.
pub fn stats() -> HeapStats {
    HeapStats {
        total: TOTAL.load(Ordering::Relaxed),
        used: USED.load(Ordering::Relaxed),
    }
}

static TOTAL: AtomicU64 = AtomicU64::new(0);
/// The end of the highest block that was ever given out. Above it memory is as the machine started, zero
/// where the monitor promises that, but for words of the allocator's: up to [`NODE`] bytes where free memory
/// begins, behind a block, and one where it ends. Changed under the heap's lock.
static TOUCHED: AtomicU64 = AtomicU64::new(u64::MAX);
/// Most bytes that the allocator writes at the begin of free memory (talc, `base/chunk.rs`), generously.
const NODE: u64 = 256;
static USED: AtomicU64 = AtomicU64::new(0);

struct Heap {
    talc: IrqLock<Owned>,
}

/// Talc keeps raw pointers into the memory that it owns.
struct Owned(Talc<Manual, DefaultBinning>);

// SAFETY: 1. Talc's pointers lead into memory that `add` gave to it and to nothing else. 2. Each
//    use of it goes through `Heap::talc`, a lock, whichever CPU has it.
unsafe impl Send for Owned {}

#[global_allocator]
static HEAP: Heap = Heap {
    talc: IrqLock::new(Owned(Talc::new(Manual))),
};

/// RAM that is added is zero. Before the first is.
pub(crate) fn trust_zeros() {
    TOUCHED.store(0, Ordering::Relaxed);
}

/// Gives the heap RAM that has been used.
pub(crate) fn add_used(range: Range<u64>) {
    TOUCHED.fetch_max(range.end, Ordering::Relaxed);
    add(range);
}

/// Gives mapped and unused RAM to the heap.
pub(crate) fn add(range: Range<u64>) {
    let length = range.end - range.start;
    let mut talc = HEAP.talc.lock();
    // SAFETY: 1. The range is mapped and writable: `memory::init` maps what lies beyond the first
    //    GiB before it calls this, and the initramfs. 2. Nothing else uses it: `memory::init` removes
    //    the image, the initramfs, the first MiB and low memory of programs from the map; an
    //    initramfs comes when its only owner is dropped (`boot::Initramfs`). 3. It is claimed once:
    //    the map's regions do not overlap (`boot::regions`), and an initramfs has one owner.
    if unsafe { talc.0.claim(range.start as *mut u8, length as usize) }.is_some() {
        TOTAL.fetch_add(length, Ordering::Relaxed);
    }
}

/// `count` zeroed pages, or `None` without memory.
pub(crate) fn pages(count: usize) -> Option<NonNull<u8>> {
    let pages = raw_pages(count)?;
    // SAFETY: 1. `raw_pages` has just allocated `count` pages: they are mapped, writable and this
    //    function's. 2. A page's length is a multiple of 8.
    unsafe { clear(pages, count * 4096) };
    Some(pages)
}

/// `count` pages with whatever is in them, or `None` without memory.
pub(crate) fn raw_pages(count: usize) -> Option<NonNull<u8>> {
    // SAFETY: 1. The layout is not empty: `page_layout` makes it 4096 bytes at least.
    NonNull::new(unsafe { HEAP.alloc(page_layout(count)?) })
}

/// As [`raw_pages`]; and whether they are zero since no one has used them.
pub(crate) fn new_pages(count: usize) -> Option<(NonNull<u8>, bool)> {
    new_block(page_layout(count)?, |_| ())
}

/// As [`new_pages`], in pages of 2 MiB at multiples of as much. `before_use` gets the first before it is
/// written to.
pub(crate) fn new_large_pages(
    count: usize,
    before_use: impl FnOnce(u64),
) -> Option<(NonNull<u8>, bool)> {
    new_block(large_layout(count)?, before_use)
}

/// Gives large pages back.
///
/// # Safety
/// `pages` must come from [`new_large_pages`] with the same count, and be unused.
pub(crate) unsafe fn free_large_pages(pages: NonNull<u8>, count: usize) {
    if let Some(layout) = large_layout(count) {
        // SAFETY: 1. The block and its count are those of an allocation by `new_large_pages`, whose
        //    layout `large_layout` makes again (the caller's promise). 2. Nothing uses it any more
        //    (the caller's promise).
        unsafe { HEAP.dealloc(pages.as_ptr(), layout) };
    }
}

fn large_layout(count: usize) -> Option<Layout> {
    let bytes = count.checked_mul(2 << 20)?.max(2 << 20);
    Layout::from_size_align(bytes, 2 << 20).ok()
}

/// A block of a page or more, and whether it is zero since no one has used it.
fn new_block(layout: Layout, before_use: impl FnOnce(u64)) -> Option<(NonNull<u8>, bool)> {
    let mut talc = HEAP.talc.lock();
    let touched = TOUCHED.load(Ordering::Relaxed);
    // SAFETY: 1. The layout is not empty: it has a page at least.
    let block = unsafe { talc.0.allocate(layout) }?;
    note(block.as_ptr(), layout.size());
    drop(talc);
    count_used(layout.size() as u64);
    let start = block.addr().get() as u64;
    let is_new = start >= touched;
    if is_new {
        before_use(start);
        // Free memory may have begun here.
        // SAFETY: 1. The block has a page at least, writable and not yet known to others. 2. NODE is a
        //    multiple of 8 and less than a page.
        unsafe { clear(block, NODE as usize) };
    }
    Some((block, is_new))
}

/// Notes that a block was given out, or grew. The caller holds the heap's lock.
fn note(block: *mut u8, bytes: usize) {
    let end = (block.addr() + bytes) as u64;
    if TOUCHED.load(Ordering::Relaxed) < end {
        TOUCHED.store(end, Ordering::Relaxed);
    }
}

/// `count` times 2 MiB, one or more, at a multiple of 2 MiB in the first GiB, with whatever is in them.
pub(crate) fn large_pages(count: usize) -> Option<NonNull<u8>> {
    let layout = large_layout(count)?;
    // SAFETY: 1. The layout is not empty: it has 2 MiB at least.
    let block = NonNull::new(unsafe { HEAP.alloc(layout) })?;
    let is_low = (block.addr().get() + layout.size()) as u64 <= BOOT_MAPPED;
    if !is_low {
        // SAFETY: 1. The block is this layout's, just allocated, and no one knows it.
        unsafe { HEAP.dealloc(block.as_ptr(), layout) };
    }
    is_low.then_some(block)
}

/// Gives pages back.
///
/// # Safety
/// `pages` must come from [`pages`], [`raw_pages`] or [`new_pages`] with the same count, and be unused.
pub(crate) unsafe fn free_pages(pages: NonNull<u8>, count: usize) {
    if let Some(layout) = page_layout(count) {
        // SAFETY: 1. The block and its count are those of an allocation by `raw_pages`, whose
        //    layout `page_layout` makes again (the caller's promise). 2. Nothing uses it any more
        //    (the caller's promise).
        unsafe { HEAP.dealloc(pages.as_ptr(), layout) };
    }
}

fn page_layout(count: usize) -> Option<Layout> {
    Layout::from_size_align(count.checked_mul(4096)?.max(4096), 4096).ok()
}

/// Clears `count` mapped pages at `address`.
///
/// # Safety
/// They must be writable and belong to the caller.
pub(crate) unsafe fn clear_pages(address: u64, count: usize) {
    if let Some(start) = NonNull::new(address as *mut u8) {
        // SAFETY: 1. The pages are writable and the caller's (its promise). 2. A page's length is a
        //    multiple of 8.
        unsafe { clear(start, count * 4096) };
    }
}

/// Clears memory with one instruction: where ring 0 is emulated, each iteration
/// of a loop costs a microsecond.
///
/// # Safety
/// `length` bytes at `start` must be writable and belong to the caller.
unsafe fn clear(start: NonNull<u8>, length: usize) {
    // SAFETY: 1. `length` bytes are writable and the caller's (its promise). 2. The instruction
    //    writes `length / 8` words upwards: the direction flag is clear by the calling convention.
    //    3. It changes RDI and RCX, which are outputs, and no flag.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rdi") start.as_ptr() => _,
            inout("rcx") length / 8 => _,
            in("rax") 0,
            options(nostack, preserves_flags),
        );
    }
}

// SAFETY: 1. Talc gives blocks that fit their layouts, and no two that overlap. 2. `talc` is an
//    `IrqLock`, so that one caller at a time has it, interrupt handlers included. 3. No method
//    panics: talc returns `None` without memory.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut talc = self.talc.lock();
        // SAFETY: 1. The layout is not empty: the caller's promise (`GlobalAlloc::alloc`).
        let block = unsafe { talc.0.allocate(layout) };
        match block {
            Some(block) => {
                note(block.as_ptr(), layout.size());
                drop(talc);
                count_used(layout.size() as u64);
                block.as_ptr()
            }
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_used((layout.size() as u64).wrapping_neg());
        // SAFETY: 1. The block comes from this allocator with this layout: the caller's promise
        //    (`GlobalAlloc::dealloc`).
        unsafe { self.talc.lock().0.deallocate(block, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The layout is not empty: the caller's promise (`GlobalAlloc::alloc_zeroed`).
        let block = unsafe { self.alloc(layout) };
        if let Some(start) = NonNull::new(block) {
            // SAFETY: 1. `alloc` has just given `layout.size()` writable bytes. 2. No other code
            //    knows them yet.
            unsafe { core::ptr::write_bytes(start.as_ptr(), 0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let mut talc = self.talc.lock();
        // SAFETY: 1. The block comes from this allocator with this layout, and `size` is not zero:
        //    the caller's promise (`GlobalAlloc::realloc`).
        if unsafe { talc.0.try_realloc_in_place(block, layout, size) } {
            note(block, size);
            drop(talc);
            count_used((size as u64).wrapping_sub(layout.size() as u64));
            return block;
        }
        drop(talc);
        // SAFETY: 1. The alignment is that of a valid layout. 2. `size`, rounded up to it, does not
        //    exceed `isize::MAX`: the caller's promise (`GlobalAlloc::realloc`).
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: 1. `size` is not zero: the caller's promise (`GlobalAlloc::realloc`).
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: 1. The old block has `layout.size()` bytes, the new one `size`: the shorter
            //    length fits both. 2. They do not overlap: the old one is still allocated.
            unsafe { core::ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
            // SAFETY: 1. The block comes from this allocator with this layout: the caller's promise
            //    (`GlobalAlloc::realloc`). 2. Its contents have been copied, and the caller gets
            //    the new block.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

/// Statistics only, but a plain addition would lose counts between cores.
fn count_used(bytes: u64) {
    USED.fetch_add(bytes, Ordering::Relaxed);
}
