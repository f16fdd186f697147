//! Memory of programs: ranges of pages with access rights, in their own window of the
//! address space and, for programs linked at a fixed address, in low memory that
//! the image reserves. Ring 0 writes the entries, through the service gate.

#![allow(unsafe_code)]

use core::ops::Range;

use super::{entry, flush, frames};
use crate::cpu;
use crate::memory::access::Access;
use crate::memory::heap;
use crate::memory::layout::{PROGRAMS, low};
use crate::memory::paging::{self, ProgramPages, large};
use crate::ring::service;
use crate::{apic, percpu, smp};

const PAGE: u64 = 4096;
/// Pages of a page table.
const TABLE: u64 = 512;
/// Bytes of a large page.
pub const LARGE: u64 = TABLE * PAGE;

/// Why memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The range is empty, not of whole pages, or not in [`WINDOW`](super::WINDOW) and [`low`](super::low).
    Outside,
    /// Some page of it is mapped.
    Taken,
    /// There is no memory for pages or tables; nothing is mapped.
    Memory,
}

/// Maps zeroed memory.
///
/// # Errors
/// See [`MapError`].
pub fn map(range: Range<u64>, access: Access) -> Result<(), MapError> {
    map_bytes(range, access, &[])
}

/// Maps memory that begins with `bytes`; the rest is zeros.
///
/// # Errors
/// See [`MapError`].
pub fn map_bytes(range: Range<u64>, access: Access, mut bytes: &[u8]) -> Result<(), MapError> {
    check_free(&range)?;
    let mut at = range.start;
    while at < range.end {
        match map_some(at, (range.end - at) / PAGE, access, bytes) {
            Some(count) => {
                let mapped = (count * PAGE) as usize;
                bytes = bytes.get(mapped..).unwrap_or_default();
                at += count * PAGE;
            }
            None => {
                if at > range.start {
                    unmap(range.start..at)?;
                }
                return Err(MapError::Memory);
            }
        }
    }
    Ok(())
}

/// Maps zeroed memory of [`LARGE`] bytes at a multiple of as much by one entry: where KVM's shadow
/// tables stand in for ours, one fault brings it all if the host has a large page there too. Other
/// functions split it where they change a part.
///
/// # Errors
/// See [`MapError`]; [`MapError::Taken`] also where pages were mapped before, and
/// [`MapError::Memory`] also if less than a quarter of the machine's memory would be left.
pub fn map_large(at: u64, access: Access) -> Result<(), MapError> {
    let end = at.saturating_add(LARGE);
    if !at.is_multiple_of(LARGE) || !PROGRAMS.contains(&at) || access == Access::default() {
        return Err(MapError::Outside);
    }
    if paging::empty_until(at).is_none_or(|empty| empty < end) {
        return Err(MapError::Taken);
    }
    let run = frames::take_large().ok_or(MapError::Memory)?;
    if !run.is_zero {
        fill(run.frame, run.count, &[]);
    }
    let entry = ProgramPages::entry(run.frame, access, true);
    if service::call(service::SET_LARGE_PAGE, [at, entry, 0]) == 1 {
        return Ok(());
    }
    (0..TABLE).for_each(|page| frames::give(run.frame + page * PAGE));
    Err(MapError::Memory)
}

/// Whether the page at `address` is in memory that [`map_large`] mapped.
pub fn is_large(address: u64) -> bool {
    large::is_large(address)
}

/// Bytes of programs' memory in large pages.
pub fn large_bytes() -> u64 {
    large::count() * LARGE
}

/// Maps `bytes`, whole pages at the begin of one, to be read and executed where they are. They
/// stay the library OS's: [`unmap`] gives nothing back.
///
/// # Errors
/// See [`MapError`].
pub fn lend(start: u64, bytes: &'static [u8], access: Access) -> Result<(), MapError> {
    let frame = bytes.as_ptr().addr() as u64;
    let range = start..start.saturating_add(bytes.len() as u64);
    check_free(&range)?;
    // Low memory is reached at its own address only.
    if access.write || !frame.is_multiple_of(PAGE) || low().contains(&start) {
        return Err(MapError::Outside);
    }
    let mut at = start;
    while at < range.end {
        let count = ((range.end - at) / PAGE).min(TABLE - at / PAGE % TABLE);
        let entry = ProgramPages::entry(frame + (at - start), access, false);
        if !set_new(at, entry, count) {
            if at > start {
                unmap(start..at)?;
            }
            return Err(MapError::Memory);
        }
        at += count * PAGE;
    }
    Ok(())
}

