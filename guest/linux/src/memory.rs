//! Pages of the program, as the machine gives them; on the host a map of pages, for
//! tests.

use core::ops::Range;

#[cfg(target_os = "none")]
pub(crate) use tare_hal::user::{Access as Rights, WINDOW};
use tare_libos::heap::HeapStats;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Bytes of a large page.
pub(crate) const LARGE: u64 = 2 << 20;

/// What data may have.
pub(crate) const DATA: Rights = Rights {
    read: true,
    write: true,
    execute: false,
};

/// There is no memory for pages or page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

#[cfg(target_os = "none")]
mod machine {
    use tare_hal::user;

    use super::{DATA, HeapStats, NoMemory, PAGE, Range, Rights};

    /// The addresses of programs that cannot be moved.
    pub(crate) fn fixed() -> Range<u64> {
        user::low()
    }

    /// Bytes that programs may have.
    pub(crate) fn total() -> u64 {
        user::memory_total()
    }

    /// The same, and what is used of it.
    pub(crate) fn stats() -> HeapStats {
        user::memory_stats()
    }

    /// Whether a page is there, whatever its rights.
    pub(crate) fn is_held(address: u64) -> bool {
        user::is_held(address & !(PAGE - 1))
    }

    /// How many pages of a range within [`LARGE`] bytes are there.
    pub(crate) fn count_held(range: Range<u64>) -> usize {
        user::count_held(range)
    }

    /// The first page of a range that is there.
    pub(crate) fn next_held(range: Range<u64>) -> Option<u64> {
        user::next_held(range)
    }

    /// Maps pages, none of which is there yet, that begin with `bytes`; the rest is zeros.
    pub(crate) fn populate(
        range: Range<u64>,
        rights: Rights,
        bytes: &[u8],
    ) -> Result<(), NoMemory> {
        user::map_bytes(range, rights, bytes).map_err(|_| NoMemory)
    }

    /// Maps a large page of zeros at an address that is a multiple of its size; whether it could.
    pub(crate) fn populate_large(at: u64, rights: Rights) -> bool {
        const { assert!(user::LARGE == super::LARGE) };
        user::map_large(at, rights).is_ok()
    }

    /// Whether a page is there in a large one, with these rights.
    pub(crate) fn is_large(address: u64, rights: Rights) -> bool {
        let page = address & !(PAGE - 1);
        user::is_large(page) && user::is_mapped(page..page.saturating_add(PAGE), rights)
    }

    /// Bytes in large pages.
    pub(crate) fn large_bytes() -> u64 {
        user::large_bytes()
    }

    /// Maps whole pages where they are, for reading and executing; whether it could.
    pub(crate) fn lend(start: u64, rights: Rights, bytes: &'static [u8]) -> bool {
        user::lend(start, bytes, rights).is_ok()
    }

    /// Whether a page is lent.
    pub(crate) fn is_lent(address: u64) -> bool {
        user::is_lent(address & !(PAGE - 1))
    }

    /// Changes the rights of the pages that are there.
    pub(crate) fn set_rights(range: Range<u64>, rights: Rights) {
        user::protect(range, rights).ok();
    }

    /// Takes pages away.
    pub(crate) fn release(range: Range<u64>) {
        user::unmap(range).ok();
    }

    /// Moves the pages of a range that are there to `to`, where none is; `None` for those of
    /// [`fixed`] addresses, which cannot.
    pub(crate) fn relocate(
        from: Range<u64>,
        to: u64,
        rights: Rights,
    ) -> Option<Result<(), NoMemory>> {
        match user::relocate(from, to, rights) {
            Err(user::MapError::Outside) => None,
            moved => Some(moved.map_err(|_| NoMemory)),
        }
    }

    /// Whether the page of an address is there and can be written.
    pub(crate) fn is_writable(address: u64) -> bool {
        let page = address & !(PAGE - 1);
        user::is_mapped(page..page.saturating_add(PAGE), DATA)
    }

