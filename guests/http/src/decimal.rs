//! Numbers to text without `core::fmt`, which costs thousands of instructions.

use alloc::vec::Vec;

pub(crate) use tare_libos::serve::text::push_decimal as push;
pub(crate) use tare_web::framing::digits as parse;

/// Appends `value` in hexadecimal.
pub(crate) fn push_hex(out: &mut Vec<u8>, value: u64) {
    let digits = (u64::BITS - (value | 1).leading_zeros()).div_ceil(4);
    out.extend((0..digits).rev().map(|digit| {
        let nibble = (value >> (4 * digit)) as u8 & 15;
        b"0123456789abcdef"[usize::from(nibble)]
    }));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_formatting_would(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            push(&mut out, value);
            prop_assert_eq!(parse(&out), Some(value));
            out.push(b' ');
            push_hex(&mut out, value);
            prop_assert_eq!(out, format!("{value} {value:x}").into_bytes());
        }
    }
}
