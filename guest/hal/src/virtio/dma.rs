//! Memory that devices read and write. There is no IOMMU; all memory but stacks
//! is mapped at its physical address, so a buffer's address is what devices use.

#![allow(unsafe_code)]

#[cfg(target_os = "none")]
use core::ptr::NonNull;

#[cfg(target_os = "none")]
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// DMA memory for drivers. Buffers given to a driver may lie on the heap, in
/// statics, or on the stack of the calling thread.
#[derive(Debug)]
pub struct Dma;

#[cfg(target_os = "none")]
// SAFETY: 1. `dma_alloc` gives zeroed pages of the heap, page-aligned, that nothing else has until
//    `dma_dealloc`. 2. The heap is mapped at its physical address, so the two addresses that it
//    gives are one. 3. `mmio_phys_to_virt` gives an address that `memory::map_device` has mapped,
//    or ends the image.
unsafe impl Hal for Dma {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        match crate::memory::heap::pages(pages) {
            Some(start) => (start.addr().get() as PhysAddr, start),
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, vaddr: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: 1. The pages and their count are those of `dma_alloc`, and unused: the caller's
        //    promise (`Hal::dma_dealloc`).
        unsafe { crate::memory::heap::free_pages(vaddr, pages) };
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, size: usize) -> NonNull<u8> {
        let mapped = crate::memory::map_device(&(paddr..paddr.saturating_add(size as u64)));
        match NonNull::new(paddr as *mut u8) {
            Some(start) if mapped => start,
            _ => panic!("device memory at {paddr:#x} cannot be mapped"),
        }
    }

    #[inline]
    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        let address = buffer.cast::<u8>().addr().get() as u64;
        if crate::memory::layout::is_in_stacks(address) {
            return crate::memory::stack::physical(buffer);
        }
        address
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

#[cfg(not(target_os = "none"))]
mod host {
    //! The same with memory of the host's, for tests.

    use alloc::alloc::{Layout, alloc_zeroed, dealloc};
    use core::ptr::NonNull;

    use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

    use super::Dma;

    fn layout(pages: usize) -> Option<Layout> {
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|bytes| *bytes > 0)?;
        Layout::from_size_align(bytes, PAGE_SIZE).ok()
    }

    // SAFETY: 1. `dma_alloc` gives zeroed pages of the host's allocator, page-aligned, that nothing
    //    else has until `dma_dealloc`. 2. Devices are tests, which use the same addresses.
    unsafe impl Hal for Dma {
        fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
            // SAFETY: 1. The layout is not empty: `layout` gives none for no pages.
            let start = layout(pages).map(|layout| unsafe { alloc_zeroed(layout) });
            match start.and_then(NonNull::new) {
                Some(start) => (start.expose_provenance().get() as PhysAddr, start),
                None => (0, NonNull::dangling()),
            }
        }

        unsafe fn dma_dealloc(_paddr: PhysAddr, vaddr: NonNull<u8>, pages: usize) -> i32 {
            if let Some(layout) = layout(pages) {
                // SAFETY: 1. The pages and their count are those of `dma_alloc`, and unused: the
                //    caller's promise (`Hal::dma_dealloc`).
                unsafe { dealloc(vaddr.as_ptr(), layout) };
            }
            0
        }

        unsafe fn mmio_phys_to_virt(paddr: PhysAddr, _size: usize) -> NonNull<u8> {
            panic!("no device memory at {paddr:#x} on the host")
        }

        // Exposed: devices of tests make pointers of these addresses.
        unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
            buffer.cast::<u8>().expose_provenance().get() as PhysAddr
        }

        unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
    }
}