    /// Copies from the program; says whether all was there.
    pub(crate) fn read(address: u64, to: &mut [u8]) -> bool {
        user::read(address, to)
    }

    /// Copies to the program; says whether all was there.
    pub(crate) fn write(address: u64, from: &[u8]) -> bool {
        user::write(address, from)
    }

    /// The word at `address`, a multiple of 4, in one access.
    pub(crate) fn load_u32(address: u64) -> Option<u32> {
        user::load_u32(address)
    }

    /// Writes `new` to the word at `address` if it holds `expected`, in one access; what it held.
    pub(crate) fn exchange_u32(address: u64, expected: u32, new: u32) -> Option<u32> {
        user::exchange_u32(address, expected, new)
    }

    /// Writes the word at `address`, a multiple of 8, in one access.
    pub(crate) fn store_u64(address: u64, value: u64) -> bool {
        user::store_u64(address, value)
    }
}
#[cfg(target_os = "none")]
pub(crate) use machine::*;

#[cfg(not(target_os = "none"))]
mod host {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use super::{HeapStats, NoMemory, PAGE, Range};

    /// Where programs may have memory.
    pub(crate) const WINDOW: Range<u64> = 0x6000_0000_0000..0x7000_0000_0000;

    /// What a program may do with a page.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Rights {
        pub(crate) read: bool,
        pub(crate) write: bool,
        pub(crate) execute: bool,
    }

    struct Page {
        bytes: [u8; PAGE as usize],
        rights: Rights,
        is_lent: bool,
    }

    thread_local! {
        static PAGES: RefCell<BTreeMap<u64, Page>> = const { RefCell::new(BTreeMap::new()) };
        /// Pages for which there is memory.
        static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    /// Leaves memory for this many more pages.
    #[cfg(test)]
    pub(crate) fn leave(pages: u64) {
        LEFT.set(pages);
    }

    pub(crate) fn fixed() -> Range<u64> {
        0x40_0000..0x440_0000
    }

    pub(crate) fn total() -> u64 {
        stats().total
    }

    pub(crate) fn stats() -> HeapStats {
        tare_libos::heap::stats()
    }

    pub(crate) fn is_held(address: u64) -> bool {
        PAGES.with_borrow(|pages| pages.contains_key(&(address & !(PAGE - 1))))
    }

    pub(crate) fn count_held(range: Range<u64>) -> usize {
        PAGES.with_borrow(|pages| pages.range(range).count())
    }

    pub(crate) fn next_held(range: Range<u64>) -> Option<u64> {
        PAGES.with_borrow(|pages| pages.range(range).next().map(|(at, _)| *at))
    }

    pub(crate) fn populate(
        range: Range<u64>,
        rights: Rights,
        bytes: &[u8],
    ) -> Result<(), NoMemory> {
        let count = (range.end - range.start) / PAGE;
        LEFT.set(LEFT.get().checked_sub(count).ok_or(NoMemory)?);
        PAGES.with_borrow_mut(|pages| {
            let mut parts = bytes.chunks(PAGE as usize);
            for at in range.step_by(PAGE as usize) {
                let mut page = Page {
                    bytes: [0; PAGE as usize],
                    rights,
                    is_lent: false,
                };
                let part = parts.next().unwrap_or_default();
                page.bytes[..part.len()].copy_from_slice(part);
                assert!(pages.insert(at, page).is_none(), "a page was there");
            }
        });
        Ok(())
    }

    /// Many pages stand for a large one.
    pub(crate) fn populate_large(at: u64, rights: Rights) -> bool {
        populate(at..at + super::LARGE, rights, &[]).is_ok()
    }

    pub(crate) fn is_large(_address: u64, _rights: Rights) -> bool {
        false
    }

    pub(crate) fn large_bytes() -> u64 {
        0
    }

    /// A copy stands for what is lent, as long as nothing writes to it.
    pub(crate) fn lend(start: u64, rights: Rights, bytes: &'static [u8]) -> bool {
        let range = start..start + bytes.len() as u64;
        let is_whole = bytes.as_ptr().addr().is_multiple_of(PAGE as usize)
            && bytes.len().is_multiple_of(PAGE as usize);
        if rights.write || !is_whole || fixed().contains(&start) {
            return false;
        }
        let left = LEFT.replace(u64::MAX);
        let is_there = populate(range.clone(), rights, bytes).is_ok();
        LEFT.set(left);
        PAGES.with_borrow_mut(|pages| {
            pages
                .range_mut(range)
                .for_each(|(_, page)| page.is_lent = true);
        });
        is_there
    }

    pub(crate) fn is_lent(address: u64) -> bool {
        with(address, |page| page.is_lent.then_some(())).is_some()
    }

    pub(crate) fn set_rights(range: Range<u64>, rights: Rights) {
        PAGES.with_borrow_mut(|pages| {
            pages
                .range_mut(range)
                .for_each(|(_, page)| page.rights = rights);
        });
    }

    pub(crate) fn release(range: Range<u64>) {
        PAGES.with_borrow_mut(|pages| pages.retain(|at, _| !range.contains(at)));
    }

    pub(crate) fn relocate(
        from: Range<u64>,
        to: u64,
        rights: Rights,
    ) -> Option<Result<(), NoMemory>> {
        if fixed().contains(&from.start) || fixed().contains(&to) {
            return None;
        }
        PAGES.with_borrow_mut(|pages| {
            let held: Vec<u64> = pages.range(from.clone()).map(|(at, _)| *at).collect();
            for at in held {
                if let Some(mut page) = pages.remove(&at) {
                    page.rights = rights;
                    pages.insert(to + (at - from.start), page);
                }
            }
        });
        Some(Ok(()))
    }

    pub(crate) fn read(address: u64, to: &mut [u8]) -> bool {
        to.iter_mut().zip(address..).all(|(byte, at)| {
            let found = with(at, |page| {
                (page.rights != Rights::default()).then(|| page.bytes[(at % PAGE) as usize])
            });
            found.map(|found| *byte = found).is_some()
        })
    }

    pub(crate) fn write(address: u64, from: &[u8]) -> bool {
        from.iter().zip(address..).all(|(byte, at)| {
            with(at, |page| {
                assert!(
                    !(page.rights.write && page.is_lent),
                    "what is lent is never written"
                );
                page.rights
                    .write
                    .then(|| page.bytes[(at % PAGE) as usize] = *byte)
            })
            .is_some()
        })
    }

    fn with<R>(address: u64, act: impl FnOnce(&mut Page) -> Option<R>) -> Option<R> {
        PAGES.with_borrow_mut(|pages| act(pages.get_mut(&(address & !(PAGE - 1)))?))
    }

    pub(crate) fn is_writable(address: u64) -> bool {
        with(address, |page| page.rights.write.then_some(())).is_some()
    }

    pub(crate) fn load_u32(address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (address.is_multiple_of(4) && read(address, &mut bytes)).then(|| u32::from_le_bytes(bytes))
    }

    pub(crate) fn exchange_u32(address: u64, expected: u32, new: u32) -> Option<u32> {
        let held = load_u32(address)?;
        (held != expected || write(address, &new.to_le_bytes())).then_some(held)
    }

    pub(crate) fn store_u64(address: u64, value: u64) -> bool {
        address.is_multiple_of(8) && write(address, &value.to_le_bytes())
    }
}
#[cfg(not(target_os = "none"))]
pub(crate) use host::*;

/// Replaces a page that is lent by a copy, which may be written; whether there was memory.
pub(crate) fn own(address: u64, rights: Rights) -> bool {
    let page = address & !(PAGE - 1);
    if !is_lent(page) {
        return true;
    }
    let mut bytes = alloc::vec![0; PAGE as usize];
    if !read(page, &mut bytes) {
        return false;
    }
    release(page..page + PAGE);
    populate(page..page + PAGE, rights, &bytes).is_ok()
}
