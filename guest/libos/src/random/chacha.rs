//! [`Stream`]: the bytes of ChaCha20 under a key (RFC 8439, 2.3), a block at a time.
//!
//! The `rand_chacha` crate computes four blocks together from code that is all inlined: 7 kB of an
//! image, and four times the work for a number at boot. The tests compare with it.

/// Bytes of a block.
const BLOCK: usize = 64;
/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The stream of a key, without a nonce.
pub(super) struct Stream {
    /// Constants, key, and the number of the next block in two words.
    input: [u32; 16],
    block: [u8; BLOCK],
    /// Bytes of the block that were given out.
    given: usize,
}

impl Stream {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut input = [0; 16];
        input[..4].copy_from_slice(&CONSTANTS);
        let (words, _) = key.as_chunks::<4>();
        for (word, bytes) in input[4..12].iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self {
            input,
            block: [0; BLOCK],
            given: BLOCK,
        }
    }

    /// Fills `out` with the bytes that follow.
    pub(super) fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.given == BLOCK {
                self.next_block();
            }
            *byte = self.block[self.given];
            self.given += 1;
        }
    }

    fn next_block(&mut self) {
        let mut x = self.input;
        for _ in 0..10 {
            quarter_round(&mut x, [0, 4, 8, 12]);
            quarter_round(&mut x, [1, 5, 9, 13]);
            quarter_round(&mut x, [2, 6, 10, 14]);
            quarter_round(&mut x, [3, 7, 11, 15]);
            quarter_round(&mut x, [0, 5, 10, 15]);
            quarter_round(&mut x, [1, 6, 11, 12]);
            quarter_round(&mut x, [2, 7, 8, 13]);
            quarter_round(&mut x, [3, 4, 9, 14]);
        }
        let (words, _) = self.block.as_chunks_mut::<4>();
        for (bytes, (word, input)) in words.iter_mut().zip(x.iter().zip(self.input)) {
            *bytes = word.wrapping_add(input).to_le_bytes();
        }
        let number = u64::from(self.input[13]) << 32 | u64::from(self.input[12]);
        let next = number.wrapping_add(1);
        self.input[12] = next as u32;
        self.input[13] = (next >> 32) as u32;
        self.given = 0;
    }
}

/// RFC 8439, 2.1.
#[inline(always)]
fn quarter_round(x: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    /// RFC 8439, A.1, test vector 1.
    #[test]
    fn the_first_bytes_of_the_zero_key_are_those_of_the_rfc() {
        let mut first = [0; 16];
        Stream::new(&[0; 32]).fill(&mut first);
        let wanted = [
            0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86,
            0xbd, 0x28,
        ];
        assert_eq!(first, wanted);
    }

    /// A counter of 64 bits carries into its second word.
    #[test]
    fn blocks_are_numbered_beyond_four_billion() {
        let mut stream = Stream::new(&[3; 32]);
        stream.input[12] = u32::MAX;
        let mut theirs = ChaCha20Rng::from_seed([3; 32]);
        theirs.set_word_pos(u128::from(u32::MAX) * 16);
        let (mut bytes, mut wanted) = ([0; 2 * BLOCK], [0; 2 * BLOCK]);
        stream.fill(&mut bytes);
        theirs.fill_bytes(&mut wanted);
        assert_eq!(bytes, wanted);
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_another_implementation(
            key: [u8; 32],
            first in 0_usize..200,
            second in 0_usize..200,
        ) {
            let mut stream = Stream::new(&key);
            let mut bytes = vec![0; first + second];
            stream.fill(&mut bytes[..first]);
            stream.fill(&mut bytes[first..]);
            let mut wanted = vec![0; first + second];
            ChaCha20Rng::from_seed(key).fill_bytes(&mut wanted);
            prop_assert_eq!(bytes, wanted);
        }
    }
}
