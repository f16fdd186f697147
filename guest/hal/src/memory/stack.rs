//! Stacks with a guard page, in a window of the address space where nothing
//! else is. A stack's pages are mapped when it is made and stay mapped: a
//! dropped stack is kept for the next one of its size, since unmapping would
//! have to stop every CPU.

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;

use super::layout::STACKS;
use super::{heap, paging};
use crate::lock::IrqLock;

const PAGE: usize = 4096;

struct Pool {
    /// First address of the window that no stack has used.
    next: u64,
    free: Vec<Stack>,
}

// An interrupt handler that wakes a thread may drop its last handle, and so recycle its stack.
static POOL: IrqLock<Pool> = IrqLock::new(Pool {
    next: STACKS.start,
    free: Vec::new(),
});

/// A stack: writable pages above one that is not mapped.
#[derive(Debug)]
pub struct Stack {
    bottom: u64,
    pages: usize,
}

impl Stack {
    /// A stack of at least `bytes`; `None` without memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let pages = bytes.div_ceil(PAGE).max(1);
        match reuse(pages) {
            Some(stack) => Some(stack),
            None => map(pages),
        }
    }

    /// First address after the stack, where it starts to grow down.
    pub fn top(&self) -> u64 {
        self.bottom + (self.pages * PAGE) as u64
    }

    /// The page below the stack that is not mapped.
    pub fn guard(&self) -> Range<u64> {
        self.bottom - PAGE as u64..self.bottom
    }

    /// Gives the stack back for another thread.
    pub(crate) fn recycle(self) {
        POOL.lock().free.push(self);
    }
}

/// Physical address of a buffer on a stack. A stack's frames are contiguous,
/// so a buffer that lies on one stack is contiguous as well.
pub(crate) fn physical(buffer: NonNull<[u8]>) -> u64 {
    let address = buffer.cast::<u8>().addr().get() as u64;
    match paging::translate(address) {
        Some(physical) => physical,
        None => panic!("a buffer at {address:#x} is not mapped"),
    }
}

fn reuse(pages: usize) -> Option<Stack> {
    let mut pool = POOL.lock();
    let index = pool.free.iter().rposition(|stack| stack.pages == pages)?;
    Some(pool.free.swap_remove(index))
}

fn map(pages: usize) -> Option<Stack> {
    let size = (pages as u64 + 1).checked_mul(PAGE as u64)?;
    let frames = heap::raw_pages(pages)?;
    let guard = {
        let mut pool = POOL.lock();
        let guard = pool.next;
        pool.next = guard.checked_add(size).filter(|end| *end <= STACKS.end)?;
        guard
    };
    let bottom = guard + PAGE as u64;
    // Without memory for tables the frames and this part of the window are lost,
    // which does not matter to an image that has no memory.
    let mapped = paging::map_pages(bottom, frames.addr().get() as u64, pages as u64);
    mapped.then_some(Stack { bottom, pages })
}
