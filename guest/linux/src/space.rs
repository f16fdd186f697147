//! The program's address space: areas with rights and what backs them. Pages come on
//! the first use, several at once, and are the program's own: a private mapping of a
//! file has copies of its bytes. Where it cannot be written, and the file is still the archive's,
//! it has the archive's own pages (`memory::lend`).

mod area;
mod bring;
mod limits;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::errno::{Errno, Result};
use crate::files::Bytes;
use crate::memory::{self, DATA, PAGE, Rights, WINDOW};
use crate::sites::Sites;

pub(crate) use area::{Area, Backing, SHARED};
use bring::{around_anonymous, around_file, bring, go_on, large_around, run_around, take_back};
use limits::{SpaceLimits, bytes, is_data};

/// Most areas, as Linux has it (`vm.max_map_count`).
pub(crate) const MOST_AREAS: usize = 65_530;
/// Where mappings begin that may be anywhere.
const MAPPINGS: Range<u64> = 0x6000_1000_0000..RELOCATED;
/// Where programs begin that may be anywhere.
pub(crate) const RELOCATED: u64 = 0x6a00_0000_0000;
/// How far such a program may reach: to the break.
pub(crate) const RELOCATED_BYTES: u64 = BREAK.start - RELOCATED;
/// Where the break begins, and its limit.
const BREAK: Range<u64> = 0x6b00_0000_0000..0x6c00_0000_0000;
/// Where the first stack ends.
pub(crate) const STACK_TOP: u64 = 0x6fff_ffff_f000;
/// Its bytes, as Linux's limit is by default.
pub(crate) const FIRST_STACK_BYTES: u64 = 8 << 20;

/// What a program wants of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Execute,
}

/// Why an access fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Nothing is mapped there.
    NotMapped,
    /// The area does not allow it.
    Rights,
    /// A file's mapping beyond the file's end.
    BeyondFile,
    /// There is no memory for the page.
    NoMemory,
}

/// What stays where pages moved away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// The area, whose pages come anew.
    Area,
}

/// A page that a program changed in a mapping.
#[derive(Debug)]
pub(crate) struct ChangedPage {
    /// Its address.
    pub(crate) at: u64,
    /// What is mapped there, and where the page is in it.
    pub(crate) bytes: Bytes,
    pub(crate) offset: u64,
    /// Its content as it was mapped and as it is, as far as the bytes reach.
    pub(crate) was: Vec<u8>,
    pub(crate) now: Vec<u8>,
}

/// The address space.
#[derive(Debug)]
pub(crate) struct Space {
    areas: BTreeMap<u64, Area>,
    /// From the begin of [`MAPPINGS`] to here nothing is free.
    filled_until: u64,
    program_break: u64,
    pub(crate) limits: SpaceLimits,
    /// System calls of its code.
    pub(crate) sites: Sites,
}

impl Space {
    pub(crate) const fn new() -> Self {
        Self {
            areas: BTreeMap::new(),
            filled_until: MAPPINGS.start,
            program_break: BREAK.start,
            limits: SpaceLimits::NONE,
            sites: Sites::new(),
        }
    }

    /// The area that holds `address`, and where it begins.
    pub(crate) fn area_of(&self, address: u64) -> Option<(u64, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some((start, area))
    }

    /// The first free range of `bytes`, whole pages, behind the area that holds `address`.
    pub(crate) fn find_behind(&self, address: u64, bytes: u64) -> Option<u64> {
        let (_, area) = self.area_of(address)?;
        let mut at = area.end;
        for (start, area) in self.areas.range(at..) {
            if start - at >= bytes {
                break;
            }
            at = area.end;
        }
        is_own(&(at..at.checked_add(bytes)?)).then_some(at)
    }

    /// Whether what is mapped in place of `range` may have these rights.
    pub(crate) fn may_map(&self, range: &Range<u64>, rights: Rights, name: &str) -> Result<()> {
        if self.limits.is_none() {
            return Ok(());
        }
        let replaced: u64 = self.parts(range).map(|part| part.end - part.start).sum();
        self.may_expand(range.end - range.start - replaced, rights, name)
    }

