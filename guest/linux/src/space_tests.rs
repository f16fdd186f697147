//! Tests of areas and faults, on the host's pages.

#![allow(clippy::single_range_in_vec_init)]

use super::*;
use crate::memory::LARGE;
use alloc::vec::Vec;

fn anonymous(rights: Rights) -> Area {
    Area {
        end: 0,
        rights,
        backing: Backing::Anonymous,
        name: "",
    }
}

const READ: Rights = Rights {
    read: true,
    write: false,
    execute: false,
};
const NONE: Rights = Rights {
    read: false,
    write: false,
    execute: false,
};

fn ranges(space: &Space) -> Vec<Range<u64>> {
    space.areas().map(|(start, area)| start..area.end).collect()
}

#[test]
fn neighbours_merge_and_holes_split() {
    let mut space = Space::new();
    let base = MAPPINGS.start;
    assert_eq!(space.map(base..base + 4 * PAGE, anonymous(DATA)), Ok(()));
    let next = base + 4 * PAGE..base + 8 * PAGE;
    assert_eq!(space.map(next, anonymous(DATA)), Ok(()));
    assert_eq!(ranges(&space), [base..base + 8 * PAGE]);
    space.unmap(base + 2 * PAGE..base + 3 * PAGE);
    assert_eq!(
        ranges(&space),
        [base..base + 2 * PAGE, base + 3 * PAGE..base + 8 * PAGE]
    );
    assert!(!space.is_mapped(&(base..base + 3 * PAGE)));
    assert!(space.is_mapped(&(base + 3 * PAGE..base + 8 * PAGE)));
}

#[test]
fn addresses_that_were_unmapped_are_used_again_lowest_first() {
    let mut space = Space::new();
    let take = |space: &mut Space, pages: u64| {
        let start = space.find(pages * PAGE, 0).expect("room");
        let range = start..start + pages * PAGE;
        space.map(range.clone(), anonymous(DATA)).expect("mapped");
        range
    };
    let at = |page: u64| MAPPINGS.start + page * PAGE;
    let first = take(&mut space, 4);
    let second = take(&mut space, 4);
    assert_eq!((first.start, second.start), (at(0), at(4)));
    // However long it goes on.
    for pages in (1..9).cycle().take(10_000) {
        let range = take(&mut space, pages);
        assert_eq!(range.start, at(8));
        space.unmap(range);
    }
    // A hole that is too small is passed over, and is used when one fits.
    space.unmap(first);
    let large = take(&mut space, 5);
    assert_eq!(large.start, at(8));
    assert_eq!(take(&mut space, 3).start, at(0));
    assert_eq!(take(&mut space, 1).start, at(3));
    assert_eq!(take(&mut space, 1).start, at(13));
    // What another range reaches into from below counts too.
    space.unmap(at(2)..at(6));
    assert_eq!(take(&mut space, 4).start, at(2));
}

#[test]
fn no_address_is_found_where_all_are_taken() {
    let mut space = Space::new();
    let all = MAPPINGS.end - MAPPINGS.start;
    assert_eq!(space.find(all, 0), Ok(MAPPINGS.start));
    space.map(MAPPINGS, anonymous(NONE)).expect("mapped");
    assert_eq!(space.find(PAGE, 0), Err(Errno::ENOMEM));
    space.unmap(MAPPINGS.end - PAGE..MAPPINGS.end);
    assert_eq!(space.find(PAGE, 0), Ok(MAPPINGS.end - PAGE));
    assert_eq!(space.find(2 * PAGE, 0), Err(Errno::ENOMEM));
}

