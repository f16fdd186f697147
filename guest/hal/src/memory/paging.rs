//! Page tables: memory is mapped at its physical address, stacks in a separate
//! window. One set of tables for all CPUs, and entries only ever become
//! more permissive after the other CPUs run, so that no CPU has to be notified.
//!
//! The image's code is read-only, everything else is not executable, page 0 is
//! not mapped, and ring 0's memory is not ring 3's (Intel SDM vol. 3A, chapter 4).
//! An image in ring 3 changes the tables through the service gate and reads them
//! through a window ([`WINDOW`]).

#![allow(unsafe_code)]

pub(crate) mod large;

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_abi::layout::AP_TRAMPOLINE;

use super::access::Access;
use super::image::Image;
use super::layout::{
    BOOT_MAPPED, PROGRAMS, STACKS, for_each_page, has_programs, is_program_range, low,
};
use super::{heap, supervisor};
use crate::lock::SpinLock;
use crate::ring::service;
use crate::{cpuid, ring, unrolled};

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const UNCACHED: u64 = (1 << 3) | (1 << 4);
/// The processor sets these in an entry that is used, and in one of a page that is written. Set
/// from the beginning they cost nothing. Without them KVM's shadow tables, which stand in for ours where
/// the processor or the emulation has no second level, take two faults for a page that is read
/// before it is written, and none of the pages around it.
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE_PAGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Those that a request from ring 3 may name: half of them, so that no page that follows carries
/// into the bits above, which a processor ignores.
const FRAMES: u64 = ADDRESS >> 1 & ADDRESS;

const PAGE_IN_USE: u64 = PRESENT | ACCESSED | DIRTY;
/// Ring 3 may use it. Tables above pages always carry it: pages decide.
const USER: u64 = 1 << 2;

/// Rights of the library OS's own memory: programs have none to it where they have a ring to
/// themselves.
#[inline(always)]
fn own_rights(rights: u64) -> u64 {
    if ring::isolates() {
        rights & !USER
    } else {
        rights
    }
}

const RAM: u64 = PAGE_IN_USE | WRITABLE | USER | NO_EXECUTE;
const DEVICE: u64 = RAM | UNCACHED;
const TABLE: u64 = PRESENT | ACCESSED | WRITABLE | USER;

/// Where ring 3 reads the page tables: at this distance from their addresses.
pub(crate) const WINDOW: u64 = 0x7100_0000_0000;
/// Most pages of stacks that one request maps.
const MOST_PAGES: u64 = 4096;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

unsafe extern "C" {
    static tare_pml4: Table;
    static tare_pdpt: Table;
    static tare_pd0: Table;
}

/// Serialises changes to the tables. Whoever holds it takes no interrupts: ring 0
/// has them off in a gate, and before the gates there are none.
#[unsafe(link_section = ".bss.ring0.state")]
static CHANGES: SpinLock<()> = SpinLock::new(());

/// Whether [`protect`] has run.
static IS_PAGE_0_GONE: AtomicBool = AtomicBool::new(false);
/// Whether the tables are ring 0's, so that ring 3 needs the gate and the window.
static IS_PROTECTED: AtomicBool = AtomicBool::new(false);