/// Whether the page at `address`, a multiple of the page's size, was [lent](lend).
pub fn is_lent(address: u64) -> bool {
    is_held(address)
        && !low().contains(&address)
        && ProgramPages::owned_frame(paging::program_entry(address)) == 0
}

/// Maps up to `most` pages at `at`; gives how many.
fn map_some(at: u64, most: u64, access: Access, bytes: &[u8]) -> Option<u64> {
    let in_table = TABLE - at / PAGE % TABLE;
    let most = most.min(in_table);
    let is_low = low().contains(&at);
    // Low memory is reached where it is mapped only.
    let (frame, count, in_place) = if is_low {
        if !frames::keep_fixed(at + most * PAGE) {
            return None;
        }
        (at, most, true)
    } else {
        let run = frames::take(most as usize)?;
        match (run.is_low, run.is_zero) {
            (true, _) => {}
            (false, true) => copy(run.frame, run.count, bytes),
            (false, false) => fill(run.frame, run.count, bytes),
        }
        (run.frame, run.count as u64, run.is_low)
    };
    let writable = Access {
        read: true,
        write: true,
        ..access
    };
    let first = if in_place { writable } else { access };
    if !set_new(at, ProgramPages::entry(frame, first, !is_low), count) {
        if !is_low {
            (0..count).for_each(|page| frames::give(frame + page * PAGE));
        }
        return None;
    }
    if in_place {
        fill(at, count as usize, bytes);
        if first != access && !set(at, frame, count, access, !is_low) {
            return None;
        }
    }
    Some(count)
}

/// Unmaps what is mapped of `range` and gives its memory back.
///
/// # Errors
/// [`MapError::Outside`] only.
pub fn unmap(range: Range<u64>) -> Result<(), MapError> {
    check(&range)?;
    let mut at = range.start;
    while let Some(next) = next_held(at..range.end) {
        at = next;
        // Frames are given back only when no CPU can reach them.
        let end = range.end.min((at / PAGE / TABLE + 1) * TABLE * PAGE);
        let mut owned = [0; TABLE as usize];
        let mut last = at;
        for (page, slot) in pages(&(at..end)).zip(&mut owned) {
            let entry = paging::program_entry(page);
            if entry != 0 {
                last = page;
            }
            *slot = ProgramPages::owned_frame(entry);
        }
        let count = (last - at) / PAGE + 1;
        service::call(service::CLEAR_PAGES, [at, 0, count]);
        shoot_down();
        let owned = owned.into_iter().filter(|frame| *frame != 0);
        owned.for_each(frames::give);
        at = end;
    }
    Ok(())
}

/// Moves the pages of `from` that are mapped to the same places of a range at `to`, of which none
/// may be mapped: the frames themselves, whatever their number. Programs get `access` to them
/// there; [lent](lend) pages stay unwritable.
///
/// # Errors
/// See [`MapError`]; then nothing has moved. [`MapError::Outside`] also for [`low`](super::low)
/// memory, which is reached at its own address only.
pub fn relocate(from: Range<u64>, to: u64, access: Access) -> Result<(), MapError> {
    check(&from)?;
    let target = to..to.saturating_add(from.end - from.start);
    check_free(&target)?;
    if low().contains(&from.start) || low().contains(&to) {
        return Err(MapError::Outside);
    }
    let mut at = from.start;
    while let Some(next) = next_held(at..from.end) {
        at = next;
        let new = to + (at - from.start);
        let run = FrameRun::at(at, from.end, TABLE - new / PAGE % TABLE);
        let given = Access {
            write: access.write && run.is_owned,
            ..access
        };
        let entry = ProgramPages::entry(run.frame, given, run.is_owned);
        if !set_new(new, entry, run.count) {
            // Each is still where it was.
            clear(&(to..new));
            return Err(MapError::Memory);
        }
        at += run.count * PAGE;
    }
    clear(&from);
    Ok(())
}

/// Unmaps what is mapped of `range`; the frames are not given back.
fn clear(range: &Range<u64>) {
    let mut at = range.start;
    let mut is_changed = false;
    while let Some(next) = next_held(at..range.end) {
        let end = range.end.min((next / PAGE / TABLE + 1) * TABLE * PAGE);
        service::call(service::CLEAR_PAGES, [next, 0, (end - next) / PAGE]);
        is_changed = true;
        at = end;
    }
    if is_changed {
        shoot_down();
    }
}

/// Mapped pages that follow each other, as their frames do, in one page table.
struct FrameRun {
    frame: u64,
    is_owned: bool,
    count: u64,
}

