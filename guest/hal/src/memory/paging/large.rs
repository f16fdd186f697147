//! Large pages of programs: 2 MiB by one entry. A part that changes splits it into a table, which
//! was set aside when it was mapped, so that splitting cannot fail.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_abi::ports;
use x86_64::instructions::port::Port;

use super::super::layout::{PROGRAMS, has_programs};
use super::super::supervisor;
use super::{
    CHANGES, LARGE, LARGE_PAGE, PAGE, PRESENT, ProgramPages, TABLE, Table, clear_pages_here,
    directory, empty_until, flush, index, last_entry, present_directory, table_at,
};
use crate::{cpuid, unrolled};

/// Whether the monitor takes requests for huge pages.
#[unsafe(link_section = ".bss.ring0.state")]
static ASKS_FOR_HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// Before the tables are ring 0's.
pub(super) fn init() {
    if has_programs() {
        ASKS_FOR_HUGE_PAGES.store(cpuid::takes_huge_pages(), Ordering::Relaxed);
    }
}

/// Maps 2 MiB of programs' memory at `address`, where no table may be, to the frames that begin
/// with that of `page`, made by [`ProgramPages::entry`]. In ring 0. Says whether that was done; not
/// without a table that can be set aside to split it.
pub(crate) fn set_here(address: u64, page: u64) -> bool {
    let frame = ProgramPages::frame(page);
    let is_request = has_programs()
        && address.is_multiple_of(LARGE)
        && PROGRAMS.contains(&address)
        && page & !ProgramPages::BITS == 0
        && page & PRESENT != 0
        && frame.is_multiple_of(LARGE);
    if !is_request || supervisor::overlaps(&(frame..frame + LARGE)) {
        return false;
    }
    let _changes = CHANGES.lock();
    let Some(directory) = directory(address) else {
        return false;
    };
    let entry = &directory.0[index(address, 21)];
    if entry.load(Ordering::Relaxed) != 0 || !supervisor::set_table_aside() {
        return false;
    }
    entry.store(page | LARGE_PAGE, Ordering::Release);
    true
}

/// Has a table map the pages of a large page of programs one by one. Translations that are cached
/// stay right: they have the same frames and rights. The caller holds [`CHANGES`].
pub(super) fn split(entry: &AtomicU64) -> Option<&'static Table> {
    let mut page = entry.load(Ordering::Relaxed) & !LARGE_PAGE;
    let address = supervisor::table_set_aside()?;
    let table = table_at(address);
    unrolled::for_each(&table.0, |small| {
        small.store(page, Ordering::Relaxed);
        page += PAGE;
    });
    entry.store(address | TABLE, Ordering::Release);
    Some(table)
}

/// [`clear_pages_here`] where no table is: a large page goes as a whole or is split.
#[cold]
#[inline(never)]
pub(super) fn clear_part(address: u64, count: u64) -> bool {
    {
        let _changes = CHANGES.lock();
        let Some(entry) = present_directory(address).map(|table| &table.0[index(address, 21)])
        else {
            return true;
        };
        if entry.load(Ordering::Relaxed) & LARGE_PAGE == 0 {
            return true;
        }
        if count == LARGE / PAGE {
            entry.store(0, Ordering::Relaxed);
            supervisor::return_table();
            flush();
            return true;
        }
        if split(entry).is_none() {
            return false;
        }
    }
    clear_pages_here(address, count)
}

/// Whether `entry`, at which a walk to `address` ended, is a large page of programs. Low memory that
/// no program uses is still mapped by large pages.
#[inline]
pub(super) fn is_programs(entry: u64, address: u64) -> bool {
    entry & (PRESENT | LARGE_PAGE) == PRESENT | LARGE_PAGE && PROGRAMS.contains(&address)
}

/// Whether the page at `address` of programs' memory is in a large one.
pub(crate) fn is_large(address: u64) -> bool {
    let (entry, shift) = last_entry(address);
    shift == 21 && is_programs(entry, address)
}

/// Large pages of programs, counted by all directories that there are.
pub(crate) fn count() -> u64 {
    let mut found = 0;
    let mut at = PROGRAMS.start;
    while at < PROGRAMS.end {
        match empty_until(at) {
            Some(end) => at = end,
            None => {
                found += u64::from(is_large(at));
                at += LARGE;
            }
        }
    }
    found
}

/// Asks Tare's monitor to have the host back 2 MiB from `frame` on by a huge page. In ring 0.
pub(crate) fn ask_for_huge_page_here(frame: u64) {
    if has_programs() && ASKS_FOR_HUGE_PAGES.load(Ordering::Relaxed) {
        // SAFETY: 1. In ring 0. 2. Tare's monitor has the port, and a write changes no content of
        //    memory, whatever its value.
        unsafe { Port::<u32>::new(ports::HUGE_PAGE).write((frame / LARGE) as u32) };
    }
}