/// Gives each section of the image its rights, by pages of 4 KiB, and takes
/// away page 0, which some loaders use for their information.
pub(crate) fn protect(image: &Image) {
    large::init();
    let changes = CHANGES.lock();
    IS_PAGE_0_GONE.store(true, Ordering::Relaxed);
    if ring::is_user() {
        open_window();
    }
    let low = low();
    let is_copy = !low.is_empty() || ring::isolates();
    let directory = if is_copy {
        copy_of_directory()
    } else {
        &boot_tables().1.0
    };
    let further = supervisor::further();
    for_each_page(further.clone(), LARGE, |page| {
        let value = page | (RAM & !USER) | LARGE_PAGE;
        directory[index(page, 21)].store(value, Ordering::Relaxed);
    });
    // The tables first: once the entries of the directory's own page and of ring 0's state, close
    // behind it, are in effect, ring 3 cannot write there. A copy takes effect as a whole.
    let own = index(address_of(boot_tables().1), 21);
    let (mut own_entry, mut next_entry) = (0, directory[own + 1].load(Ordering::Relaxed));
    let mut base = 0;
    // The entry code left what is behind the first MiB executable, up to 6 MiB.
    let last_table = supervisor::image_end();
    while base < last_table.max(3 * LARGE) {
        let entry = if base < last_table {
            image_table(image, base) | TABLE
        } else {
            let user = u64::from(!further.contains(&base)) * USER;
            base | own_rights(RAM & !USER | user) | LARGE_PAGE
        };
        let place = index(base, 21);
        if is_copy || place < own || place > own + 1 {
            directory[place].store(entry, Ordering::Relaxed);
        } else if place == own {
            own_entry = entry;
        } else {
            next_entry = entry;
        }
        base += LARGE;
    }
    // Programs' pages are mapped one by one: what a large page still mapped would be
    // read without a fault.
    for_each_page(low, LARGE, |base| {
        directory[index(base, 21)].store(0, Ordering::Relaxed);
    });
    drop(changes);
    if is_copy {
        let entry = directory.as_ptr().addr() as u64 | TABLE;
        first_gib().store(entry, Ordering::Relaxed);
    }
    if !is_copy {
        directory[own + 1].store(next_entry, Ordering::Relaxed);
        directory[own].store(own_entry, Ordering::Relaxed);
    }
    if ring::is_user() {
        IS_PROTECTED.store(true, Ordering::Relaxed);
        service::call(service::FLUSH, [0; 3]);
    } else {
        flush();
    }
}

