//! ChaCha20 (RFC 8439, 2.3) with fast key erasure: the first half of each
//! block is the next key, so that what was given out cannot be found again.

const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A generator of random bytes.
#[derive(Clone)]
pub(super) struct Generator {
    key: [u32; 8],
}

impl Generator {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { key: words(&seed) }
    }

    /// Fills `out` and forgets how.
    pub(super) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            let block = block(&self.key, 0, &[0; 3]);
            let bytes = bytes(&block);
            chunk.copy_from_slice(&bytes[32..32 + chunk.len()]);
            self.key.copy_from_slice(&block[..8]);
        }
    }
}

fn words(seed: &[u8; 32]) -> [u32; 8] {
    let (chunks, _) = seed.as_chunks::<4>();
    core::array::from_fn(|i| u32::from_le_bytes(chunks[i]))
}

fn bytes(block: &[u32; 16]) -> [u8; 64] {
    let mut out = [0; 64];
    for (chunk, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(block) {
        *chunk = word.to_le_bytes();
    }
    out
}

fn block(key: &[u32; 8], counter: u32, nonce: &[u32; 3]) -> [u32; 16] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&CONSTANTS);
    start[4..12].copy_from_slice(key);
    start[12] = counter;
    start[13..].copy_from_slice(nonce);
    let mut state = start;
    for _ in 0..10 {
        for column in 0..4 {
            quarter(&mut state, [column, column + 4, column + 8, column + 12]);
        }
        for diagonal in 0..4 {
            let at = |row: usize| row * 4 + (diagonal + row) % 4;
            quarter(&mut state, [at(0), at(1), at(2), at(3)]);
        }
    }
    core::array::from_fn(|i| state[i].wrapping_add(start[i]))
}

fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for [x, y, z, turn] in [[a, b, d, 16], [c, d, b, 12], [a, b, d, 8], [c, d, b, 7]] {
        state[x] = state[x].wrapping_add(state[y]);
        state[z] = (state[z] ^ state[x]).rotate_left(turn as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_rfc_8439() {
        let seed: [u8; 32] = core::array::from_fn(|i| i as u8);
        let nonce = [0x0900_0000, 0x4a00_0000, 0];
        let block = block(&words(&seed), 1, &nonce);
        assert_eq!(
            bytes(&block)[..8],
            [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15]
        );
        assert_eq!(block[15], 0x4e3c_50a2);
    }

    #[test]
    fn the_key_changes_with_each_use() {
        let mut generator = Generator::new([7; 32]);
        let before = generator.key;
        let mut out = [0; 8];
        generator.fill(&mut out);
        assert_ne!(generator.key, before);
        let mut again = [0; 8];
        generator.fill(&mut again);
        assert_ne!(out, again);
    }
}
