//! The address space: what the entry code maps, and where programs and stacks may lie.

#![allow(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// What the entry code's tables map: the first GiB.
pub(crate) const BOOT_MAPPED: u64 = 1 << 30;

/// The window of stacks, 512 GiB from here.
pub(crate) const STACKS: Range<u64> = 0x7000_0000_0000..0x7080_0000_0000;
/// Whether `address` lies in the window of stacks.
pub(crate) fn is_in_stacks(address: u64) -> bool {
    STACKS.contains(&address)
}

/// Where programs may have memory: above every address that PCI devices get, below the
/// library OS's stacks.
pub const PROGRAMS: Range<u64> = 0x6000_0000_0000..0x7000_0000_0000;
/// First address of low memory for programs: where Linux programs are linked.
const LOW_START: u64 = 0x40_0000;
const LARGE: u64 = 2 << 20;

unsafe extern "C" {
    /// End of low memory for programs, 0 for none; defined by `tare_libos::entry!`.
    static TARE_LOW_END: u64;
}

/// Whether the image runs programs. Known when it is linked, so that others have no code for them.
#[inline(always)]
pub(crate) fn has_programs() -> bool {
    // SAFETY: 1. `tare_libos::entry!` defines the constant once in every image, with this type. 2.
    //    Nothing writes it.
    unsafe { TARE_LOW_END != 0 }
}

/// End of low memory that is kept for programs on a machine with `ram_bytes`: at most
/// half of it.
pub(crate) fn low_end(ram_bytes: u64) -> u64 {
    // SAFETY: 1. `tare_libos::entry!` defines the constant once in every image, with this type. 2.
    //    Nothing writes it.
    let wanted = unsafe { TARE_LOW_END };
    let end = wanted.min(ram_bytes / 2).min(BOOT_MAPPED) & !(LARGE - 1);
    let end = if end > LOW_START { end } else { LOW_START };
    LOW_OF_RING_0.store(end, Ordering::Relaxed);
    LOW.store(end, Ordering::Relaxed);
    end
}

/// End of low memory for programs; ring 0 uses its own copy.
static LOW: AtomicU64 = AtomicU64::new(LOW_START);
#[unsafe(link_section = ".bss.ring0.state")]
static LOW_OF_RING_0: AtomicU64 = AtomicU64::new(0);

/// Low memory for programs: addresses as Linux programs are linked for; empty unless the
/// image asks for it (`entry!`).
pub fn low() -> Range<u64> {
    LOW_START..LOW.load(Ordering::Relaxed)
}

/// Each page of this size in a range of whole ones, in less code than `step_by` takes.
#[inline(always)]
pub(crate) fn for_each_page(range: Range<u64>, page_bytes: u64, mut act: impl FnMut(u64)) {
    let mut page = range.start;
    while page < range.end {
        act(page);
        page += page_bytes;
    }
}

/// Whether programs may have memory in all of `range`; for ring 0.
pub(crate) fn is_program_range(range: &Range<u64>) -> bool {
    let within = |outer: Range<u64>| outer.start <= range.start && range.end <= outer.end;
    range.start < range.end
        && (within(PROGRAMS) || within(LOW_START..LOW_OF_RING_0.load(Ordering::Relaxed)))
}