#[test]
fn a_first_use_brings_16_pages_and_64_where_use_goes_on() {
    let mut space = Space::new();
    let start = space.find(512 * PAGE, 0).expect("room");
    space
        .map(start..start + 512 * PAGE, anonymous(DATA))
        .expect("mapped");
    let held = || {
        let pages = (0..512).map(|page| start + page * PAGE);
        pages.filter(|page| memory::is_held(*page)).count()
    };
    let first = start.next_multiple_of(64 * PAGE) + 64 * PAGE;
    assert_eq!(space.fault(first + PAGE, Access::Write), Ok(()));
    assert_eq!(held(), 16);
    // The rest of these 64, then all of the next.
    assert_eq!(space.fault(first + 16 * PAGE, Access::Write), Ok(()));
    assert_eq!(held(), 64);
    assert_eq!(space.fault(first + 64 * PAGE, Access::Write), Ok(()));
    assert_eq!(held(), 128);
    assert_eq!(space.fault(first + 250 * PAGE, Access::Write), Ok(()));
    assert_eq!(held(), 256, "as many as are there");
}

#[test]
fn what_grows_behind_a_page_that_is_there_comes_without_a_fault() {
    let mut space = Space::new();
    let held = |from: u64| {
        (0..600)
            .take_while(|page| memory::is_held(from + page * PAGE))
            .count()
    };
    let at = BREAK.start;
    memory::release(BREAK.start..BREAK.start + 2 * LARGE);
    space.set_break(at + 40 * PAGE);
    assert_eq!(held(at), 0, "a first use brings it");
    assert_eq!(space.fault(at + 20 * PAGE, Access::Write), Ok(()));
    space.set_break(at + 80 * PAGE);
    assert!(
        !memory::is_held(at + 40 * PAGE),
        "the page before is not there"
    );
    assert_eq!(space.fault(at + 79 * PAGE, Access::Write), Ok(()));
    space.set_break(at + 100 * PAGE);
    assert_eq!(held(at + 64 * PAGE), 36);
    space.set_break(at + 300 * PAGE);
    assert_eq!(held(at + 64 * PAGE), 36 + 64, "no more at once");
    // What may come as a large page does.
    assert_eq!(space.fault(at + 299 * PAGE, Access::Write), Ok(()));
    space.set_break(at + 2 * LARGE);
    assert_eq!(held(at + 299 * PAGE), 65);
    // The heap of another thread grows by `mprotect`.
    let start = space.find(128 * PAGE, 0).expect("room");
    memory::release(start..start + 128 * PAGE);
    let all = start..start + 128 * PAGE;
    space.map(all, anonymous(NONE)).expect("mapped");
    space
        .protect(start..start + 4 * PAGE, DATA)
        .expect("protected");
    assert_eq!(held(start), 0);
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    space
        .protect(start + 4 * PAGE..start + 6 * PAGE, DATA)
        .expect("protected");
    assert_eq!(held(start), 6);
    space
        .protect(start + 6 * PAGE..start + 7 * PAGE, READ)
        .expect("protected");
    assert_eq!(held(start), 6);
}

#[test]
fn a_fault_brings_pages_with_the_areas_rights() {
    let mut space = Space::new();
    let start = space.find(64 * PAGE, 0).expect("room");
    space
        .map(start..start + 64 * PAGE, anonymous(DATA))
        .expect("mapped");
    assert!(!memory::read(start, &mut [0]));
    assert_eq!(space.fault(start + 5, Access::Write), Ok(()));
    assert!(memory::write(start, &[7]));
    space.protect(start..start + PAGE, READ).expect("protected");
    assert!(!memory::write(start, &[8]));
    assert_eq!(space.fault(start, Access::Write), Err(Denied::Rights));
    space.protect(start..start + PAGE, NONE).expect("protected");
    assert!(!memory::read(start, &mut [0]));
    space.protect(start..start + PAGE, READ).expect("protected");
    let mut byte = [0];
    assert!(memory::read(start, &mut byte));
    assert_eq!(byte, [7]);
    space.unmap(start..start + 64 * PAGE);
    assert_eq!(space.fault(start, Access::Read), Err(Denied::NotMapped));
    assert!(!memory::read(start, &mut byte));
}

