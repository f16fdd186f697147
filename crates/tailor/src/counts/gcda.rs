//! Counts of one object file as gcc stores them (`gcc/gcov-io.h`): a header, then records of a tag, a length
//! and words, all little-endian.
//!
//! They come out of a guest. What is read here is their outer form, so that no damaged file reaches a build; gcc
//! reads the rest in the jail of builds, and holds each function's checksum against its source.

use std::ops::Range;

/// First word of a file, `gcda`.
const MAGIC: u32 = 0x6763_6461;
/// Record of a function.
const FUNCTION: u32 = 0x0100_0000;
/// Record of a function's counters of one kind, of which there are eight (`gcov-counter.def`).
const COUNTERS: u32 = 0x01a1_0000;
const COUNTER_KINDS: u32 = 8;
/// Between the tags of two kinds.
const KIND_STEP: u32 = 0x0002_0000;
/// Record of the object.
const OBJECT: u32 = 0xa100_0000;
/// Bytes of a counter.
const COUNTER_BYTES: usize = 8;
/// The first gcc that counts lengths in bytes instead of words, and has a word more in the header.
const IN_BYTES: u32 = 12;
/// The first gcc that is taken: earlier ones have other lengths of counters.
const FIRST: u32 = 10;

/// The counters of a file, as places in it; `None` if it is not one.
pub(super) fn counters(file: &[u8]) -> Option<Vec<Range<usize>>> {
    let (unit, mut at) = form(file)?;
    if file.len() < at {
        return None;
    }
    let mut found = Vec::new();
    // A zero may end a file.
    while at < file.len() && (word(file, at)? != 0 || at + 4 != file.len()) {
        let tag = word(file, at)?;
        let bytes = usize::try_from(word(file, at + 4)?)
            .ok()?
            .checked_mul(unit)?;
        let begin = at + 8;
        let end = begin.checked_add(bytes).filter(|end| *end <= file.len())?;
        if is_of_counters(tag) {
            found.push(begin..end);
        } else if !matches!(tag, FUNCTION | OBJECT) {
            return None;
        }
        at = end;
    }
    let is_whole = |range: &Range<usize>| range.len().is_multiple_of(COUNTER_BYTES);
    found.iter().all(is_whole).then_some(found)
}

/// Bytes of a unit of lengths, and of the header.
fn form(file: &[u8]) -> Option<(usize, usize)> {
    let major = major(word(file, 4)?)?;
    if word(file, 0)? != MAGIC || major < FIRST {
        return None;
    }
    Some(if major < IN_BYTES { (4, 12) } else { (1, 16) })
}

/// Whether any of a file's counters is not 0.
pub(super) fn has_run(file: &[u8]) -> bool {
    let counters = counters(file).unwrap_or_default();
    let mut bytes = counters.into_iter().flat_map(|range| &file[range]);
    bytes.any(|byte| *byte != 0)
}

/// The file with a record of the object, without which gcc takes none of its counts and says nothing
/// (`compute_branch_probabilities`, gcc/profile.cc): the kernel writes none.
pub(super) fn with_summary(file: &[u8]) -> Option<Vec<u8>> {
    let ranges = counters(file)?;
    let (unit, at) = form(file)?;
    let (header, records) = file.split_at_checked(at)?;
    if word(records, 0) == Some(OBJECT) {
        return Some(file.to_vec());
    }
    let counts = ranges.into_iter().flat_map(|range| {
        let counters = file[range].chunks_exact(COUNTER_BYTES);
        counters.filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    });
    let most = u32::try_from(counts.max().unwrap_or(0)).unwrap_or(u32::MAX);
    // One run; its largest counter.
    let words = [OBJECT, if unit == 1 { 8 } else { 2 }, 1, most];
    let summary = words.into_iter().flat_map(u32::to_le_bytes).collect();
    Some([header.to_vec(), summary, records.to_vec()].concat())
}

/// Adds the counters of another run of the same object; `false` for one of another object.
pub(super) fn add(file: &mut [u8], other: &[u8]) -> bool {
    let Some(ranges) = counters(file).filter(|it| Some(it) == counters(other).as_ref()) else {
        return false;
    };
    // All but counters is the same: functions, and their checksums.
    let mut rest = 0;
    for range in ranges.iter().chain([&(file.len()..file.len())]) {
        if file.get(rest..range.start) != other.get(rest..range.start) {
            return false;
        }
        rest = range.end;
    }
    for range in ranges {
        let pairs = file[range.clone()].chunks_exact_mut(COUNTER_BYTES);
        for (one, more) in pairs.zip(other[range].chunks_exact(COUNTER_BYTES)) {
            let [Ok(count), Ok(added)] = [&*one, more].map(<[u8; COUNTER_BYTES]>::try_from) else {
                continue;
            };
            let sum = u64::from_le_bytes(count).saturating_add(u64::from_le_bytes(added));
            one.copy_from_slice(&sum.to_le_bytes());
        }
    }
    true
}

