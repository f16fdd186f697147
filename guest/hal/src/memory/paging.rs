//! Page tables: memory is mapped at its physical address, stacks in a window
//! of their own. One set of tables for all CPUs, and entries only ever become
//! more permissive after the other CPUs run, so that no CPU has to be told.
//!
//! The image's code is read-only, everything else is not executable, page 0 is
//! not mapped (Intel SDM vol. 3A, chapter 4).

#![allow(unsafe_code)]

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Image, heap};
use crate::lock::IrqLock;

/// What the entry code's tables map: the first GiB.
pub(crate) const BOOT_MAPPED: u64 = GIB;

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const UNCACHED: u64 = (1 << 3) | (1 << 4);
const LARGE_PAGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const RAM: u64 = PRESENT | WRITABLE | NO_EXECUTE;
const DEVICE: u64 = RAM | UNCACHED;
const TABLE: u64 = PRESENT | WRITABLE;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

unsafe extern "C" {
    static tare_pml4: Table;
    static tare_pdpt: Table;
    static tare_pd0: Table;
    static tare_pt0: Table;
}

/// Serialises changes to the tables.
static CHANGES: IrqLock<()> = IrqLock::new(());

/// Gives each section of the image its rights, by pages of 4 KiB, and takes
/// away page 0, which some loaders use for their information.
pub(crate) fn protect(image: &Image) {
    let _changes = CHANGES.lock();
    let mut base = image.text.start & !(LARGE - 1);
    // The entry code left the first 4 MiB from 2 MiB executable.
    while base < image.data.end.max(3 * LARGE) {
        let entry = &boot_tables().1.0[index(base, 21)];
        if base < image.data.end {
            entry.store(image_table(image, base) | TABLE, Ordering::Relaxed);
        } else {
            entry.store(base | RAM | LARGE_PAGE, Ordering::Relaxed);
        }
        base += LARGE;
    }
    page_0().store(0, Ordering::Relaxed);
    flush();
}

fn image_table(image: &Image, base: u64) -> u64 {
    let table = new_table();
    let mut page = base;
    for entry in &table.0 {
        let rights = if image.text.contains(&page) {
            PRESENT
        } else if image.rodata.contains(&page) {
            PRESENT | NO_EXECUTE
        } else {
            RAM
        };
        entry.store(page | rights, Ordering::Relaxed);
        page += PAGE;
    }
    address_of(table)
}

/// Maps RAM beyond the first GiB at its physical address.
pub(crate) fn map_ram(range: &Range<u64>) {
    if range.end > BOOT_MAPPED && !range.is_empty() {
        map_range(range, RAM);
    }
}

/// Maps the last GiB below 4 GiB, where APICs and most devices are.
pub(crate) fn map_low_devices() {
    map_range(&(3 * GIB..4 * GIB), DEVICE);
}

/// Maps device memory at its physical address; says whether it is mapped.
pub(crate) fn map_device(range: &Range<u64>) -> bool {
    // The lower half's size: 47 bits.
    if range.is_empty() || range.end > 1 << 47 {
        return false;
    }
    map_range(range, DEVICE);
    is_mapped(range)
}

/// Whether all of `range` is mapped at its physical address.
pub(crate) fn is_mapped(range: &Range<u64>) -> bool {
    if range.is_empty() || range.start == 0 || range.end > 1 << 47 {
        return false;
    }
    if range.start < PAGE && page_0().load(Ordering::Relaxed) & PRESENT == 0 {
        return false;
    }
    let first = range.start & !(GIB - 1);
    let mut at = first;
    while at < range.end {
        if !gib_is_mapped(at) {
            return false;
        }
        at += GIB;
    }
    true
}

fn gib_is_mapped(address: u64) -> bool {
    let pdpt = boot_tables().0.0[index(address, 39)].load(Ordering::Relaxed);
    if pdpt & PRESENT == 0 {
        return false;
    }
    table_at(pdpt).0[index(address, 30)].load(Ordering::Relaxed) & PRESENT != 0
}

