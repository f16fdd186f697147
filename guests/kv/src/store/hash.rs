//! A keyed hash: whoever does not know the seed cannot choose keys that share
//! a bucket at will.
//!
//! Each 8 bytes are folded in with one widening multiplication, as wyhash
//! and its relatives do: few instructions, well spread.

/// A secret of two words.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub [u64; 2]);

impl Seed {
    /// The key's hash.
    pub(super) fn hash(self, key: &[u8]) -> u32 {
        let Self([begin, secret]) = self;
        let (words, rest) = key.as_chunks::<8>();
        let mut state = begin ^ key.len() as u64;
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), secret | 1);
        }
        let mut last = 0;
        for byte in rest {
            last = last << 8 | u64::from(*byte);
        }
        fold(fold(state ^ last, secret | 1), 0x9e37_79b9_7f4a_7c15) as u32
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_keys_spread_over_buckets() {
        let seed = Seed([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        let mut buckets = [0u32; 1024];
        for number in 0..16 * 1024 {
            let key = format!("key:{number}");
            buckets[seed.hash(key.as_bytes()) as usize % 1024] += 1;
        }
        assert!(buckets.iter().all(|count| (1..48).contains(count)));
    }

    #[test]
    fn seeds_and_lengths_tell_keys_apart() {
        let (one, two) = (Seed([1, 2]), Seed([1, 4]));
        assert_ne!(one.hash(b"some key"), two.hash(b"some key"));
        assert_ne!(one.hash(b"a"), one.hash(b"a\0"));
        assert_ne!(one.hash(b""), one.hash(b"\0"));
    }
}
