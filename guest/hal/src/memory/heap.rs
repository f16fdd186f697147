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

/// How much memory there is and how much is used, bytes.
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
static USED: AtomicU64 = AtomicU64::new(0);

struct Heap {
    talc: IrqLock<Owned>,
}

/// Talc keeps raw pointers into the memory that it owns.
struct Owned(Talc<Manual, DefaultBinning>);

// SAFETY: the pointers are to memory that belongs to the allocator alone.
unsafe impl Send for Owned {}

#[global_allocator]
static HEAP: Heap = Heap {
    talc: IrqLock::new(Owned(Talc::new(Manual))),
};

/// Gives mapped and unused RAM to the heap.
pub(crate) fn add(range: Range<u64>) {
    let length = range.end - range.start;
    let mut talc = HEAP.talc.lock();
    // SAFETY: the caller took the range from the memory map less everything
    // that is in use, and gives it away once.
    if unsafe { talc.0.claim(range.start as *mut u8, length as usize) }.is_some() {
        TOTAL.fetch_add(length, Ordering::Relaxed);
    }
}

/// `count` zeroed pages, or `None` without memory.
pub(crate) fn pages(count: usize) -> Option<NonNull<u8>> {
    let pages = raw_pages(count)?;
    // SAFETY: freshly allocated, that long.
    unsafe { clear(pages, count * 4096) };
    Some(pages)
}

/// `count` pages with whatever is in them, or `None` without memory.
pub(crate) fn raw_pages(count: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { HEAP.alloc(page_layout(count)?) })
}

/// 2 MiB at a multiple of 2 MiB below the first GiB, with whatever is in them.
pub(crate) fn large_page() -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(2 << 20, 2 << 20).ok()?;
    // SAFETY: the layout is not empty.
    let block = NonNull::new(unsafe { HEAP.alloc(layout) })?;
    let is_low = block.addr().get() as u64 + (2 << 20) <= BOOT_MAPPED;
    is_low.then_some(block)
}

/// Gives pages back.
///
/// # Safety
/// `pages` must come from [`pages`] with the same count, and be unused.
pub(crate) unsafe fn free_pages(pages: NonNull<u8>, count: usize) {
    if let Some(layout) = page_layout(count) {
        // SAFETY: by this function's contract.
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
        // SAFETY: by this function's contract.
        unsafe { clear(start, count * 4096) };
    }
}

/// Clears memory with one instruction: a loop would be counted by the step.
///
/// # Safety
/// `length` bytes at `start` must be writable and belong to the caller.
unsafe fn clear(start: NonNull<u8>, length: usize) {
    // SAFETY: by this function's contract; the length is a multiple of 8.
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

// SAFETY: talc hands out disjoint memory that fits the layout; the lock makes
// it one caller at a time, interrupt handlers included.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not empty.
        let block = unsafe { self.talc.lock().0.allocate(layout) };
        match block {
            Some(block) => {
                add_used(layout.size() as u64);
                block.as_ptr()
            }
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add_used((layout.size() as u64).wrapping_neg());
        // SAFETY: the caller's block and layout are those of an allocation.
        unsafe { self.talc.lock().0.deallocate(block, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not empty.
        let block = unsafe { self.alloc(layout) };
        if let Some(start) = NonNull::new(block) {
            // SAFETY: freshly allocated, that long.
            unsafe { core::ptr::write_bytes(start.as_ptr(), 0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's block and layout are those of an allocation.
        if unsafe { self.talc.lock().0.try_realloc_in_place(block, layout, size) } {
            add_used((size as u64).wrapping_sub(layout.size() as u64));
            return block;
        }
        // SAFETY: the caller gives a size that is valid for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller gives a size that is not zero.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both blocks are that long, and a new block overlaps no other.
            unsafe { core::ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
            // SAFETY: the caller's block and layout are those of an allocation.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

/// Only an account: a plain addition, not one of those that lock the bus,
/// would lose counts between cores.
fn add_used(bytes: u64) {
    USED.fetch_add(bytes, Ordering::Relaxed);
}
