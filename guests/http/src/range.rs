//! Byte ranges (RFC 9110, 14).

use alloc::vec::Vec;

use crate::decimal;

/// Most ranges of a request; one with more gets the whole file.
pub const MOST_RANGES: usize = 16;

/// What a `Range` field asks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything: no range, one that makes no sense, or too many.
    Whole,
    /// One range.
    Part(Part),
    /// Several that do not overlap, in the order of the field.
    Parts(Vec<Part>),
    /// Nothing that the file has.
    Unsatisfiable,
}

/// A range within the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub first: u64,
    /// Last byte, included.
    pub last: u64,
}

/// What `field` selects of a file of `len` bytes. Several ranges are an amplifier of attacks
/// unless they are bounded (RFC 9110, 14.2 and 17.15): more than [`MOST_RANGES`] of them, or
/// any that overlap, get the whole file, so that no answer has a byte of it twice.
pub fn select(field: &[u8], len: u64) -> Selection {
    let Some(ranges) = strip_unit(field) else {
        return Selection::Whole;
    };
    if ranges.contains(&b',') {
        return several(ranges, len);
    }
    one(ranges, len)
}

#[cold]
fn several(ranges: &[u8], len: u64) -> Selection {
    let mut parts: Vec<Part> = Vec::new();
    let members = ranges.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    // Empty members are allowed, and count for nothing (RFC 9110, 5.6.1.2).
    for (count, range) in members.filter(|range| !range.is_empty()).enumerate() {
        let part = match one(range, len) {
            Selection::Part(part) => part,
            Selection::Unsatisfiable => continue,
            _ => return Selection::Whole,
        };
        let overlaps = |other: &Part| part.first <= other.last && other.first <= part.last;
        if count >= MOST_RANGES || parts.iter().any(overlaps) {
            return Selection::Whole;
        }
        parts.push(part);
    }
    match parts[..] {
        [] => Selection::Unsatisfiable,
        [part] => Selection::Part(part),
        _ => Selection::Parts(parts),
    }
}

fn one(range: &[u8], len: u64) -> Selection {
    let range = range.trim_ascii();
    let Some(dash) = range.iter().position(|byte| *byte == b'-') else {
        return Selection::Whole;
    };
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    match (decimal::parse(first), decimal::parse(last)) {
        (Some(first), None) if last.is_empty() => part(first, u64::MAX, len),
        (Some(first), Some(last)) if first <= last => part(first, last, len),
        (None, Some(suffix)) if first.is_empty() => tail(suffix, len),
        _ => Selection::Whole,
    }
}

fn strip_unit(field: &[u8]) -> Option<&[u8]> {
    let (unit, rest) = field.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(rest)
}

fn part(first: u64, last: u64, len: u64) -> Selection {
    if first >= len {
        return Selection::Unsatisfiable;
    }
    let last = last.min(len - 1);
    Selection::Part(Part { first, last })
}