/// A copy of the boot directory, which the processor does not walk yet. Programs' low memory
/// changes a hundred of its entries, and KVM's shadow of a table in use takes a fault for each.
/// All that the boot directory maps is the library OS's.
fn copy_of_directory() -> &'static [AtomicU64; 512] {
    let copy = &new_table().0;
    for (entry, old) in copy.iter().zip(&boot_tables().1.0) {
        entry.store(own_rights(old.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
    copy
}

/// Lets ring 3 read the tables: maps the parts of ring 0's memory that hold some
/// once more, for reading. Besides tables these hold descriptor tables and stacks
/// of ring 0, which an image may know.
fn open_window() {
    const READABLE: u64 = PAGE_IN_USE | USER | NO_EXECUTE;
    for part in supervisor::image_parts().iter().skip(1) {
        for_each_page(part.range.clone(), PAGE, |page| {
            let table = next_table(large_entry(WINDOW + page));
            table.0[index(page, 12)].store(page | READABLE, Ordering::Relaxed);
        });
    }
    for_each_page(supervisor::further(), LARGE, |page| {
        let entry = large_entry(WINDOW + page);
        entry.store(page | READABLE | LARGE_PAGE, Ordering::Relaxed);
    });
}

/// The entry of 2 MiB, with the tables above it.
fn large_entry(address: u64) -> &'static AtomicU64 {
    let table = next_table(&boot_tables().0.0[index(address, 39)]);
    let table = next_table(&table.0[index(address, 30)]);
    &table.0[index(address, 21)]
}

fn image_table(image: &Image, base: u64) -> u64 {
    let table = new_table();
    let parts = supervisor::image_parts();
    // Most pages are none of the image's: where ring 0 is emulated each instruction counts.
    let end = supervisor::image_end();
    let mut page = base;
    for entry in &table.0 {
        let rights = if page < image.text.start || page >= end {
            match page {
                0 => 0,
                AP_TRAMPOLINE => RAM & !NO_EXECUTE,
                _ => RAM,
            }
        } else if parts.iter().any(|part| part.range.contains(&page)) {
            if image.text.contains(&page) {
                PAGE_IN_USE
            } else {
                RAM & !USER
            }
        } else if image.text.contains(&page) {
            PAGE_IN_USE | USER
        } else if image.rodata.contains(&page) {
            PAGE_IN_USE | USER | NO_EXECUTE
        } else {
            RAM
        };
        entry.store(page | own_rights(rights), Ordering::Relaxed);
        page += PAGE;
    }
    address_of(table)
}

/// Maps RAM beyond the first GiB at its physical address.
pub(crate) fn map_ram(range: &Range<u64>) {
    if range.end > BOOT_MAPPED && !range.is_empty() {
        map_range(range, true);
    }
}

/// Maps the last GiB below 4 GiB, where APICs and most devices are.
pub(crate) fn map_low_devices() {
    map_range(&(3 * GIB..4 * GIB), false);
}

/// Maps device memory at its physical address; says whether it is mapped.
pub(crate) fn map_device(range: &Range<u64>) -> bool {
    // The lower half's size: 47 bits.
    if range.is_empty() || range.end > 1 << 47 {
        return false;
    }
    map_range(range, false);
    is_mapped(range)
}

/// Whether all of `range` is mapped at its physical address.
pub(crate) fn is_mapped(range: &Range<u64>) -> bool {
    if range.is_empty() || range.start == 0 || range.end > 1 << 47 {
        return false;
    }
    if range.start < PAGE && IS_PAGE_0_GONE.load(Ordering::Relaxed) {
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
    let pdpt = readable(address_of(boot_tables().0)).0[index(address, 39)].load(Ordering::Relaxed);
    if pdpt & PRESENT == 0 {
        return false;
    }
    readable(pdpt).0[index(address, 30)].load(Ordering::Relaxed) & PRESENT != 0
}

/// The table that `entry` points to, for reading: in ring 3 through the window.
fn readable(entry: u64) -> &'static Table {
    let distance = if needs_gate() { WINDOW } else { 0 };
    table_at_distance(entry, distance)
}

/// Maps every GiB that `range` touches and that is not mapped, whole.
fn map_range(range: &Range<u64>, is_ram: bool) {
    let mut at = range.start & !(GIB - 1);
    while at < range.end {
        if needs_gate() {
            service::call(service::MAP_GIB, [at, u64::from(is_ram), 0]);
        } else {
            map_gib_here(at, is_ram);
        }
        at += GIB;
    }
}

/// Maps the GiB at `address` at its own address, unless it is mapped. In ring 0, or
/// before the tables are protected. False if no GiB can be there.
pub(crate) fn map_gib_here(address: u64, is_ram: bool) -> bool {
    // The first GiB is mapped by the entry code; programs' memory, stacks and the
    // window lie in the upper quarter of what 47 bits address.
    if !address.is_multiple_of(GIB) || !(GIB..PROGRAMS.start).contains(&address) {
        return false;
    }
    let rights = own_rights(if is_ram { RAM } else { DEVICE });
    let _changes = CHANGES.lock();
    let pdpt = next_table(&boot_tables().0.0[index(address, 39)]);
    let entry = &pdpt.0[index(address, 30)];
    if entry.load(Ordering::Relaxed) & PRESENT == 0 {
        let value = if cpuid::has_gib_pages() {
            address | rights | LARGE_PAGE
        } else {
            large_pages(address, rights) | TABLE
        };
        entry.store(value, Ordering::Release);
    }
    true
}

fn large_pages(base: u64, rights: u64) -> u64 {
    let table = new_table();
    let mut page = base | rights | LARGE_PAGE;
    unrolled::for_each(&table.0, |entry| {
        entry.store(page, Ordering::Relaxed);
        page += LARGE;
    });
    address_of(table)
}

/// Maps `count` pages from `address`, in the window of stacks, to the frames from
/// `frame`, writable. Their entries must be empty. Says whether that was done;
/// without memory for tables it is not.
pub(crate) fn map_pages(address: u64, frame: u64, count: u64) -> bool {
    if needs_gate() {
        return service::call(service::MAP_PAGES, [address, frame, count]) == 1;
    }
    map_pages_here(address, frame, count)
}

/// [`map_pages`] in ring 0, or before the tables are protected.
pub(crate) fn map_pages_here(address: u64, frame: u64, count: u64) -> bool {
    let (Some(bytes), true) = (count.checked_mul(PAGE), count <= MOST_PAGES) else {
        return false;
    };
    let (Some(end), Some(frames_end)) = (address.checked_add(bytes), frame.checked_add(bytes))
    else {
        return false;
    };
    // An entry's other bits would name another frame than the one that is looked at.
    let is_aligned = address.is_multiple_of(PAGE) && frame & !FRAMES == 0;
    let in_window = STACKS.start <= address && end <= STACKS.end;
    if !is_aligned || !in_window || supervisor::overlaps(&(frame..frames_end)) {
        return false;
    }
    let _changes = CHANGES.lock();
    let mut at = address;
    let mut value = frame | own_rights(RAM);
    while at < end {
        let Some(table) = leaf_table(at) else {
            return false;
        };
        // Those of one table.
        let first = index(at, 12);
        let last = (first as u64 + (end - at) / PAGE).min(512) as usize;
        for entry in &table.0[first..last] {
            if entry.load(Ordering::Relaxed) & PRESENT != 0 {
                return false;
            }
            entry.store(value, Ordering::Release);
            value += PAGE;
        }
        at += (last - first) as u64 * PAGE;
    }
    true
}

/// The table that holds the entry of a page, if it is there.
#[inline(always)]
fn present_leaf_table(address: u64) -> Option<&'static Table> {
    present_below(present_directory(address)?, address, 21)
}

