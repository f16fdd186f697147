//! Ring 0's memory: page tables, descriptor tables, ring-0 stacks and entry code.
//! Once `paging::protect` has run, an image in ring 3 can neither write nor execute
//! any of it at its own address. A window maps the tables and what lies beside them
//! (descriptor tables, ring-0 stacks) for reading, so that ring 3 can translate
//! addresses. Devices write where the image's drivers tell them, here too.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::heap;
use super::layout::has_programs;

/// Pages for tables in the image: enough for the stacks of 128 MiB.
const POOL_PAGES: usize = 96;
/// Machines with less RAM have these alone.
const LEAST_RAM: u64 = 96 << 20;
/// The share of RAM that is for further tables: four times what maps all of it by pages, since each
/// 2 MiB of addresses take a table, however few pages are used there. And most of it.
const SHARE: u64 = 128;
const MOST_BYTES: u64 = 256 << 20;
const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;

#[repr(C, align(4096))]
struct Pool(UnsafeCell<[[u8; PAGE as usize]; POOL_PAGES]>);
// SAFETY: 1. `table_page` hands each page out once: its callers in `paging` hold `CHANGES`. 2. From
//    then on Rust reaches the page as a table of atomics only.
unsafe impl Sync for Pool {}

#[unsafe(link_section = ".bss.ring0.pool")]
static POOL: Pool = Pool(UnsafeCell::new([[0; PAGE as usize]; POOL_PAGES]));

// The state of the pool, which ring 3 must not write.
#[unsafe(link_section = ".bss.ring0.state")]
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// First address of the further pages, their bytes, and how many were used; zero without any.
#[unsafe(link_section = ".bss.ring0.state")]
static FURTHER: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.ring0.state")]
static FURTHER_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".bss.ring0.state")]
static FURTHER_USED: AtomicU64 = AtomicU64::new(0);

/// Tables that are promised to programs' large pages, to split them.
#[unsafe(link_section = ".bss.ring0.state")]
static SET_ASIDE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static tare_ring0_text_start: u8;
    static tare_ring0_text_end: u8;
    static tare_ring0_data_start: u8;
    static tare_ring0_data_end: u8;
    static tare_ring0_bss_start: u8;
    static tare_ring0_bss_end: u8;
}

/// What a part of ring 0's memory holds.
pub(crate) struct Part {
    /// For messages.
    pub(crate) name: &'static str,
    /// Where it is.
    pub(crate) range: Range<u64>,
}

/// The parts of ring 0's memory. For ring 0, and before it is protected: where the
/// further page tables are is ring 0's to know.
pub(crate) fn parts() -> [Part; 4] {
    let [text, data, bss] = image_parts();
    let further = Part {
        name: "page tables",
        range: further(),
    };
    [text, data, bss, further]
}

/// The parts of the image that belong to ring 0.
pub(crate) fn image_parts() -> [Part; 3] {
    let address = |symbol: *const u8| symbol.addr() as u64;
    let part = |name, start, end| Part {
        name,
        range: address(start)..address(end),
    };
    [
        part(
            "ring 0's entry code",
            &raw const tare_ring0_text_start,
            &raw const tare_ring0_text_end,
        ),
        part(
            "page tables",
            &raw const tare_ring0_data_start,
            &raw const tare_ring0_data_end,
        ),
        part(
            "page tables, descriptor tables and stacks of ring 0",
            &raw const tare_ring0_bss_start,
            &raw const tare_ring0_bss_end,
        ),
    ]
}

/// The end of the last of them: behind it the image has only data of the library OS's (`link.ld`).
pub(crate) fn image_end() -> u64 {
    (&raw const tare_ring0_bss_end).addr() as u64
}

/// The part of ring 0's memory that `address` lies in.
pub(crate) fn part_at(address: u64) -> Option<&'static str> {
    let mut parts = parts().into_iter();
    let part = parts.find(|part| part.range.contains(&address))?;
    Some(part.name)
}

