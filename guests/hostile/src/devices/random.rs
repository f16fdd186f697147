//! xorshift64* (Vigna 2016): a seed gives the same operations on every machine.

#[derive(Clone, Copy)]
pub(super) struct Random(u64);

impl Random {
    /// Seed 0 would stay 0.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(end)) >> 32) as u32
    }

    /// What registers get: small numbers, edges, bits, anything.
    pub(super) fn value(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << self.below(32),
            3 => (1_u32 << self.below(32)).wrapping_sub(1),
            4 | 5 => self.below(16),
            _ => self.next(),
        }
    }
}
