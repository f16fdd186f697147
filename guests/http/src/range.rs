//! Byte ranges (RFC 9110, 14).

use crate::decimal;

/// What a `Range` field asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything: no range, one that makes no sense, or several of them.
    Whole,
    /// The bytes from `first` to `last`, both included, both within the file.
    Part {
        /// First byte.
        first: u64,
        /// Last byte.
        last: u64,
    },
    /// Nothing that the file has.
    Unsatisfiable,
}

/// What `field` selects of a file of `len` bytes. Several ranges at once are
/// answered with the whole file, as the standard allows: a multipart answer
/// helps no one here and has been an amplifier of attacks.
pub fn select(field: &[u8], len: u64) -> Selection {
    let Some(ranges) = strip_unit(field) else {
        return Selection::Whole;
    };
    let ranges = ranges.trim_ascii();
    let Some(dash) = ranges.iter().position(|byte| *byte == b'-') else {
        return Selection::Whole;
    };
    let (first, last) = (&ranges[..dash], &ranges[dash + 1..]);
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
    Selection::Part { first, last }
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
        Selection::Part { first, last }
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
    fn anything_but_a_single_range_means_the_whole() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1-b",
            "bytes=0-1,3-4",
            "bytes=-1,-2",
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
            if let Selection::Part { first, last } = select(field.as_bytes(), len) {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn no_bytes_crash_it(field in prop::collection::vec(any::<u8>(), 0..30), len in any::<u64>()) {
            select(&field, len);
        }
    }
}
