//! Text for answers, without `core::fmt`, which costs thousands of instructions.

use alloc::vec::Vec;

/// Appends bytes. Apart from `Vec`'s own, which is some 70 bytes of code at each place where it
/// is inlined: for what is made for one request.
#[inline(never)]
pub fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

/// Appends `value` in decimal.
pub fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends nanoseconds as seconds with nine decimals.
pub fn push_seconds(out: &mut Vec<u8>, ns: u64) {
    push_decimal(out, ns / 1_000_000_000);
    out.push(b'.');
    let mut rest = ns % 1_000_000_000;
    let mut digits = [b'0'; 9];
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_have_nine_decimals() {
        let mut out = Vec::new();
        push_seconds(&mut out, 12_000_000_345);
        assert_eq!(out, b"12.000000345");
    }

    proptest! {
        #[test]
        fn decimals_are_written_as_formatting_would(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            push_decimal(&mut out, value);
            prop_assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
