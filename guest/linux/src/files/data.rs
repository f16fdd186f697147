//! The bytes of a file in memory: pages that were written, over what the archive holds. Where
//! neither is, a file has zeros that take no memory, as a sparse file of Linux.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::heap;
use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};

/// Bytes of a page of a file.
const PAGE: u64 = 4096;
/// Where the longest file ends, as in Linux's tmpfs.
const MOST: u64 = i64::MAX as u64;

/// A handle to a file's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Arc<SpinLock<Content>>);

#[derive(Debug)]
struct Content {
    /// What the archive holds; a cut shortens it for good.
    archived: &'static [u8],
    length: u64,
    /// Pages by number, in place of the archive's. What a page lacks at its end is zeros; none
    /// has bytes behind the file's end.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    /// The archive's bytes, while they are the whole file.
    fn archive(&self) -> Option<&'static [u8]> {
        let is_whole = self.pages.is_empty() && self.length == self.archived.len() as u64;
        is_whole.then_some(self.archived)
    }

    /// The archive's part of a page.
    fn archived_page(&self, number: u64) -> &'static [u8] {
        let end = self.archived.len();
        let start = (number * PAGE).min(end as u64) as usize;
        &self.archived[start..(start + PAGE as usize).min(end)]
    }

    /// The first page behind the archive's.
    fn behind_archive(&self) -> u64 {
        (self.archived.len() as u64).div_ceil(PAGE)
    }

    /// Fills `to` from `offset` on; all of it must lie before the file's end.
    fn copy_to(&self, mut offset: u64, mut to: &mut [u8]) {
        if let Some(archive) = self.archive().filter(|_| !to.is_empty()) {
            let from = offset as usize;
            to.copy_from_slice(&archive[from..from + to.len()]);
            return;
        }
        while !to.is_empty() {
            let in_page = (offset % PAGE) as usize;
            let count = to.len().min(PAGE as usize - in_page);
            let (part, rest) = to.split_at_mut(count);
            let page = match self.pages.get(&(offset / PAGE)) {
                Some(page) => page,
                None => self.archived_page(offset / PAGE),
            };
            let there = page.get(in_page..).unwrap_or_default();
            let there = &there[..there.len().min(count)];
            part[..there.len()].copy_from_slice(there);
            part[there.len()..].fill(0);
            offset += count as u64;
            to = rest;
        }
    }

    /// Writes at `offset`, as far as there is memory; gives how many bytes.
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<usize> {
        if from.is_empty() {
            // Also behind the end: nothing comes there.
            return Ok(0);
        }
        if offset >= MOST {
            return Err(Errno::EFBIG);
        }
        let most = (MOST - offset).min(from.len() as u64) as usize;
        let mut done = 0;
        while done < most {
            let at = offset + done as u64;
            let in_page = (at % PAGE) as usize;
            let part = &from[done..most.min(done + PAGE as usize - in_page)];
            match self.page_for_writing(at / PAGE, in_page + part.len()) {
                Ok(page) => page[in_page..in_page + part.len()].copy_from_slice(part),
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            done += part.len();
            self.length = self.length.max(at + part.len() as u64);
        }
        Ok(done)
    }

    /// A page with `bytes` bytes at least.
    fn page_for_writing(&mut self, number: u64, bytes: usize) -> Result<&mut [u8]> {
        let archived = self.archived_page(number);
        let page = match self.pages.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut page = Vec::new();
                reserve(&mut page, archived.len().max(bytes))?;
                page.extend_from_slice(archived);
                entry.insert(page)
            }
        };
        if page.len() < bytes {
            reserve(page, bytes)?;
            page.resize(bytes, 0);
        }
        Ok(page)
    }

    fn set_len(&mut self, length: u64) {
        if length < self.length {
            let kept = length.min(self.archived.len() as u64) as usize;
            self.archived = &self.archived[..kept];
            drop(self.pages.split_off(&length.div_ceil(PAGE)));
            if let Some(page) = self.pages.get_mut(&(length / PAGE)) {
                page.truncate((length % PAGE) as usize);
            }
        }
        self.length = length;
    }
}

/// Makes room for `bytes` bytes in a page. It doubles, so that small files take little.
fn reserve(page: &mut Vec<u8>, bytes: usize) -> Result<()> {
    if bytes <= page.capacity() {
        return Ok(());
    }
    let wanted = bytes.max(page.capacity() * 2).min(PAGE as usize);
    if heap::has_room(wanted) && page.try_reserve_exact(wanted - page.len()).is_ok() {
        Ok(())
    } else {
        Err(Errno::ENOSPC)
    }
}

impl Bytes {
    /// Bytes that stay as long as the appliance runs.
    pub(crate) fn archived(bytes: &'static [u8]) -> Self {
        Self::of(Content {
            archived: bytes,
            length: bytes.len() as u64,
            pages: BTreeMap::new(),
        })
    }