impl FrameRun {
    /// From the page at `at`, which is mapped, to `end` and up to `most` pages.
    fn at(at: u64, end: u64, most: u64) -> Self {
        let entry = paging::program_entry(at);
        let most = ((end - at) / PAGE).min(TABLE - at / PAGE % TABLE).min(most);
        let (frame, is_owned) = (
            ProgramPages::frame(entry),
            ProgramPages::owned_frame(entry) != 0,
        );
        let follows = |page: u64| {
            let other = paging::program_entry(at + page * PAGE);
            other != 0
                && ProgramPages::frame(other) == frame + page * PAGE
                && (ProgramPages::owned_frame(other) != 0) == is_owned
        };
        Self {
            frame,
            is_owned,
            count: 1 + (1..most).take_while(|&page| follows(page)).count() as u64,
        }
    }
}

/// Changes what a program may do with the pages of `range` that are mapped. Nothing makes a
/// [lent](lend) page writable: it stays the library OS's.
///
/// # Errors
/// [`MapError::Outside`] only.
pub fn protect(range: Range<u64>, access: Access) -> Result<(), MapError> {
    check(&range)?;
    let mut at = range.start;
    let mut is_changed = false;
    while let Some(next) = next_held(at..range.end) {
        at = next;
        is_changed = true;
        // As many as one request can change.
        let run = FrameRun::at(at, range.end, TABLE);
        let given = Access {
            write: access.write && (run.is_owned || low().contains(&at)),
            ..access
        };
        set(at, run.frame, run.count, given, run.is_owned);
        at += run.count * PAGE;
    }
    if is_changed {
        shoot_down();
    }
    Ok(())
}

/// Whether every page of `range` can be accessed like that.
pub fn is_mapped(range: Range<u64>, access: Access) -> bool {
    check(&(range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE))).is_ok()
        && pages(&(range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE)))
            .all(|page| ProgramPages::allows(paging::program_entry(page), access))
}

/// Whether the page at `address`, a multiple of the page's size, is mapped, with whatever
/// access.
pub fn is_held(address: u64) -> bool {
    is_in_windows(&(address..address.saturating_add(PAGE))) && paging::program_entry(address) != 0
}

/// How many pages of `range`, whole pages of the same [`LARGE`] bytes, are mapped, with whatever
/// access.
pub fn count_held(range: Range<u64>) -> usize {
    if is_in_windows(&range) {
        paging::count_program_entries(&range)
    } else {
        0
    }
}

/// The first page of `range`, whole pages, that is mapped, with whatever access. What no
/// page table covers costs one step for each table that is missing, whatever its size.
pub fn next_held(range: Range<u64>) -> Option<u64> {
    let mut at = range.start;
    while at < range.end {
        match paging::empty_until(at) {
            Some(end) => at = end,
            None if paging::program_entry(at) != 0 => return Some(at),
            None => at += PAGE,
        }
    }
    None
}

/// Copies `bytes` to a program's memory at `address`; `false` if some of it is not
/// writable or not programs' memory, which may leave a part copied.
pub fn write(address: u64, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let Some(end) = address.checked_add(bytes.len() as u64) else {
        return false;
    };
    // SAFETY: 1. The range lies in programs' memory, to which no reference exists. 2. A fault
    //    there ends the copy: `trap::entry` knows its instructions.
    is_in_windows(&(address..end))
        && unsafe { entry::copy(address as *mut u8, bytes.as_ptr(), bytes.len()) == 0 }
}

