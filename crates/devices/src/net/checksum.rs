//! The Internet checksum (RFC 1071), completed in a frame as `NEEDS_CSUM` asks
//! (virtio 1.2, 5.1.6.2).

use super::NetHeader;

/// Completes the checksum that `header` describes: the field holds the sum of
/// the pseudo header already. `None`, and nothing changed, when the field does
/// not lie in the frame.
pub fn complete(header: &NetHeader, frame: &mut [u8]) -> Option<()> {
    let start = usize::from(header.csum_start);
    let field = start + usize::from(header.csum_offset);
    if field + 2 > frame.len() {
        return None;
    }
    let sum = !fold(sum(frame.get(start..)?));
    // An all-zero UDP checksum would mean "none" (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Adds up big-endian words; an odd last byte is the upper half of a word.
/// Four bytes at a time: the sum of 16-bit words is the same modulo 65,535.
pub fn sum(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(4);
    let whole: u64 = chunks
        .by_ref()
        .map(|chunk| u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])))
        .sum();
    let mut rest = [0; 4];
    let tail = chunks.remainder();
    rest[..tail.len()].copy_from_slice(tail);
    whole + u64::from(u32::from_be_bytes(rest))
}

/// The sum of 16-bit words with the carries added back (RFC 1071, 2).
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn header(csum_start: u16, csum_offset: u16) -> NetHeader {
        NetHeader {
            csum_start,
            csum_offset,
            ..NetHeader::default()
        }
    }

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
    }

    #[test]
    fn a_zero_sum_is_sent_as_ones() {
        let mut frame = [0xff, 0xff, 0, 0];
        assert!(complete(&header(0, 2), &mut frame).is_some());
        assert_eq!(frame, [0xff; 4]);
    }

    proptest! {
        #[test]
        fn sums_agree_with_the_definition(bytes: Vec<u8>) {
            let (fast, slow) = (fold(sum(&bytes)), naive(&bytes));
            // Zero has two forms.
            prop_assert!(fast == slow || (fast % 0xffff == 0 && slow % 0xffff == 0));
        }

        #[test]
        fn a_completed_frame_sums_to_ones(
            mut frame in proptest::collection::vec(any::<u8>(), 8..2000),
            start in 0u16..8,
        ) {
            prop_assume!(start % 2 == 0);
            let described = header(start, 0);
            frame[usize::from(start)..][..2].fill(0);
            prop_assert!(complete(&described, &mut frame).is_some());
            prop_assert_eq!(naive(&frame[usize::from(start)..]), 0xffff);
        }

        #[test]
        fn a_field_outside_the_frame_is_refused(
            mut frame: Vec<u8>, start: u16, offset: u16,
        ) {
            let fits = usize::from(start) + usize::from(offset) + 2 <= frame.len();
            prop_assert_eq!(complete(&header(start, offset), &mut frame).is_some(), fits);
        }
    }
}