    /// Bytes that belong to this file.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let pages = bytes.chunks(PAGE as usize).map(Vec::from);
        Self::of(Content {
            archived: &[],
            length: bytes.len() as u64,
            pages: (0..).zip(pages).collect(),
        })
    }

    fn of(content: Content) -> Self {
        Self(Arc::new(SpinLock::new(content)))
    }

    /// The archive's bytes, unless the file was changed.
    pub(crate) fn archive(&self) -> Option<&'static [u8]> {
        self.0.lock().archive()
    }

    /// Whether both are of one file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The same for all handles to one file's bytes, and for no others while one is there.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.lock().length
    }

    /// Bytes of the pages that it has, in memory or in the archive.
    pub(crate) fn allocated(&self) -> u64 {
        let content = self.0.lock();
        let archived = content.behind_archive();
        let own = content.pages.len() - content.pages.range(..archived).count();
        (archived + own as u64) * PAGE
    }

    /// Copies from `offset`; gives how many bytes there were.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let content = self.0.lock();
        let rest = content.length.saturating_sub(offset);
        let count = rest.min(to.len() as u64) as usize;
        content.copy_to(offset, &mut to[..count]);
        count
    }

    /// Calls `act` with the bytes from `offset` to `end`, as far as there are any.
    ///
    /// # Errors
    /// ENOMEM: what is not the archive's is copied first, and there is no memory for that.
    pub(crate) fn with<R>(&self, offset: u64, end: u64, act: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let content = self.0.lock();
        let end = end.min(content.length);
        let from = offset.min(end);
        if let Some(archive) = content.archive() {
            return Ok(act(&archive[from as usize..end as usize]));
        }
        let count = (end - from) as usize;
        let mut bytes = Vec::new();
        if !heap::has_room(count) || bytes.try_reserve_exact(count).is_err() {
            return Err(Errno::ENOMEM);
        }
        bytes.resize(count, 0);
        content.copy_to(from, &mut bytes);
        Ok(act(&bytes))
    }

    /// Writes at `offset`, as far as there is memory; gives how many bytes. Between the end of
    /// the file and `offset` it has zeros from then on.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<usize> {
        self.0.lock().write(offset, from)
    }

    /// Writes at the end, as far as there is memory; gives where the bytes are.
    pub(crate) fn append(&self, from: &[u8]) -> Result<Range<u64>> {
        let mut content = self.0.lock();
        let start = content.length;
        let count = content.write(start, from)?;
        Ok(start..start + count as u64)
    }

    /// Cuts, or adds zeros.
    pub(crate) fn set_len(&self, length: u64) -> Result<()> {
        if length > MOST {
            return Err(Errno::EFBIG);
        }
        self.0.lock().set_len(length);
        Ok(())
    }

    /// Takes memory for all of a range, which is not empty, so that no write to it can fail; the
    /// file reaches its end at least (`fallocate(2)`).
    pub(crate) fn allocate(&self, range: &Range<u64>) -> Result<()> {
        if range.end > MOST {
            return Err(Errno::EFBIG);
        }
        let mut content = self.0.lock();
        let numbers = range.start / PAGE..range.end.div_ceil(PAGE);
        let there = content.pages.range(numbers.clone()).count() as u64;
        let missing = (numbers.end - numbers.start - there).saturating_mul(PAGE);
        if !usize::try_from(missing).is_ok_and(heap::has_room) {
            return Err(Errno::ENOSPC);
        }
        for number in numbers {
            let bytes = (range.end - number * PAGE).min(PAGE);
            content.page_for_writing(number, bytes as usize)?;
        }
        content.length = content.length.max(range.end);
        Ok(())
    }

    /// The first byte from `offset` on that is in a page of the file (`SEEK_DATA`).
    pub(crate) fn data_from(&self, offset: u64) -> Option<u64> {
        let content = self.0.lock();
        if offset >= content.length {
            return None;
        }
        let number = offset / PAGE;
        if number < content.behind_archive() {
            return Some(offset);
        }
        let (number, _) = content.pages.range(number..).next()?;
        Some(offset.max(number * PAGE))
    }

    /// The first byte from `offset` on that is in no page, or the file's end (`SEEK_HOLE`).
    pub(crate) fn hole_from(&self, offset: u64) -> Option<u64> {
        let content = self.0.lock();
        if offset >= content.length {
            return None;
        }
        let first = (offset / PAGE).max(content.behind_archive());
        let there = content.pages.range(first..).zip(first..);
        let count = there.take_while(|((number, _), next)| **number == *next);
        let hole = (first + count.count() as u64) * PAGE;
        Some(hole.max(offset).min(content.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archives_bytes_are_copied_by_the_first_write() {
        let archived: &'static [u8] = b"hello world";
        let bytes = Bytes::archived(archived);
        let other = bytes.clone();
        assert_eq!(bytes.write(6, b"there"), Ok(5));
        let mut read = [0; 20];
        assert_eq!(other.read(0, &mut read), 11);
        assert_eq!(&read[..11], b"hello there");
        assert_eq!(archived, b"hello world");
        assert_eq!(bytes.archive(), None);
    }

    #[test]
    fn writes_beyond_the_end_leave_zeros() {
        let bytes = Bytes::new(&[]);
        assert_eq!(bytes.write(3, b"x"), Ok(1));
        assert_eq!(bytes.append(b"y"), Ok(4..5));
        let mut read = [9; 8];
        assert_eq!(bytes.read(0, &mut read), 5);
        assert_eq!(&read, b"\0\0\0xy\x09\x09\x09");
        let part = bytes.with(1, 4, <[u8]>::to_vec);
        assert_eq!(part.as_deref(), Ok(&b"\0\0x"[..]));
        assert_eq!(bytes.write(9, b""), Ok(0));
        assert_eq!(bytes.len(), 5);
        assert_eq!(bytes.read(9, &mut read), 0);
    }

    #[test]
    fn lengths_change_both_ways() {
        let bytes = Bytes::archived(b"abc");
        assert_eq!(bytes.set_len(5), Ok(()));
        assert_eq!(bytes.len(), 5);
        assert_eq!(bytes.set_len(2), Ok(()));
        assert_eq!(bytes.set_len(4), Ok(()));
        // What was cut does not come back.
        assert_eq!(
            bytes.with(0, 9, <[u8]>::to_vec).as_deref(),
            Ok(&b"ab\0\0"[..])
        );
        assert_eq!(bytes.set_len(0), Ok(()));
        assert_eq!(bytes.len(), 0);
        assert_eq!(bytes.set_len(u64::MAX), Err(Errno::EFBIG));
    }

    #[test]
    fn a_byte_far_out_takes_a_page() {
        const FAR: u64 = 1 << 40;
        let bytes = Bytes::new(&[]);
        assert_eq!(bytes.write(FAR, b"x"), Ok(1));
        assert_eq!((bytes.len(), bytes.allocated()), (FAR + 1, PAGE));
        let mut read = [9; 8];
        assert_eq!(bytes.read(FAR - 4, &mut read), 5);
        assert_eq!(&read[..5], b"\0\0\0\0x");
        assert_eq!(bytes.set_len(FAR), Ok(()));
        assert_eq!((bytes.len(), bytes.allocated()), (FAR, 0));
        assert_eq!(bytes.write(u64::MAX, b"x"), Err(Errno::EFBIG));
        // As Linux: what fits before the limit, then an error.
        assert_eq!(bytes.write(MOST - 1, b"xy"), Ok(1));
        assert_eq!(bytes.append(b"x"), Err(Errno::EFBIG));
        assert_eq!(bytes.append(b""), Ok(MOST..MOST));
    }

    #[test]
    fn data_and_holes_are_found_by_pages() {
        let bytes = Bytes::archived(&[7; 5000]);
        assert_eq!(bytes.set_len(100_000), Ok(()));
        assert_eq!(bytes.write(50_000, b"x"), Ok(1));
        assert_eq!(bytes.write(4096, b"y"), Ok(1));
        assert_eq!(bytes.allocated(), 3 * PAGE);
        for (offset, data, hole) in [
            (0, Some(0), Some(8192)),
            (8191, Some(8191), Some(8192)),
            (8192, Some(49_152), Some(8192)),
            (49_152, Some(49_152), Some(53_248)),
            (53_248, None, Some(53_248)),
            (99_999, None, Some(99_999)),
            (100_000, None, None),
        ] {
            assert_eq!(bytes.data_from(offset), data, "{offset}");
            assert_eq!(bytes.hole_from(offset), hole, "{offset}");
        }
        assert_eq!(bytes.allocate(&(90_000..100_001)), Ok(()));
        assert_eq!((bytes.len(), bytes.allocated()), (100_001, 7 * PAGE));
        assert_eq!(bytes.hole_from(90_000), Some(100_001));
    }

    /// Random writes, cuts and reads give what a plain vector gives.
    #[test]
    fn a_file_behaves_as_a_vector() {
        const ARCHIVED: [u8; 9000] = [3; 9000];
        let mut state = 1_u64;
        let mut below = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % most
        };
        let bytes = Bytes::archived(&ARCHIVED);
        let mut model = ARCHIVED.to_vec();
        for turn in 0..3000 {
            let (at, count) = (below(20_000) as usize, below(6000) as usize);
            match below(4) {
                0 => {
                    assert_eq!(bytes.set_len(at as u64), Ok(()));
                    model.resize(at, 0);
                }
                1 => {
                    let from = [turn as u8; 6000];
                    assert_eq!(bytes.write(at as u64, &from[..count]), Ok(count));
                    if count > 0 {
                        model.resize(model.len().max(at + count), 0);
                        model[at..at + count].fill(turn as u8);
                    }
                }
                _ => {
                    let mut read = [9; 6000];
                    let there = bytes.read(at as u64, &mut read[..count]);
                    let expected = model.get(at..).unwrap_or_default();
                    let expected = &expected[..expected.len().min(count)];
                    assert_eq!(&read[..there], expected, "turn {turn}");
                }
            }
            assert_eq!(bytes.len(), model.len() as u64);
        }
    }
}
