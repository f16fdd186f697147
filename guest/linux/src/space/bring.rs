//! Which pages come with one that a program uses, and where they come from.

use core::ops::Range;

use super::area::{Area, Backing};
use crate::files::Bytes;
use crate::memory::{self, LARGE, NoMemory, PAGE};

/// Pages that come at once where a program begins to use anonymous memory, and where it goes on
/// behind a page that is there: a first use is often of a page or two alone.
const AROUND: u64 = 16;
const AROUND_NEXT: u64 = 64;
/// Most of those that come since as many are there in the same 2 MiB.
const AROUND_MOST: u64 = 256;

/// Pages of a file that come at once: copies, and pages of the archive itself, which take no memory.
const AROUND_COPIED: u64 = 64;
const AROUND_LENT: u64 = 128;

/// The large page around `page` of anonymous memory that begins at `start`, if it lies within the
/// area, none of it is there, and use goes on behind a page that is there: a large page of which a
/// few pages are used wastes the others.
pub(super) fn large_around(page: u64, start: u64, area: &Area) -> Option<u64> {
    let large = page & !(LARGE - 1);
    let is_anonymous = matches!(area.backing, Backing::Anonymous);
    let is_within = large > start && large + LARGE <= area.end;
    let is_next =
        || memory::is_held(large - PAGE) && memory::next_held(large..large + LARGE).is_none();
    (is_anonymous && is_within && is_next()).then_some(large)
}

/// How many pages come with `page` of anonymous memory: as many as are there in the same 2 MiB, so
/// that memory which is used here and there takes at most twice as much, and few faults.
pub(super) fn around_anonymous(page: u64, start: u64, area: &Area) -> u64 {
    let below = page - page % (AROUND * PAGE);
    let goes_on = below > start && memory::is_held(below - PAGE);
    let first = if goes_on { AROUND_NEXT } else { AROUND };
    let large = page & !(LARGE - 1);
    let part = large.max(start)..(large + LARGE).min(area.end);
    let power = 1 << (memory::count_held(part) | 1).ilog2();
    first.max(power).min(AROUND_MOST)
}

/// Brings the first pages of `range` of anonymous memory, by which the area that begins at `start` grew,
/// where the page before is there: an allocator uses its new end at once, and a fault takes twice
/// the instructions.
pub(super) fn go_on(start: u64, area: &Area, range: &Range<u64>) {
    let is_anonymous = matches!(area.backing, Backing::Anonymous);
    let is_more = is_anonymous && area.rights.write && start < range.start;
    // What may come as a large page does.
    let large = range.start.next_multiple_of(LARGE);
    let is_large = large.saturating_add(LARGE) <= range.end;
    let most = if is_large { large } else { u64::MAX };
    let end = range
        .end
        .min(area.end)
        .min(range.start + AROUND_NEXT * PAGE);
    let run = range.start..end.min(most);
    if is_more
        && !run.is_empty()
        && memory::is_held(run.start - PAGE)
        && memory::next_held(run.clone()).is_none()
    {
        // Without memory they come one by one.
        memory::populate(run, area.rights, &[]).ok();
    }
}

pub(super) fn around_file(area: &Area) -> u64 {
    if area.rights.write {
        AROUND_COPIED
    } else {
        AROUND_LENT
    }
}

/// The pages around `page` that are not there, without a gap.
pub(super) fn run_around(page: u64, within: Range<u64>) -> Range<u64> {
    let mut run = page..page + PAGE;
    while run.end < within.end && !memory::is_held(run.end) {
        run.end += PAGE;
    }
    while run.start > within.start && !memory::is_held(run.start - PAGE) {
        run.start -= PAGE;
    }
    run
}

pub(super) fn bring(start: u64, area: &Area, run: Range<u64>) -> Result<(), NoMemory> {
    match &area.backing {
        Backing::Anonymous => memory::populate(run, area.rights, &[]),
        Backing::File { bytes, offset, end } => {
            let at = offset + (run.start - start);
            let end = at.saturating_add(run.end - run.start).min(*end);
            let lent = lend(run.start, area, bytes, at..end);
            let (run, at) = (run.start + lent..run.end, at + lent);
            if run.is_empty() {
                return Ok(());
            }
            let populate = |part: &[u8]| memory::populate(run, area.rights, part);
            bytes.with(at, end, populate).unwrap_or(Err(NoMemory))
        }
    }
}

/// Lends a program the archive's own pages of a range of a file, as far as they are whole, for
/// an area that it cannot write; how many bytes.
fn lend(start: u64, area: &Area, bytes: &Bytes, range: Range<u64>) -> u64 {
    let Some(archive) = bytes.archive().filter(|_| !area.rights.write) else {
        return 0;
    };
    let end = range.end.min(archive.len() as u64);
    let whole = end.saturating_sub(range.start) & !(PAGE - 1);
    let part = range.start as usize..(range.start + whole) as usize;
    match archive.get(part) {
        Some(part) if whole > 0 && memory::lend(start, area.rights, part) => whole,
        _ => 0,
    }
}

/// Takes lent pages away from a range that can be written from now on: copies come with their
/// next use.
pub(super) fn take_back(range: &Range<u64>) {
    let mut at = range.start;
    while let Some(page) = memory::next_held(at..range.end) {
        if memory::is_lent(page) {
            memory::release(page..page + PAGE);
        }
        at = page + PAGE;
    }
}