#[test]
fn a_files_pages_have_its_bytes_and_zeros_behind_them() {
    let mut space = Space::new();
    let start = space.find(2 * PAGE, 0).expect("room");
    let content: Vec<u8> = (0..6000_u32).map(|n| n as u8).collect();
    let area = Area {
        backing: Backing::File {
            bytes: Bytes::new(&content),
            offset: 0,
            end: 5000,
        },
        ..anonymous(READ)
    };
    space.map(start..start + 2 * PAGE, area).expect("mapped");
    space.split(start + PAGE);
    assert_eq!(space.fault(start + PAGE, Access::Read), Ok(()));
    let mut read = [9; 1000];
    assert!(memory::read(start + PAGE, &mut read));
    assert_eq!(read[..904], content[4096..5000]);
    assert_eq!(read[904..], [0; 96]);
}

#[test]
fn ranges_are_found_where_nothing_is() {
    let mut space = Space::new();
    let first = space.find(4 * PAGE, 0).expect("room");
    space
        .map(first..first + 4 * PAGE, anonymous(NONE))
        .expect("mapped");
    let second = space.find(PAGE, first).expect("room");
    assert!(second >= first + 4 * PAGE);
    let hint = first + 100 * PAGE;
    assert_eq!(space.find(PAGE, hint), Ok(hint));
    assert_eq!(space.find(PAGE, hint + 1), Ok(hint), "the whole page");
    // SBCL and others need what they have at an address below all mappings.
    let low = memory::fixed().start + 16 * PAGE;
    assert_eq!(space.find(PAGE, low), Ok(low));
    assert!(space.find(PAGE, u64::MAX).is_ok_and(|it| it >= first));
    assert_eq!(space.find(!(PAGE - 1), 0), Err(Errno::ENOMEM));
    let wrong = space.map(0x1000..0x2000, anonymous(NONE));
    assert_eq!(wrong, Err(Errno::ENOMEM));
}

#[test]
fn the_break_moves_both_ways() {
    let mut space = Space::new();
    let start = space.set_break(0);
    assert_eq!(space.set_break(start + 10), start + 10);
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    assert_eq!(space.set_break(start + 3 * PAGE), start + 3 * PAGE);
    assert_eq!(space.set_break(start), start);
    assert_eq!(space.fault(start, Access::Write), Err(Denied::NotMapped));
    assert_eq!(space.set_break(u64::MAX), start);
}

#[test]
fn rights_that_come_back_leave_one_area() {
    let mut space = Space::new();
    let start = space.find(8 * PAGE, 0).expect("room");
    let whole = start..start + 8 * PAGE;
    space.map(whole.clone(), anonymous(DATA)).expect("mapped");
    for page in [0, 2, 4] {
        let part = start + page * PAGE..start + (page + 1) * PAGE;
        space.protect(part, NONE).expect("protected");
    }
    assert_eq!(ranges(&space).len(), 6);
    space.protect(whole.clone(), DATA).expect("protected");
    assert_eq!(ranges(&space), [whole]);
}

#[test]
fn rights_change_up_to_the_first_page_that_is_not_mapped() {
    let mut space = Space::new();
    let start = space.find(4 * PAGE, 0).expect("room");
    space
        .map(start..start + 4 * PAGE, anonymous(DATA))
        .expect("mapped");
    space.unmap(start + 2 * PAGE..start + 3 * PAGE);
    let changed = space.protect(start..start + 4 * PAGE, READ);
    assert_eq!(changed, Err(Errno::ENOMEM));
    assert_eq!(space.fault(start, Access::Write), Err(Denied::Rights));
    assert_eq!(space.fault(start + 3 * PAGE, Access::Write), Ok(()));
    let nothing = space.protect(start + 2 * PAGE..start + 4 * PAGE, READ);
    assert_eq!(nothing, Err(Errno::ENOMEM));
    assert_eq!(space.fault(start + 3 * PAGE, Access::Write), Ok(()));
}