fn tail(suffix: u64, len: u64) -> Selection {
    match suffix {
        0 => Selection::Unsatisfiable,
        // An empty file has no range to name in an answer.
        _ if len == 0 => Selection::Whole,
        _ => part(len.saturating_sub(suffix), u64::MAX, len),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_ten(field: &str) -> Selection {
        select(field.as_bytes(), 10)
    }

    const fn bytes(first: u64, last: u64) -> Selection {
        Selection::Part(Part { first, last })
    }

    fn parts(parts: &[(u64, u64)]) -> Selection {
        let parts = parts.iter().map(|&(first, last)| Part { first, last });
        Selection::Parts(parts.collect())
    }

    #[test]
    fn several_ranges_stay_in_their_order() {
        assert_eq!(of_ten("bytes=0-1,3-4"), parts(&[(0, 1), (3, 4)]));
        assert_eq!(
            of_ten("bytes= -2 , ,0-0,5-6"),
            parts(&[(8, 9), (0, 0), (5, 6)])
        );
        assert_eq!(of_ten("bytes=0-1,20-30"), bytes(0, 1));
        assert_eq!(of_ten("bytes=,5-,"), bytes(5, 9));
        assert_eq!(of_ten("bytes=10-,20-30"), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=0-0,1-1", 0), Selection::Unsatisfiable);
    }

    #[test]
    fn ranges_that_overlap_or_are_too_many_mean_the_whole() {
        for field in [
            "bytes=0-5,5-6",
            "bytes=5-6,0-9",
            "bytes=-1,-2",
            "bytes=0-,0-,0-",
            "bytes=0-1,x",
            "bytes=0-1,5-2",
        ] {
            assert_eq!(of_ten(field), Selection::Whole, "{field}");
        }
        let singles = |count: u64| {
            let ranges: Vec<_> = (0..count).map(|n| format!("{n}-{n}")).collect();
            select(format!("bytes={}", ranges.join(",")).as_bytes(), 1000)
        };
        assert!(matches!(singles(16), Selection::Parts(parts) if parts.len() == 16));
        assert_eq!(singles(17), Selection::Whole);
    }

    #[test]
    fn single_ranges_are_cut_to_the_file() {
        assert_eq!(of_ten("bytes=0-0"), bytes(0, 0));
        assert_eq!(of_ten("bytes=2-5"), bytes(2, 5));
        assert_eq!(of_ten("bytes=2-"), bytes(2, 9));
        assert_eq!(of_ten("bytes=2-99"), bytes(2, 9));
        assert_eq!(of_ten("Bytes= 2-5 "), bytes(2, 5));
        assert_eq!(of_ten("bytes=9-99999999999999999999999"), bytes(9, 9));
    }

    #[test]
    fn suffixes_count_from_the_end() {
        assert_eq!(of_ten("bytes=-3"), bytes(7, 9));
        assert_eq!(of_ten("bytes=-99"), bytes(0, 9));
        assert_eq!(of_ten("bytes=-0"), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=-5", 0), Selection::Whole);
    }

    #[test]
    fn ranges_behind_the_end_cannot_be_satisfied() {
        assert_eq!(of_ten("bytes=10-"), Selection::Unsatisfiable);
        assert_eq!(of_ten("bytes=10-20"), Selection::Unsatisfiable);
        assert_eq!(
            of_ten("bytes=99999999999999999999999-"),
            Selection::Unsatisfiable
        );
        assert_eq!(select(b"bytes=0-", 0), Selection::Unsatisfiable);
    }

    #[test]
    fn anything_but_ranges_means_the_whole() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1-b",
            "lines=0-1",
            "bytes=--5",
            "bytes=+1-2",
        ] {
            assert_eq!(of_ten(field), Selection::Whole, "{field}");
        }
    }

    proptest! {
        #[test]
        fn parts_lie_within_the_file(field in "bytes=[0-9]{0,21}-[0-9]{0,21}", len in any::<u64>(), shift in 0..64u32) {
            let len = len >> shift;
            if let Selection::Part(Part { first, last }) = select(field.as_bytes(), len) {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn several_parts_have_no_byte_twice(field in "bytes=([0-9]{0,2}-[0-9]{0,2},){1,20}", len in 0..100u64) {
            let selection = select(field.as_bytes(), len);
            let Selection::Parts(parts) = selection else { return Ok(()) };
            prop_assert!((2..=MOST_RANGES).contains(&parts.len()));
            let mut seen = [false; 100];
            for Part { first, last } in parts {
                prop_assert!(first <= last && last < len);
                for byte in first..=last {
                    prop_assert!(!core::mem::replace(&mut seen[byte as usize], true));
                }
            }
        }

        #[test]
        fn no_bytes_crash_it(field in prop::collection::vec(any::<u8>(), 0..30), len in any::<u64>()) {
            select(&field, len);
        }
    }
}