    /// Whether there may be `more` bytes with these rights.
    pub(crate) fn may_expand(&self, more: u64, rights: Rights, name: &str) -> Result<()> {
        self.limits
            .may_expand(self.areas(), more, is_data(rights, name))
    }

    /// Bytes of all areas.
    pub(crate) fn bytes(&self) -> u64 {
        bytes(self.areas())
    }

    /// The areas, ascending.
    pub(crate) fn areas(&self) -> impl Iterator<Item = (u64, &Area)> + Clone {
        self.areas.iter().map(|(start, area)| (*start, area))
    }

    /// Maps `range`, in place of whatever was there.
    pub(crate) fn map(&mut self, range: Range<u64>, mut area: Area) -> Result<()> {
        if !is_own(&range) {
            return Err(Errno::ENOMEM);
        }
        if self.areas.len() >= MOST_AREAS {
            return Err(Errno::ENOMEM);
        }
        self.unmap(range.clone());
        area.end = range.end;
        let before = self.areas.range_mut(..range.start).next_back();
        if let Some((&start, before)) = before
            && before.continues(start, range.start, &area)
        {
            before.end = range.end;
        } else {
            self.areas.insert(range.start, area);
        }
        Ok(())
    }

    /// Takes away whatever is mapped in `range`.
    pub(crate) fn unmap(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        self.sites.forget(&range);
        if range.end > MAPPINGS.start {
            let first = range.start.max(MAPPINGS.start);
            self.filled_until = self.filled_until.min(first);
        }
        while let Some((&start, area)) = self.areas.range(range.clone()).next() {
            memory::release(start..area.end);
            self.areas.remove(&start);
        }
    }

    /// Takes everything away, and forgets the break: for another program. Limits stay.
    pub(crate) fn clear(&mut self) {
        let end = self.areas.values().map(|area| area.end).max();
        self.unmap(0..end.unwrap_or(0));
        *self = Self {
            limits: self.limits,
            ..Self::new()
        };
    }