#[test]
fn pages_without_rights_keep_their_bytes_when_they_move() {
    let mut space = Space::new();
    let start = space.find(2 * PAGE, 0).expect("room");
    let old = start..start + 2 * PAGE;
    space.map(old.clone(), anonymous(DATA)).expect("mapped");
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    assert!(memory::write(start, &[7]));
    space.protect(old.clone(), NONE).expect("protected");
    let to = space.find(8 * PAGE, 0).expect("room");
    assert_eq!(space.move_to(old, to, 8 * PAGE, Left::Nothing), Ok(()));
    assert!(!memory::read(to, &mut [0]));
    space.protect(to..to + PAGE, READ).expect("protected");
    let mut byte = [0];
    assert!(memory::read(to, &mut byte));
    assert_eq!(byte, [7]);
}

#[test]
fn a_move_takes_no_memory_for_pages() {
    let mut space = Space::new();
    let start = space.find(2 * PAGE, 0).expect("room");
    let old = start..start + 2 * PAGE;
    space.map(old.clone(), anonymous(DATA)).expect("mapped");
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    assert!(memory::write(start, &[7]));
    let to = space.find(8 * PAGE, 0).expect("room");
    memory::leave(0);
    let moved = space.move_to(old, to, 8 * PAGE, Left::Nothing);
    memory::leave(u64::MAX);
    assert_eq!(moved, Ok(()));
    assert_eq!(ranges(&space), [to..to + 8 * PAGE]);
    let mut byte = [0];
    assert!(memory::read(to, &mut byte) && !memory::is_held(start));
    assert_eq!(byte, [7]);
}

#[test]
fn a_move_from_a_fixed_address_without_memory_leaves_what_was_there() {
    let mut space = Space::new();
    let start = memory::fixed().start;
    let old = start..start + 2 * PAGE;
    space.map(old.clone(), anonymous(DATA)).expect("mapped");
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    space.protect(old.clone(), NONE).expect("protected");
    let to = space.find(8 * PAGE, 0).expect("room");
    memory::leave(1);
    let moved = space.move_to(old.clone(), to, 8 * PAGE, Left::Nothing);
    memory::leave(u64::MAX);
    assert_eq!(moved, Err(Errno::ENOMEM));
    assert_eq!(ranges(&space), [old]);
    assert!(!memory::is_held(to));
    for page in [start, start + PAGE] {
        assert!(memory::is_held(page) && !memory::is_writable(page));
    }
}

/// A file of the archive: two pages and a part of one.
#[repr(align(4096))]
struct Archived([u8; 2 * PAGE as usize + 100]);
static ARCHIVED: Archived = Archived([5; 2 * PAGE as usize + 100]);

/// A space with that file, and where it is.
fn archived(rights: Rights) -> (Space, u64) {
    let mut space = Space::new();
    let start = space.find(3 * PAGE, 0).expect("room");
    memory::release(start..start + 3 * PAGE);
    let area = Area {
        backing: Backing::File {
            bytes: Bytes::archived(&ARCHIVED.0),
            offset: 0,
            end: u64::MAX,
        },
        ..anonymous(rights)
    };
    space.map(start..start + 3 * PAGE, area).expect("mapped");
    (space, start)
}

#[test]
fn whole_pages_of_the_archive_are_lent_and_the_last_part_is_copied() {
    let (mut space, start) = archived(READ);
    memory::leave(1);
    assert_eq!(space.fault(start + PAGE, Access::Read), Ok(()));
    let lent = [0, 1, 2].map(|page| memory::is_lent(start + page * PAGE));
    assert_eq!(lent, [true, true, false], "lending takes no memory");
    let mut last = [9; PAGE as usize];
    assert!(memory::read(start + 2 * PAGE, &mut last));
    assert!(last[..100].iter().all(|byte| *byte == 5));
    assert!(
        last[100..].iter().all(|byte| *byte == 0),
        "not the next file's bytes"
    );
}