/// The table of entries of 2 MiB, if it is there.
///
/// Step by step rather than in a loop: an emulated instruction takes a microsecond.
#[inline(always)]
fn present_directory(address: u64) -> Option<&'static Table> {
    present_below(present_below(boot_tables().0, address, 39)?, address, 30)
}

#[inline(always)]
fn present_below(table: &Table, address: u64, shift: u32) -> Option<&'static Table> {
    let value = table.0[index(address, shift)].load(Ordering::Relaxed);
    (value & (PRESENT | LARGE_PAGE) == PRESENT).then(|| table_at(value))
}

/// The table that holds the entry of a page; makes it and those above it if they are missing. `None`
/// without memory. The caller holds [`CHANGES`].
fn leaf_table(address: u64) -> Option<&'static Table> {
    let directory = directory(address)?;
    let entry = &directory.0[index(address, 21)];
    if has_programs() && entry.load(Ordering::Relaxed) & LARGE_PAGE != 0 {
        return large::split(entry);
    }
    table_below(directory, index(address, 21))
}

/// The table of entries of 2 MiB; makes it and the one above it if they are missing.
fn directory(address: u64) -> Option<&'static Table> {
    let table = table_below(boot_tables().0, index(address, 39))?;
    table_below(table, index(address, 30))
}

#[inline(always)]
fn table_below(table: &Table, index: usize) -> Option<&'static Table> {
    let entry = &table.0[index];
    let value = entry.load(Ordering::Relaxed);
    if value & (PRESENT | LARGE_PAGE) == PRESENT {
        return Some(table_at(value));
    }
    let page = supervisor::table_page()?;
    entry.store(page | TABLE, Ordering::Release);
    Some(table_at(page))
}

/// The table with the entry of the page at `address`, for reading; or where a walk there ends before:
/// the entry of a large page, or one that leads nowhere, and the bits of an address below it.
#[inline]
fn walk(address: u64) -> Result<&'static Table, (u64, u32)> {
    let mut table = readable(address_of(boot_tables().0));
    for shift in [39, 30, 21] {
        let entry = table.0[index(address, shift)].load(Ordering::Relaxed);
        if entry & PRESENT == 0 || entry & LARGE_PAGE != 0 {
            return Err((entry, shift));
        }
        table = readable(entry);
    }
    Ok(table)
}

/// The entry at which a walk to `address` ends, and the bits of an address below it: that of a page,
/// of a large page, or one that leads nowhere.
#[inline]
fn last_entry(address: u64) -> (u64, u32) {
    let page = |table: &Table| (table.0[index(address, 12)].load(Ordering::Relaxed), 12);
    walk(address).map_or_else(|end| end, page)
}

/// How many pages of `range`, which lies in 2 MiB of programs' memory, are mapped.
pub(crate) fn count_program_entries(range: &Range<u64>) -> usize {
    let count = ((range.end - range.start) / PAGE) as usize;
    match walk(range.start) {
        Ok(table) => {
            let entries = table.0.iter().skip(index(range.start, 12)).take(count);
            let held = entries.filter(|entry| entry.load(Ordering::Relaxed) != 0);
            held.count()
        }
        Err((entry, _)) if large::is_programs(entry, range.start) => count,
        Err(_) => 0,
    }
}