/// Maps every GiB that `range` touches and that is not mapped, whole.
fn map_range(range: &Range<u64>, rights: u64) {
    let _changes = CHANGES.lock();
    let mut at = range.start & !(GIB - 1);
    while at < range.end {
        let pdpt = next_table(&boot_tables().0.0[index(at, 39)]);
        let entry = &pdpt.0[index(at, 30)];
        if entry.load(Ordering::Relaxed) & PRESENT == 0 {
            let value = if has_gib_pages() {
                at | rights | LARGE_PAGE
            } else {
                large_pages(at, rights) | TABLE
            };
            entry.store(value, Ordering::Release);
        }
        at += GIB;
    }
}

fn large_pages(base: u64, rights: u64) -> u64 {
    let table = new_table();
    let mut page = base | rights | LARGE_PAGE;
    for entry in &table.0 {
        entry.store(page, Ordering::Relaxed);
        page += LARGE;
    }
    address_of(table)
}

/// Maps the page at `address` to `frame`, writable. The entry must be empty.
/// Says whether there was memory for the tables.
pub(crate) fn map_page(address: u64, frame: u64) -> bool {
    let _changes = CHANGES.lock();
    let mut table = boot_tables().0;
    for shift in [39, 30, 21] {
        let entry = &table.0[index(address, shift)];
        if entry.load(Ordering::Relaxed) & PRESENT == 0 {
            let Some(page) = heap::pages(1) else {
                return false;
            };
            entry.store(page.addr().get() as u64 | TABLE, Ordering::Release);
        }
        table = table_at(entry.load(Ordering::Relaxed));
    }
    table.0[index(address, 12)].store(frame | RAM, Ordering::Release);
    true
}

/// The physical address behind an address that is mapped by 4 KiB pages.
pub(crate) fn translate(address: u64) -> Option<u64> {
    let mut table = boot_tables().0;
    for shift in [39, 30, 21] {
        let entry = table.0[index(address, shift)].load(Ordering::Relaxed);
        if entry & PRESENT == 0 || entry & LARGE_PAGE != 0 {
            return None;
        }
        table = table_at(entry);
    }
    let entry = table.0[index(address, 12)].load(Ordering::Relaxed);
    (entry & PRESENT != 0).then_some(entry & ADDRESS | address & (PAGE - 1))
}

fn next_table(entry: &AtomicU64) -> &'static Table {
    let value = entry.load(Ordering::Relaxed);
    if value & PRESENT != 0 {
        return table_at(value);
    }
    let table = new_table();
    entry.store(address_of(table) | TABLE, Ordering::Release);
    table
}

/// A table without entries.
///
/// # Panics
/// Without memory: the image cannot go on.
fn new_table() -> &'static Table {
    match heap::pages(1) {
        Some(page) => table_at(page.addr().get() as u64),
        None => panic!("no memory for page tables: {:?}", heap::stats()),
    }
}

fn table_at(entry: u64) -> &'static Table {
    let table = (entry & ADDRESS) as *const Table;
    debug_assert!(NonNull::new(table.cast_mut()).is_some());
    // SAFETY: entries that point to tables are made only here and by the entry
    // code, from pages that are never freed; access is atomic.
    unsafe { &*table }
}

fn address_of(table: &'static Table) -> u64 {
    core::ptr::from_ref(table).addr() as u64
}

fn boot_tables() -> (&'static Table, &'static Table) {
    debug_assert!((&raw const tare_pdpt).addr() != 0);
    // SAFETY: 1. `boot/entry.rs` defines both, page-aligned and initialised, before any Rust
    //    code runs. 2. They are never freed. 3. Rust reaches their entries as atomics only; the
    //    processor also walks them, and sets accessed and dirty bits.
    unsafe { (&tare_pml4, &tare_pd0) }
}

fn index(address: u64, shift: u32) -> usize {
    (address >> shift) as usize & 511
}

fn page_0() -> &'static AtomicU64 {
    // SAFETY: as in `boot_tables`: 1. defined by `boot/entry.rs`, 2. never freed, 3. reached as
    //    atomics only.
    unsafe { &tare_pt0.0[0] }
}

fn has_gib_pages() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).edx & (1 << 26) != 0
}

/// Forgets cached translations of this CPU.
fn flush() {
    x86_64::instructions::tlb::flush_all();
}
