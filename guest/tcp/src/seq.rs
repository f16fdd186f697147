//! [`Seq`]: sequence numbers and their order modulo 2^32 (RFC 9293, 3.4).

use core::ops::{Add, Sub};

/// A sequence number. Two numbers can be ordered while they are less than 2^31
/// apart, which the window limits ensure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes after `other`.
    #[inline]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// The later of the two.
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if other.before(self) { other } else { self }
    }

    /// Whether `self` lies in `[start, end)`.
    #[inline]
    pub const fn is_in(self, start: Self, end: Self) -> bool {
        !self.before(start) && self.before(end)
    }

    /// How far `self` is after `earlier`; 0 if it is not after it.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        if self.before(earlier) {
            0
        } else {
            self.0.wrapping_sub(earlier.0)
        }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, len: u32) -> Self {
        Self(self.0.wrapping_add(len))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, len: u32) -> Self {
        Self(self.0.wrapping_sub(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let (low, high) = (Seq(u32::MAX - 5), Seq(10));
        assert!(low.before(high) && high.after(low));
        assert_eq!(high.since(low), 16);
        assert_eq!(low.since(high), 0);
        assert_eq!(low.max(high), high);
        assert_eq!(low.min(high), low);
        assert!(Seq(0).is_in(low, high) && !high.is_in(low, high));
    }
}