/// The entry of a page of programs' memory, or 0. Of a page in a large one the entry
/// that it would have.
pub(crate) fn program_entry(address: u64) -> u64 {
    match last_entry(address) {
        (entry, 12) => entry,
        (entry, _) if large::is_programs(entry, address) => {
            (entry & !LARGE_PAGE) + (address & (LARGE - PAGE))
        }
        _ => 0,
    }
}

/// Where the table that would hold the entry of a page of programs' memory ends, if there
/// is none: no page up to there is mapped.
pub(crate) fn empty_until(address: u64) -> Option<u64> {
    match last_entry(address) {
        (_, 12) => None,
        (entry, _) if large::is_programs(entry, address) => None,
        (_, shift) => Some(((address >> shift) + 1) << shift),
    }
}

/// Whether the pages of a request were mapped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// None of them: no translation of one is cached.
    Nothing,
    /// Some may have been.
    Some,
}

/// Writes the entries of `count` pages of programs' memory from `address`, all in one
/// table: `first`, made by [`ProgramPages::entry`], and the frames that follow its
/// own. In ring 0. Says whether that was done; without memory for tables it is not.
///
/// Each instruction takes a microsecond where this is emulated, and a start of a program has
/// hundreds of requests. A wrong `earlier` leaves ring 3 with stale translations, of frames
/// that it could map again.
pub(crate) fn set_pages_here(address: u64, first: u64, count: u64, earlier: Earlier) -> bool {
    let start = index(address, 12);
    if !is_request(address, start, count) || first & !ProgramPages::BITS != 0 || first == 0 {
        return false;
    }
    let frame = ProgramPages::frame(first);
    if supervisor::overlaps(&(frame..frame + count * PAGE)) {
        return false;
    }
    let changes = CHANGES.lock();
    let Some(table) = present_leaf_table(address) else {
        drop(changes);
        return set_pages_of_new_table(address, first, count, earlier);
    };
    let mut value = first;
    unrolled::for_each(&table.0[start..start + count as usize], |entry| {
        entry.store(value, Ordering::Relaxed);
        value += PAGE;
    });
    if earlier == Earlier::Some {
        flush();
    }
    true
}

/// Apart, so that the usual case keeps nothing for after a call.
#[cold]
#[inline(never)]
fn set_pages_of_new_table(address: u64, first: u64, count: u64, earlier: Earlier) -> bool {
    let found = {
        let _changes = CHANGES.lock();
        leaf_table(address).is_some()
    };
    found && set_pages_here(address, first, count, earlier)
}

/// Takes the entries of `count` pages of programs' memory from `address` away, all in one table.
/// In ring 0. Says whether that was asked for pages of programs.
pub(crate) fn clear_pages_here(address: u64, count: u64) -> bool {
    let start = index(address, 12);
    if !is_request(address, start, count) {
        return false;
    }
    let changes = CHANGES.lock();
    let Some(table) = present_leaf_table(address) else {
        drop(changes);
        return !has_programs() || large::clear_part(address, count);
    };
    let entries = &table.0[start..start + count as usize];
    // SAFETY: 1. The range is `count` entries of one table: `is_request` has checked it, and the
    //    slice index does again. 2. The entries are atomics, which may change behind a shared
    //    reference; `CHANGES`, held, keeps other writers out, and a reader on another CPU sees each
    //    aligned word before or after. 3. Ring 0's direction flag is clear (`ring::gate`).
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rdi") entries.as_ptr() => _,
            inout("rcx") count => _,
            in("rax") 0,
            options(nostack, preserves_flags),
        );
    }
    flush();
    true
}

/// Whether `count` pages from `address`, whose index is `start`, are programs' memory in one table.
#[inline]
fn is_request(address: u64, start: usize, count: u64) -> bool {
    // Whole tables: what begins there and lies in one table ends there.
    const { assert!(PROGRAMS.start.is_multiple_of(LARGE) && PROGRAMS.end.is_multiple_of(LARGE)) };
    address.is_multiple_of(PAGE)
        && count.wrapping_sub(1) < (512 - start) as u64
        && (PROGRAMS.contains(&address)
            || is_program_range(&(address..address.saturating_add(count * PAGE))))
}

/// Entries of programs' pages.
pub(crate) struct ProgramPages;