    /// Gives the pages of `range` back, but for those of shared memory; the areas stay, as after
    /// `MADV_DONTNEED`.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        for part in self.parts(range) {
            let area = self.area_of(part.start);
            if area.is_none_or(|(_, area)| area.name != SHARED) {
                memory::release(part);
            }
        }
    }

    /// Whether a range is the program's own memory: of no file, and shared with nothing.
    pub(crate) fn is_own(&self, range: &Range<u64>) -> bool {
        self.parts(range).all(|part| {
            let area = self.area_of(part.start);
            area.is_some_and(|(_, area)| {
                matches!(area.backing, Backing::Anonymous) && area.name != SHARED
            })
        })
    }

    /// The file that is mapped at an address, and where that is in it.
    pub(crate) fn file_at(&self, address: u64) -> Option<(Bytes, u64)> {
        let (start, area) = self.area_of(address)?;
        match &area.backing {
            Backing::File { bytes, offset, .. } => {
                Some((bytes.clone(), offset + (address - start)))
            }
            Backing::Anonymous => None,
        }
    }

    /// Changes the rights of `range`, up to the first page that is not mapped: ENOMEM if there is one.
    pub(crate) fn protect(&mut self, range: Range<u64>, rights: Rights) -> Result<()> {
        let end = range.end;
        let mut range = range.start..range.start;
        for part in self.parts(&(range.start..end)) {
            if part.start != range.end {
                break;
            }
            range.end = part.end;
        }
        if range.is_empty() {
            return Err(Errno::ENOMEM);
        }
        self.split(range.start);
        self.split(range.end);
        if rights.write {
            self.limits.may_become_data(self.areas(), &range)?;
        }
        for (start, area) in self.areas.range_mut(range.clone()) {
            if area.rights != rights {
                area.rights = rights;
                if rights.write {
                    take_back(&(*start..area.end));
                }
                memory::set_rights(*start..area.end, rights);
            }
        }
        self.merge(&range);
        self.go_on(&range);
        if range.end == end {
            Ok(())
        } else {
            Err(Errno::ENOMEM)
        }
    }

    /// Makes one area of neighbours in and around `range` that differ in nothing.
    fn merge(&mut self, range: &Range<u64>) {
        let first = self.areas.range(..range.start).next_back();
        let mut at = first.map_or(range.start, |(start, _)| *start);
        loop {
            let mut pair = self.areas.range(at..=range.end);
            let (Some((&start, one)), Some((&next, two))) = (pair.next(), pair.next()) else {
                return;
            };
            if one.continues(start, next, two) {
                let end = two.end;
                self.areas.remove(&next);
                if let Some(area) = self.areas.get_mut(&start) {
                    area.end = end;
                }
                at = start;
            } else {
                at = next;
            }
        }
    }

    /// Whether every page of `range` is mapped.
    pub(crate) fn is_mapped(&self, range: &Range<u64>) -> bool {
        let mapped: u64 = self.parts(range).map(|part| part.end - part.start).sum();
        mapped == range.end - range.start
    }

    /// Whether some page of `range` is mapped.
    pub(crate) fn holds_some(&self, range: &Range<u64>) -> bool {
        self.parts(range).next().is_some()
    }

    /// The parts of `range` that are mapped.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (from, to) = (range.start, range.end);
        let first = self
            .areas
            .range(..=from)
            .next_back()
            .map_or(from, |(start, _)| *start);
        self.areas
            .range(first..to.max(first))
            .map(move |(start, area)| (*start).max(from)..area.end.min(to))
            .filter(|part| part.start < part.end)
    }

    /// Whether some area has pages of a file.
    pub(crate) fn maps(&self, file: &Bytes) -> bool {
        let mut areas = self.areas.values();
        areas.any(|area| matches!(&area.backing, Backing::File { bytes, .. } if bytes.is(file)))
    }

    /// The first page of a range that differs from the bytes that are mapped there, of those that
    /// `is_wanted` names.
    pub(crate) fn next_changed(
        &self,
        range: &Range<u64>,
        is_wanted: impl Fn(&Bytes) -> bool,
    ) -> Option<ChangedPage> {
        for part in self.parts(range) {
            let (start, area) = self.area_of(part.start)?;
            let Backing::File { bytes, offset, .. } = &area.backing else {
                continue;
            };
            if !is_wanted(bytes) {
                continue;
            }
            let mut rest = part.start & !(PAGE - 1)..part.end;
            while let Some(at) = memory::next_held(rest.clone()) {
                rest.start = at + PAGE;
                let offset = offset + (at - start);
                let mut was = vec![0; PAGE as usize];
                let count = bytes.read(offset, &mut was);
                was.truncate(count);
                let mut now = vec![0; count];
                if memory::read(at, &mut now) && now != was {
                    return Some(ChangedPage {
                        at,
                        bytes: bytes.clone(),
                        offset,
                        was,
                        now,
                    });
                }
            }
        }
        None
    }

    /// The part of a file that areas map, from the first to the last.
    pub(crate) fn mapped_part(&self, file: &Bytes) -> Range<u64> {
        let parts = self.areas.iter().filter_map(|(start, area)| {
            let Backing::File { bytes, offset, .. } = &area.backing else {
                return None;
            };
            let end = offset.saturating_add(area.end - start);
            bytes.is(file).then_some(*offset..end)
        });
        let join =
            |one: Range<u64>, other: Range<u64>| one.start.min(other.start)..one.end.max(other.end);
        parts.reduce(join).unwrap_or(0..0)
    }

    /// Gives pages of a range of a file back that are mapped from `file`, so that they come anew; those
    /// that may be written only if `also_writable`.
    pub(crate) fn release_file(&self, file: &Bytes, range: &Range<u64>, also_writable: bool) {
        for (start, area) in &self.areas {
            let Backing::File { bytes, offset, .. } = &area.backing else {
                continue;
            };
            if !bytes.is(file) || area.rights.write && !also_writable {
                continue;
            }
            let address = |at: u64| {
                start
                    .saturating_add(at.saturating_sub(*offset))
                    .min(area.end)
            };
            let first = address(range.start) & !(PAGE - 1);
            let end = address(range.end).next_multiple_of(PAGE);
            if first < end && range.end > *offset {
                memory::release(first.max(*start)..end.min(area.end));
            }
        }
    }

    /// A free range of `bytes`, whole pages: at `hint`, without its part of a page, if that is free.
    pub(crate) fn find(&mut self, bytes: u64, hint: u64) -> Result<u64> {
        let is_free = |space: &Self, start: u64| {
            let range = start..start + bytes;
            is_own(&range) && space.parts(&range).next().is_none()
        };
        if bytes == 0 || bytes > MAPPINGS.end - MAPPINGS.start {
            return Err(Errno::ENOMEM);
        }
        let hint = hint - hint % PAGE;
        if hint.checked_add(bytes).is_some() && is_free(self, hint) {
            return Ok(hint);
        }
        // What was unmapped is used again, and with it its page tables, which are never given back.
        while let Some((_, area)) = self.areas.range(..=self.filled_until).next_back()
            && area.end > self.filled_until
        {
            self.filled_until = area.end;
        }
        self.gap(self.filled_until, bytes).ok_or(Errno::ENOMEM)
    }

    /// The first gap from `from` on.
    fn gap(&self, from: u64, bytes: u64) -> Option<u64> {
        if from >= MAPPINGS.end {
            return None;
        }
        let before = self.areas.range(..from).next_back();
        let mut at = before.map_or(from, |(_, area)| area.end.max(from));
        for (start, area) in self.areas.range(from..MAPPINGS.end) {
            if *start - at.min(*start) >= bytes {
                break;
            }
            at = area.end.max(at);
        }
        (at.checked_add(bytes)? <= MAPPINGS.end).then_some(at)
    }

    /// Extends the area that ends at `end` and holds `start` to `new_end`, if nothing is
    /// in the way; says whether it did.
    pub(crate) fn grow(&mut self, start: u64, end: u64, new_end: u64) -> bool {
        let is_free = is_own(&(end..new_end)) && self.parts(&(end..new_end)).next().is_none();
        let area = self.areas.range_mut(..=start).next_back();
        match area {
            Some((_, area)) if is_free && area.end == end => {
                area.end = new_end;
                true
            }
            _ => false,
        }
    }

    /// Maps `bytes` at `to`, in place of whatever was there, as the area of `from` is mapped, whose
    /// pages move there; where they cannot, nothing changes at `from`.
    pub(crate) fn move_to(
        &mut self,
        from: Range<u64>,
        to: u64,
        bytes: u64,
        left: Left,
    ) -> Result<()> {
        let found = self.areas.range(..=from.start).next_back();
        let (start, area) = found
            .filter(|(_, area)| from.end <= area.end)
            .map(|(start, area)| (*start, area.clone()))
            .ok_or(Errno::EFAULT)?;
        let rights = area.rights;
        let backing = area.backing.advanced(from.start - start);
        let area = Area {
            rights,
            backing,
            ..area
        };
        self.map(to..to + bytes, area)?;
        self.restore_code(&from);
        // Without a copy: a block of more than half of the memory that is left moves too.
        let moved = match memory::relocate(from.clone(), to, rights) {
            Some(moved) => moved.map_err(|_| Errno::ENOMEM),
            None => copy_pages(from.clone(), to, rights),
        };
        match (moved, left) {
            (Err(_), _) => self.unmap(to..to + bytes),
            (Ok(()), Left::Nothing) => self.unmap(from),
            // Of pages that were copied.
            (Ok(()), Left::Area) => memory::release(from),
        }
        moved
    }

    /// Cuts the area at `address` in two.
    fn split(&mut self, address: u64) {
        let Some((&start, area)) = self.areas.range_mut(..address).next_back() else {
            return;
        };
        if area.end <= address {
            return;
        }
        let upper = Area {
            backing: area.backing.advanced(address - start),
            ..area.clone()
        };
        area.end = address;
        self.areas.insert(address, upper);
    }

    /// Moves the break; gives where it is.
    pub(crate) fn set_break(&mut self, wanted: u64) -> u64 {
        // Linux's limit of data holds for a break that goes back, too (`check_data_rlimit`).
        if !BREAK.contains(&wanted) || wanted - BREAK.start > self.limits.data {
            return self.program_break;
        }
        let old = self.program_break.next_multiple_of(PAGE);
        let new = wanted.next_multiple_of(PAGE);
        let area = Area {
            end: 0,
            rights: DATA,
            backing: Backing::Anonymous,
            name: "[heap]",
        };
        if new < old {
            self.unmap(new..old);
        } else if new > old {
            let may = may_commit(new - old);
            let may = may.and_then(|()| self.may_expand(new - old, DATA, area.name));
            if may.and_then(|()| self.map(old..new, area)).is_err() {
                return self.program_break;
            }
            self.go_on(&(old..new));
        }
        self.program_break = wanted;
        wanted
    }

    /// Brings pages of memory that grew by `range`, if a program will use them next.
    fn go_on(&self, range: &Range<u64>) {
        if let Some((start, area)) = self.area_of(range.start) {
            go_on(start, area, range);
        }
    }

    /// Brings the page at `address`, and some around it that are not there.
    pub(crate) fn fault(
        &mut self,
        address: u64,
        access: Access,
    ) -> core::result::Result<(), Denied> {
        let page = address & !(PAGE - 1);
        let Some((start, area)) = self.area_of(page) else {
            return Err(Denied::NotMapped);
        };
        let may = match access {
            Access::Read => any(area.rights),
            Access::Write => area.rights.write,
            Access::Execute => area.rights.execute,
        };
        if !may {
            return Err(Denied::Rights);
        }
        if access == Access::Write {
            take_back(&(page..page + PAGE));
        }
        if memory::is_large(page, area.rights) {
            // It came meanwhile.
            return Ok(());
        }
        if memory::is_held(page) {
            // It came meanwhile, or its rights changed under the processor's feet.
            memory::set_rights(page..page + PAGE, area.rights);
            return Ok(());
        }
        if let Backing::File { bytes, offset, end } = &area.backing
            && *end == u64::MAX
            && offset + (page - start) >= bytes.len()
        {
            return Err(Denied::BeyondFile);
        }
        if let Some(large) = large_around(page, start, area)
            && memory::populate_large(large, area.rights)
        {
            return Ok(());
        }
        let (around, end) = match &area.backing {
            Backing::Anonymous => (around_anonymous(page, start, area), area.end),
            // Memory behind the file's last page has no page of the file, even close to its end.
            Backing::File { bytes, offset, end } if *end == u64::MAX => {
                let rest = bytes.len().saturating_sub(*offset).next_multiple_of(PAGE);
                (around_file(area), area.end.min(start.saturating_add(rest)))
            }
            Backing::File { .. } => (around_file(area), area.end),
        };
        let window = around * PAGE;
        let low = (page - page % window).max(start);
        let high = (low - low % window + window).min(end);
        let run = run_around(page, low..high);
        let whole = bring(start, area, run);
        // Short of memory: this page alone.
        let brought = whole.or_else(|_| bring(start, area, page..page + PAGE));
        brought.map_err(|_| Denied::NoMemory)
    }
}

