//! Numbers from and to text as memcached takes them: C's `strtol` and friends,
//! followed by a blank or the end, and decimals without `core::fmt`, which
//! costs thousands of instructions.

use alloc::vec::Vec;

/// Most digits of a `u64`.
pub(crate) const MAX_DIGITS: usize = 20;

/// A number's decimal digits.
#[derive(Clone, Copy)]
pub(crate) struct Digits {
    bytes: [u8; MAX_DIGITS],
    start: u8,
}

impl Digits {
    pub(crate) fn of(mut value: u64) -> Self {
        let mut bytes = [0; MAX_DIGITS];
        let mut start = MAX_DIGITS;
        loop {
            start -= 1;
            bytes[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                let start = start as u8;
                return Self { bytes, start };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Appends `value` in decimal.
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Digits::of(value).as_bytes());
}

/// A sign and what followed.
struct Scanned {
    negative: bool,
    magnitude: u64,
}

/// Leading white space, a sign, digits; then white space, NUL or the end.
fn scan(text: &[u8]) -> Option<Scanned> {
    match digits_only(text) {
        Some(magnitude) => Some(Scanned {
            negative: false,
            magnitude,
        }),
        None => scan_any(text),
    }
}

/// The usual number: digits, so few that nothing overflows.
#[inline]
fn digits_only(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() >= MAX_DIGITS {
        return None;
    }
    let mut value = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

#[cold]
fn scan_any(text: &[u8]) -> Option<Scanned> {
    let blanks = text.iter().take_while(|byte| is_space(**byte)).count();
    let text = &text[blanks..];
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut magnitude = 0u64;
    let mut read = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if read == 0 || !(is_space(*byte) || *byte == 0) {
                return None;
            }
            break;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
        read += 1;
    }
    (read > 0).then_some(Scanned {
        negative,
        magnitude,
    })
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// An `int32_t`, as memcached 1.6 reads it: the lower half of a 64-bit number.
pub(crate) fn signed_32(text: &[u8]) -> Option<i32> {
    let scanned = scan(text)?;
    let value = if scanned.negative {
        0i64.checked_sub_unsigned(scanned.magnitude)?
    } else {
        i64::try_from(scanned.magnitude).ok()?
    };
    Some(value as i32)
}

/// A `uint64_t`, as memcached's `safe_strtoull` reads it: a negative number
/// wraps, and is refused where the result does not show that.
pub(crate) fn unsigned_64(text: &[u8]) -> Option<u64> {
    let scanned = scan(text)?;
    if !scanned.negative {
        return Some(scanned.magnitude);
    }
    let wrapped = scanned.magnitude.wrapping_neg();
    (wrapped >> 63 == 0).then_some(wrapped)
}

/// A `uint32_t`, as memcached's `safe_strtoul` reads it: the lower half of a
/// 64-bit number.
pub(crate) fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned_64(text).map(|value| value as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_before_and_after_belong_to_no_number() {
        assert_eq!(unsigned_64(b" \t12\r\n"), Some(12));
        assert_eq!(unsigned_64(b"12 13"), Some(12));
        assert_eq!(unsigned_64(b"12\0x"), Some(12));
        for text in [
            &b""[..],
            b" ",
            b"+",
            b"-",
            b"x",
            b"1x",
            b"\0",
            b"1.5",
            b"--1",
        ] {
            assert_eq!(unsigned_64(text), None, "{text:?}");
            assert_eq!(signed_32(text), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_end_where_their_type_ends() {
        assert_eq!(unsigned_64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned_64(b"18446744073709551616"), None);
        assert_eq!(unsigned_64(b"-1"), None);
        assert_eq!(unsigned_64(b"-18446744073709551615"), Some(1));
        assert_eq!(unsigned_32(b"4294967296"), Some(0));
        assert_eq!(signed_32(b"2147483647"), Some(i32::MAX));
        assert_eq!(signed_32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(signed_32(b"2147483648"), Some(i32::MIN));
        assert_eq!(signed_32(b"-9223372036854775808"), Some(0));
        assert_eq!(signed_32(b"9223372036854775808"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            push(&mut out, value);
            prop_assert_eq!(unsigned_64(&out), Some(value));
            prop_assert_eq!(scan_any(&out).map(|it| it.magnitude), Some(value));
            prop_assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