/// Copies a program's memory at `address` to `bytes`; `false` if some of it is not
/// readable or not programs' memory, which may leave a part copied.
pub fn read(address: u64, bytes: &mut [u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let Some(end) = address.checked_add(bytes.len() as u64) else {
        return false;
    };
    // SAFETY: 1. The range lies in programs' memory (the left side), to which no reference exists;
    //    `bytes` is the caller's. 2. A fault at the program's address ends the copy: `trap::entry`
    //    knows its instructions.
    is_in_windows(&(address..end))
        && unsafe { entry::copy(bytes.as_mut_ptr(), address as *const u8, bytes.len()) == 0 }
}

/// The aligned word at a program's `address`, in one access; `None` if it is not
/// accessible, aligned, or a program's.
pub fn load_u32(address: u64) -> Option<u32> {
    if !address.is_multiple_of(4) || !is_in_windows(&(address..address.checked_add(4)?)) {
        return None;
    }
    let mut word = 0;
    // SAFETY: 1. The address lies in programs' memory (checked above), to which no reference
    //    exists; `word` is this function's. 2. A fault there ends the read: `trap::entry` knows its
    //    instructions. 3. It is aligned, so the word is read at once.
    let failed = unsafe { entry::load(address as *const u32, &mut word) };
    (failed == 0).then_some(word)
}

/// Writes `new` to the aligned word at a program's `address` if it holds `expected`, in one access, and
/// gives what it held; `None` if it is not writable, aligned, or a program's.
pub fn exchange_u32(address: u64, expected: u32, new: u32) -> Option<u32> {
    if !address.is_multiple_of(4) || !is_in_windows(&(address..address.checked_add(4)?)) {
        return None;
    }
    let mut held = 0;
    // SAFETY: 1. The address lies in programs' memory (checked above), to which no reference
    //    exists; `held` is this function's. 2. A fault there ends the exchange: `trap::entry` knows
    //    its instructions. 3. It is aligned, so that the exchange is atomic.
    let failed = unsafe { entry::exchange(address as *mut u32, expected, new, &mut held) };
    (failed == 0).then_some(held)
}

/// Writes the word at a program's `address` at once, for code that another CPU may execute;
/// whether the address is aligned, writable and a program's.
pub fn store_u64(address: u64, value: u64) -> bool {
    let end = address.saturating_add(8);
    // SAFETY: 1. The address lies in programs' memory (the left side), to which no reference
    //    exists. 2. A fault there ends the write: `trap::entry` knows its instructions. 3. It is
    //    aligned, so the word is written at once.
    address.is_multiple_of(8)
        && is_in_windows(&(address..end))
        && unsafe { entry::store(address as *mut u64, value) == 0 }
}

/// Makes every other CPU forget cached translations.
///
/// # Panics
/// With interrupts off: two CPUs would wait for each other.
fn shoot_down() {
    let others = || (0..smp::count()).filter(|&cpu| cpu != percpu::index() && smp::is_online(cpu));
    if others().next().is_none() {
        return;
    }
    assert!(
        cpu::interrupts_are_on() && !cpu::in_interrupt(),
        "memory of programs changes with interrupts on only"
    );
    for other in others() {
        flush::ask(other);
        apic::send_wake(smp::apic_id(other));
    }
    let targets = flush::asked();
    for other in others() {
        while !flush::has_served(other, targets[other]) {
            cpu::pause();
        }
    }
}

fn check_free(range: &Range<u64>) -> Result<(), MapError> {
    check(range)?;
    if pages(range).any(|page| paging::program_entry(page) != 0) {
        return Err(MapError::Taken);
    }
    Ok(())
}

fn check(range: &Range<u64>) -> Result<(), MapError> {
    let is_whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
    if is_whole && is_in_windows(range) {
        Ok(())
    } else {
        Err(MapError::Outside)
    }
}

fn is_in_windows(range: &Range<u64>) -> bool {
    let within = |outer: Range<u64>| outer.start <= range.start && range.end <= outer.end;
    range.start < range.end && (within(PROGRAMS) || within(low()))
}

fn pages(range: &Range<u64>) -> impl Iterator<Item = u64> {
    range.clone().step_by(PAGE as usize)
}

/// Has ring 0 write the entries of `count` pages at `address`, all in one table, none of which is
/// mapped.
fn set_new(address: u64, entry: u64, count: u64) -> bool {
    service::call(service::SET_NEW_PAGES, [address, entry, count]) == 1
}

/// The same of pages that may be mapped.
fn set(address: u64, frame: u64, count: u64, access: Access, is_owned: bool) -> bool {
    let entry = ProgramPages::entry(frame, access, is_owned);
    service::call(service::SET_PAGES, [address, entry, count]) == 1
}

/// Fills pages that only the caller uses with `bytes`, and with zeros where these end.
fn fill(address: u64, count: usize, bytes: &[u8]) {
    let whole = bytes.len() / PAGE as usize;
    if whole < count {
        // SAFETY: 1. `map_some` has the pages for itself: fresh frames at their own address, or a
        //    range that it has just mapped and that no program knows. 2. They are mapped, writable.
        unsafe {
            heap::clear_pages(address + whole as u64 * PAGE, count - whole);
        }
    }
    copy(address, count, bytes);
}

/// Copies what there is of `bytes` for pages that only the caller uses.
fn copy(address: u64, count: usize, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(count * PAGE as usize)];
    // SAFETY: 1. `map_some` has the pages for itself, mapped and writable, as above. 2. `bytes` is
    //    at most as long as they are (cut above). 3. It does not overlap them: fresh frames,
    //    or memory of programs, to which no reference exists.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len());
    }
}
