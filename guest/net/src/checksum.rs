//! The internet checksum (RFC 1071), eight bytes an addition.

use core::net::Ipv6Addr;

/// A ones' complement sum that is not folded yet. Byte pairs are added in
/// memory order, which `Sum::finish` makes up for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`; only the last slice added may have an odd length.
    pub fn plus(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words
            .iter()
            .fold(self, |sum, word| sum.add_word(u64::from_ne_bytes(*word)));
        if rest.is_empty() {
            return sum;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum.add_word(u64::from_ne_bytes(last))
    }

    /// Adds the pseudo-header of TCP and UDP over IPv4 (RFC 9293, 3.1).
    pub fn plus_pseudo_header(self, src: [u8; 4], dst: [u8; 4], protocol: u8, len: u16) -> Self {
        let [high, low] = len.to_be_bytes();
        self.add_word(u64::from(u32::from_ne_bytes(src)))
            .add_word(u64::from(u32::from_ne_bytes(dst)))
            .add_word(u64::from(u32::from_ne_bytes([0, protocol, high, low])))
    }

    /// Adds the pseudo-header of TCP, UDP and ICMPv6 over IPv6 (RFC 8200, 8.1).
    pub(crate) fn plus_pseudo_header_v6(
        self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        protocol: u8,
        len: u32,
    ) -> Self {
        self.plus(&src.octets())
            .plus(&dst.octets())
            .plus(&len.to_be_bytes())
            .plus(&[0, 0, 0, protocol])
    }

    #[inline]
    fn add_word(self, word: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(word);
        Self(sum + u64::from(carry))
    }

    /// The folded sum, not complemented, as it stands in memory.
    pub fn finish(self) -> [u8; 2] {
        let fold = |sum: u64| (sum & 0xffff_ffff) + (sum >> 32);
        let sum = fold(fold(self.0)) as u32;
        let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
        (fold(fold(sum)) as u16).to_ne_bytes()
    }

    /// Whether the data, its checksum field included, adds up.
    pub(crate) fn is_valid(self) -> bool {
        self.finish() == [0xff, 0xff]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, two bytes at a time.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().plus(&bytes).finish(), [0xdd, 0xf2]);
    }

    #[test]
    fn the_pseudo_header_is_its_twelve_bytes() {
        let (src, dst) = ([10, 0, 2, 15], [192, 168, 255, 254]);
        let bytes = [10, 0, 2, 15, 192, 168, 255, 254, 0, 6, 0x05, 0xdc];
        assert_eq!(
            Sum::new().plus_pseudo_header(src, dst, 6, 1500).finish(),
            Sum::new().plus(&bytes).finish(),
        );
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let sum = u16::from_be_bytes(Sum::new().plus(&bytes).finish());
            // 0 and 0xffff are the same number here.
            prop_assert_eq!(sum % 0xffff, reference(&bytes) % 0xffff);
        }
    }
}