/// Copies the pages of `from` that are there, which have `rights`, to `to`.
fn copy_pages(from: Range<u64>, to: u64, rights: Rights) -> Result<()> {
    let mut page = vec![0; PAGE as usize];
    let mut rest = from.clone();
    while let Some(at) = memory::next_held(rest.clone()) {
        rest.start = at + PAGE;
        let is_hidden = !any(rights);
        if is_hidden {
            // Nothing reads what has no rights, but its contents move too.
            memory::set_rights(at..at + PAGE, DATA);
        }
        let is_read = memory::read(at, &mut page);
        if is_hidden {
            memory::set_rights(at..at + PAGE, rights);
        }
        if is_read {
            let target = to + (at - from.start);
            let brought = memory::populate(target..target + PAGE, rights, &page);
            brought.map_err(|_| Errno::ENOMEM)?;
        }
    }
    Ok(())
}

/// Whether a page with these rights can be used at all.
fn any(rights: Rights) -> bool {
    rights.read || rights.write || rights.execute
}

/// Whether a range may be the program's.
fn is_own(range: &Range<u64>) -> bool {
    let within = |own: Range<u64>| own.start <= range.start && range.end <= own.end;
    range.start < range.end && (within(WINDOW) || within(memory::fixed()))
}

/// Refuses what can never be there, as Linux does by default (`vm.overcommit_memory`).
pub(crate) fn may_commit(bytes: u64) -> Result<()> {
    match memory::total() {
        0 => Ok(()),
        total if bytes > total => Err(Errno::ENOMEM),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