fn is_of_counters(tag: u32) -> bool {
    let from = tag.wrapping_sub(COUNTERS);
    from.is_multiple_of(KIND_STEP) && from / KIND_STEP < COUNTER_KINDS
}

/// The first number of gcc's version: `B22*` is 12.2.
fn major(version: u32) -> Option<u32> {
    let [tens, ones, ..] = version.to_be_bytes();
    let tens = tens.checked_sub(b'A').filter(|it| *it < 26)?;
    let ones = ones.checked_sub(b'0').filter(|it| *it < 10)?;
    Some(u32::from(tens) * 10 + u32::from(ones))
}

fn word(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// A file of two functions with these counts.
#[cfg(test)]
pub(super) fn file(counts: [u64; 3]) -> Vec<u8> {
    let header = [MAGIC, u32::from_be_bytes(*b"B22*"), 7, 8];
    let function = |id: u32| [FUNCTION, 12, id, 1, 2];
    let mut bytes: Vec<u8> = header.iter().flat_map(|it| it.to_le_bytes()).collect();
    let (two, one) = counts.split_at(2);
    for (id, counts) in [(1, two), (2, one)] {
        let length = u32::try_from(counts.len() * COUNTER_BYTES).unwrap_or(0);
        let words = function(id).into_iter().chain([COUNTERS, length]);
        bytes.extend(words.flat_map(u32::to_le_bytes));
        bytes.extend(counts.iter().flat_map(|it| it.to_le_bytes()));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_file_are_found_and_a_damaged_one_is_none() {
        let whole = file([1, 0, 9]);
        let found = counters(&whole).unwrap();
        let lengths: Vec<usize> = found.iter().map(ExactSizeIterator::len).collect();
        assert_eq!(lengths, [16, 8]);
        let ended = [whole.clone(), vec![0; 4]].concat();
        assert_eq!(counters(&ended).as_ref(), Some(&found));
        for cut in 0..whole.len() {
            let is_between = [16, 36, 60, 80].contains(&cut);
            assert_eq!(counters(&whole[..cut]).is_some(), is_between, "{cut}");
        }
        for (at, byte) in [(0, 1), (7, b'@'), (6, b'x'), (19, 2), (20, 13), (40, 15)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert_eq!(counters(&other), None, "byte {at}");
        }
    }

    #[test]
    fn a_version_is_read_from_its_letters() {
        let of = |text: &[u8; 4]| major(u32::from_be_bytes(*text));
        assert_eq!([of(b"B22*"), of(b"A93*")], [Some(12), Some(9)]);
        assert_eq!([of(b"122*"), of(b"Bx2*")], [None, None]);
    }

    /// Of a file without it gcc reads nothing, which no warning tells.
    #[test]
    fn a_kernels_file_gets_the_record_that_gcc_wants() {
        let plain = file([1, 9, 3]);
        let whole = with_summary(&plain).unwrap();
        assert_eq!(whole[..16], plain[..16]);
        let words: Vec<u32> = (16..32)
            .step_by(4)
            .filter_map(|at| word(&whole, at))
            .collect();
        assert_eq!(words, [OBJECT, 8, 1, 9]);
        assert_eq!(whole[32..], plain[16..]);
        assert_eq!(counters(&whole).unwrap().len(), 2);
        assert_eq!(with_summary(&whole), Some(whole));
        let most = with_summary(&file([u64::MAX, 0, 0])).unwrap();
        assert_eq!(word(&most, 28), Some(u32::MAX));
    }

    #[test]
    fn counts_of_two_runs_are_added_if_they_are_of_one_object() {
        let mut sum = file([1, 0, u64::MAX]);
        assert!(add(&mut sum, &file([2, 0, 1])));
        assert_eq!(sum, file([3, 0, u64::MAX]));
        let mut other = file([1, 1, 1]);
        // A checksum.
        other[28] = 9;
        assert!(!add(&mut sum, &other));
        assert!(!add(&mut sum, b""));
        assert!(has_run(&sum) && !has_run(&file([0; 3])));
    }
}