/// Whether any of `range` belongs to ring 0. Asked for each request of programs' pages, so it
/// makes no list.
#[inline]
pub(crate) fn overlaps(range: &Range<u64>) -> bool {
    let touches = |start: u64, end: u64| range.start < end && start < range.end;
    let holds = |start: *const u8, end: *const u8| touches(start.addr() as u64, end.addr() as u64);
    let further = further();
    // Of the image's parts this is the last (`link.ld`), and most ranges lie behind the image.
    let is_in_image = range.start < image_end();
    let in_parts = || {
        holds(
            &raw const tare_ring0_text_start,
            &raw const tare_ring0_text_end,
        ) || holds(
            &raw const tare_ring0_data_start,
            &raw const tare_ring0_data_end,
        ) || holds(
            &raw const tare_ring0_bss_start,
            &raw const tare_ring0_bss_end,
        )
    };
    range.start >= range.end || is_in_image && in_parts() || touches(further.start, further.end)
}

/// Sets a table aside, which [`table_set_aside`] then has; whether one is left. Its callers, as
/// those of the next three, hold `CHANGES`.
pub(crate) fn set_table_aside() -> bool {
    let aside = SET_ASIDE.load(Ordering::Relaxed);
    let is_left = tables_left() > aside;
    SET_ASIDE.store(aside + u64::from(is_left), Ordering::Relaxed);
    is_left
}

/// A table that was set aside is not needed any more.
pub(crate) fn return_table() {
    let aside = SET_ASIDE.load(Ordering::Relaxed);
    SET_ASIDE.store(aside.saturating_sub(1), Ordering::Relaxed);
}

/// A page for a table that was set aside.
pub(crate) fn table_set_aside() -> Option<u64> {
    return_table();
    table_page()
}

fn tables_left() -> u64 {
    let in_pool = POOL_PAGES.saturating_sub(NEXT.load(Ordering::Relaxed)) as u64;
    let further = FURTHER_BYTES.load(Ordering::Relaxed) - FURTHER_USED.load(Ordering::Relaxed);
    in_pool + further / PAGE
}

/// A zeroed page for a table; `None` when all are used or set aside.
pub(crate) fn table_page() -> Option<u64> {
    if has_programs() && tables_left() <= SET_ASIDE.load(Ordering::Relaxed) {
        return None;
    }
    let index = NEXT.load(Ordering::Relaxed);
    if index < POOL_PAGES {
        NEXT.store(index + 1, Ordering::Relaxed);
        return Some(POOL.0.get().addr() as u64 + index as u64 * PAGE);
    }
    let (range, used) = (further(), FURTHER_USED.load(Ordering::Relaxed));
    let page = range.start + used;
    if page >= range.end {
        return None;
    }
    FURTHER_USED.store(used + PAGE, Ordering::Relaxed);
    // SAFETY: 1. The page lies in the large pages that `reserve` took from the heap, below
    //    `range.end` (checked), so it is aligned and mapped for ring 0. 2. `FURTHER_USED` has
    //    passed it: no other call gives it out.
    unsafe { core::ptr::write_bytes(page as *mut u64, 0, PAGE as usize / 8) };
    Some(page)
}

/// Large pages of further tables for a machine with that much RAM.
fn pages_for(ram_bytes: u64) -> u64 {
    (ram_bytes / SHARE).min(MOST_BYTES).div_ceil(LARGE)
}

/// Takes memory for further tables; it is touched only as they are used. Before
/// [`super::paging::protect`].
pub(crate) fn reserve(ram_bytes: u64) {
    if ram_bytes < LEAST_RAM {
        return;
    }
    let mut pages = pages_for(ram_bytes);
    while pages > 0 {
        if let Some(block) = heap::large_pages(pages as usize) {
            FURTHER_BYTES.store(pages * LARGE, Ordering::Relaxed);
            FURTHER.store(block.addr().get() as u64, Ordering::Relaxed);
            return;
        }
        pages /= 2;
    }
}

/// What [`further`] begins with, read at this distance from where it lies. For tests.
pub(crate) fn further_start_at(distance: u64) -> u64 {
    let word = ((&raw const FURTHER).addr() as u64 + distance) as *const u64;
    // SAFETY: 1. The caller names the window's distance, where `paging::open_window` has mapped this
    //    part of the image for reading. 2. Nothing changes the word once the tables are protected.
    unsafe { word.read_volatile() }
}

/// The large pages that [`reserve`] took; empty without any.
#[inline]
pub(crate) fn further() -> Range<u64> {
    let start = FURTHER.load(Ordering::Relaxed);
    start..start + FURTHER_BYTES.load(Ordering::Relaxed)
}
