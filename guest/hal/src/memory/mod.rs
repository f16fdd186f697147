//! Guest memory: page tables, the heap, guarded stacks.

pub(crate) mod access;
pub mod heap;
pub(crate) mod image;
pub(crate) mod layout;
pub(crate) mod paging;
pub mod stack;
pub(crate) mod supervisor;

use core::ops::Range;

use crate::boot::Handover;
use crate::cpuid;
use image::Image;
use layout::{BOOT_MAPPED, has_programs, is_in_stacks, low, low_end};

pub(crate) use paging::{is_mapped, map_device};

/// Gives unused RAM to the heap and finishes the page tables.
/// Nothing of the memory given away is touched but a few words at its ends.
pub(crate) fn init(handover: &Handover) {
    let image = Image::sections();
    let mut free = handover.ram.clone();
    // The first MiB holds tables of the firmware and the start page of CPUs.
    free.remove(&(0..tare_abi::layout::HIGH_RAM));
    free.remove(&(image.text.start..image.data.end));
    free.remove(&handover.initramfs);
    free.remove(&low_of_programs(&image, handover));
    if cpuid::has_zeroed_ram() {
        heap::trust_zeros();
    }
    for range in free.pages().filter(|range| range.end <= BOOT_MAPPED) {
        heap::add(range);
    }
    for range in free.pages() {
        let beyond = range.start.max(BOOT_MAPPED)..range.end;
        let below = range.start..range.end.min(BOOT_MAPPED);
        if range.end > BOOT_MAPPED && !below.is_empty() {
            heap::add(below);
        }
        paging::map_ram(&beyond);
    }
    supervisor::reserve(handover.ram.bytes());
    paging::protect(&image);
    crate::user::keep_out();
    for range in free.pages() {
        let beyond = range.start.max(BOOT_MAPPED)..range.end;
        if !beyond.is_empty() {
            heap::add(beyond);
        }
    }
    paging::map_ram(&handover.initramfs);
    paging::map_low_devices();
}

/// Low memory that the image keeps for programs; empty if it wants none, or if the initramfs lies
/// there.
///
/// # Panics
/// If the image itself lies there: no program with fixed addresses could be loaded.
fn low_of_programs(image: &Image, handover: &Handover) -> Range<u64> {
    let start = low().start;
    assert!(
        !has_programs() || image.data.end <= start,
        "the image ends beyond {start:#x}, where programs begin"
    );
    let room = if handover.initramfs.is_empty() {
        handover.ram.bytes()
    } else {
        handover.ram.bytes().min(handover.initramfs.start)
    };
    start..low_end(room)
}

/// Whether the image runs programs; known when it is linked.
#[inline(always)]
pub fn runs_programs() -> bool {
    has_programs()
}

/// Whether a stack frame may lie at `address`.
pub(crate) fn may_be_stack(address: u64) -> bool {
    address.is_multiple_of(8)
        && (is_in_stacks(address)
            || paging::is_mapped(&(address..address + 16))
                && address < tare_abi::layout::MMIO_GAP_START)
}