impl ProgramPages {
    /// A bit that the processor ignores: the frame was taken for this page.
    const OWNED: u64 = 1 << 9;
    /// What ring 3 may ask for.
    const BITS: u64 = PAGE_IN_USE | WRITABLE | USER | NO_EXECUTE | Self::OWNED | FRAMES;

    /// The entry for a frame; not present without any access.
    pub(crate) fn entry(frame: u64, access: Access, is_owned: bool) -> u64 {
        let Access {
            read,
            write,
            execute,
        } = access;
        let set = |bits, is_set| if is_set { bits } else { 0 };
        frame
            | set(PAGE_IN_USE | USER, read || write || execute)
            | set(WRITABLE, write)
            | set(NO_EXECUTE, !execute)
            | set(Self::OWNED, is_owned)
    }

    /// The frame of an entry.
    pub(crate) fn frame(entry: u64) -> u64 {
        entry & ADDRESS
    }

    /// The frame, if it was taken for this page, or 0.
    pub(crate) fn owned_frame(entry: u64) -> u64 {
        if entry & Self::OWNED == 0 {
            0
        } else {
            entry & ADDRESS
        }
    }

    /// Whether the entry allows this access.
    pub(crate) fn allows(entry: u64, access: Access) -> bool {
        entry & PRESENT != 0
            && (!access.write || entry & WRITABLE != 0)
            && (!access.execute || entry & NO_EXECUTE == 0)
    }
}

/// Whether this code may not change the tables itself.
fn needs_gate() -> bool {
    ring::is_user() && IS_PROTECTED.load(Ordering::Relaxed)
}

/// The physical address behind an address that is mapped by 4 KiB pages.
pub(crate) fn translate(address: u64) -> Option<u64> {
    let (entry, shift) = last_entry(address);
    let is_page = shift == 12 && entry & PRESENT != 0;
    is_page.then_some(entry & ADDRESS | address & (PAGE - 1))
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
    match supervisor::table_page() {
        Some(page) => table_at(page),
        None => panic!("no memory for page tables beside {} B", heap::stats().used),
    }
}

fn table_at(entry: u64) -> &'static Table {
    table_at_distance(entry, 0)
}

fn table_at_distance(entry: u64, distance: u64) -> &'static Table {
    let table = ((entry & ADDRESS) + distance) as *const Table;
    debug_assert!(NonNull::new(table.cast_mut()).is_some());
    // SAFETY: 1. An entry that leads to a table comes from `next_table`, `table_below`,
    //    `map_gib_here`, `image_table` or `boot/entry.rs`; callers check PRESENT, and LARGE_PAGE
    //    where there can be one. 2. Its page is `supervisor::table_page`'s or the entry code's:
    //    aligned, initialised, never freed. 3. It is mapped at `distance`: at 0 for ring 0 and
    //    before `protect`, at WINDOW for ring 3 (`open_window`). 4. Rust reaches entries as atomics
    //    only.
    unsafe { &*table }
}

fn address_of(table: &'static Table) -> u64 {
    core::ptr::from_ref(table).addr() as u64
}

fn boot_tables() -> (&'static Table, &'static Table) {
    debug_assert!((&raw const tare_pdpt).addr() != 0);
    // SAFETY: 1. `boot/entry.rs` defines the table, page-aligned and initialised, before any Rust
    //    code runs. 2. It is never freed. 3. Rust reaches its entries as atomics only. The
    //    processor walks them as well, and sets accessed and dirty bits.
    let root = unsafe { &tare_pml4 };
    // SAFETY: 1. to 3. As for the root.
    let directory = unsafe { &tare_pd0 };
    (root, directory)
}

fn index(address: u64, shift: u32) -> usize {
    (address >> shift) as usize & 511
}

/// The entry of the first GiB, which points to its directory.
fn first_gib() -> &'static AtomicU64 {
    // SAFETY: 1. `boot/entry.rs` defines the table, page-aligned and initialised, before any Rust
    //    code runs. 2. It is never freed. 3. Rust reaches its entries as atomics only.
    unsafe { &tare_pdpt.0[0] }
}

/// Forgets cached translations of this CPU.
fn flush() {
    x86_64::instructions::tlb::flush_all();
}
