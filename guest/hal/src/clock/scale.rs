//! Conversion between ticks and nanoseconds without a division.

/// A factor as a fixed-point number, 32 bits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    factor: u64,
}

impl Scale {
    /// Multiplies by `to / from`, rounded down.
    ///
    /// # Panics
    /// If `from` is 0.
    pub const fn new(from: u64, to: u64) -> Self {
        Self {
            factor: (((to as u128) << 32) / from as u128) as u64,
        }
    }

    /// The factor, 32 bits of it after the point.
    pub const fn factor(self) -> u64 {
        self.factor
    }

    /// `value` times the factor; the product must fit 64 bits.
    #[inline]
    pub const fn apply(self, value: u64) -> u64 {
        ((value as u128 * self.factor as u128) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_century_is_off_by_less_than_a_millionth() {
        let hz = 2_445_405_000;
        let to_ns = Scale::new(hz, 1_000_000_000);
        let seconds = 100 * 365 * 86_400;
        let ns = to_ns.apply(hz * seconds);
        assert!((seconds * 1_000_000_000).abs_diff(ns) < seconds * 1_000);
    }

    #[test]
    fn there_and_back_is_close() {
        let (to_ns, to_ticks) = (
            Scale::new(1_000_000_003, 1_000_000_000),
            Scale::new(1_000_000_000, 1_000_000_003),
        );
        for ticks in [0, 1, 999, 123_456_789_012] {
            assert!(
                to_ticks.apply(to_ns.apply(ticks)).abs_diff(ticks) <= 1 + ticks / 1_000_000_000
            );
        }
    }
}
