//! What is written to be checked: each eight bytes say which block, which time
//! and which place they are.

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills a block with its pattern: block number, and how often it was written.
pub fn fill(bytes: &mut [u8], block: u64, generation: u32) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    let mut word = first(block, generation);
    for place in words {
        *place = word.to_le_bytes();
        word = word.wrapping_add(PRIME);
    }
}

/// Whether the bytes are that block's, of that time.
pub fn matches(bytes: &[u8], block: u64, generation: u32) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    let mut word = first(block, generation);
    for place in words {
        if u64::from_le_bytes(*place) != word {
            return false;
        }
        word = word.wrapping_add(PRIME);
    }
    true
}

fn first(block: u64, generation: u32) -> u64 {
    (block ^ u64::from(generation) << 40).wrapping_mul(PRIME) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_block_time_or_byte_is_seen() {
        let mut bytes = [0; 512];
        fill(&mut bytes, 7, 3);
        assert!(matches(&bytes, 7, 3));
        assert!(!matches(&bytes, 8, 3));
        assert!(!matches(&bytes, 7, 4));
        assert!(!matches(&[0; 512], 0, 0));
        for at in [0, 100, 511] {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!matches(&changed, 7, 3), "{at}");
        }
    }
}