#[test]
fn a_page_that_can_be_written_is_a_copy() {
    let (mut space, start) = archived(DATA);
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    assert!(!memory::is_lent(start));
    // Lent first, and writable later.
    let (mut space, start) = archived(READ);
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    assert!(memory::is_lent(start));
    space.protect(start..start + PAGE, DATA).expect("protected");
    assert!(!memory::is_held(start) && memory::is_lent(start + PAGE));
    assert_eq!(space.fault(start, Access::Write), Ok(()));
    assert!(memory::write(start, &[6]));
    assert_eq!(ARCHIVED.0[0], 5);
    // Owned from now on, with what was written, whatever the rights become.
    space.protect(start..start + PAGE, READ).expect("protected");
    space.protect(start..start + PAGE, DATA).expect("protected");
    let mut byte = [0];
    assert!(memory::read(start, &mut byte));
    assert_eq!(byte, [6]);
}

#[test]
fn code_of_the_archive_is_copied_before_it_is_changed() {
    let (mut space, start) = archived(READ);
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    assert!(memory::own(start + 17, READ));
    assert!(!memory::is_lent(start) && memory::is_lent(start + PAGE));
    let mut bytes = [0; 20];
    assert!(memory::read(start, &mut bytes));
    assert_eq!(bytes, [5; 20]);
}

#[test]
fn a_file_that_was_written_is_not_lent() {
    let (mut space, start) = archived(READ);
    let (_, area) = space.area_of(start).expect("mapped");
    let Backing::File { bytes, .. } = &area.backing else {
        unreachable!("a file");
    };
    assert_eq!(bytes.write(0, &[8]), Ok(1));
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    assert!(!memory::is_lent(start));
}

#[test]
fn changed_pages_of_a_file_are_found_and_come_anew() {
    let mut space = Space::new();
    let start = space.find(2 * PAGE, 0).expect("room");
    memory::release(start..start + 2 * PAGE);
    let bytes = Bytes::new(&[1; 5000]);
    let file = |offset| Area {
        backing: Backing::File {
            bytes: bytes.clone(),
            offset,
            end: u64::MAX,
        },
        ..anonymous(DATA)
    };
    // Its second page before its first.
    space.map(start..start + PAGE, file(PAGE)).expect("mapped");
    let other = start + PAGE;
    space.map(other..other + PAGE, file(0)).expect("mapped");
    assert!(space.maps(&bytes) && !space.maps(&Bytes::new(&[])));
    assert_eq!(space.mapped_part(&bytes), 0..2 * PAGE);
    let all = start..other + PAGE;
    let is_mapped = |other: &Bytes| other.is(&bytes);
    assert!(space.next_changed(&all, is_mapped).is_none());
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    assert_eq!(space.fault(other, Access::Write), Ok(()));
    assert!(space.next_changed(&all, is_mapped).is_none());
    // Behind the file's end nothing is the file's.
    assert!(memory::write(start + 2000, &[7]));
    assert!(space.next_changed(&all, is_mapped).is_none());
    assert!(memory::write(start + 3, &[7]));
    let page = space.next_changed(&all, is_mapped).expect("a page");
    assert_eq!((page.at, page.offset), (start, PAGE));
    assert_eq!((page.was, page.now.len()), (vec![1; 904], 904));
    assert_eq!(page.now[2..5], [1, 7, 1]);
    assert!(page.bytes.is(&bytes));
    assert!(space.next_changed(&all, |_| false).is_none());
    assert!(space.next_changed(&(other..all.end), is_mapped).is_none());
    // What the file has instead of it comes with the next use.
    assert_eq!(bytes.write(PAGE + 3, &[9]), Ok(1));
    space.release_file(&bytes, &(PAGE + 3..PAGE + 4), false);
    assert!(memory::is_held(start), "it may be written");
    space.release_file(&bytes, &(PAGE + 3..PAGE + 4), true);
    assert!(!memory::is_held(start) && memory::is_held(other));
    assert_eq!(space.fault(start, Access::Read), Ok(()));
    let mut byte = [0];
    assert!(memory::read(start + 3, &mut byte));
    assert_eq!(byte, [9]);
}
