//! [`Instant`] and [`Duration`] in microseconds. The crate has no clock: the
//! caller passes the current time to each call.

use core::ops::{Add, Sub};

/// Microseconds since an arbitrary origin; it never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than every deadline: "no deadline".
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The instant `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin.
    pub(crate) const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// `None` for [`Instant::NEVER`].
    pub(crate) fn known(self) -> Option<Self> {
        (self != Self::NEVER).then_some(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

/// A span of microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1000)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    /// In microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// In whole milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// `self << shift`, at most `limit`.
    pub(crate) fn backed_off(self, shift: u32, limit: Self) -> Self {
        let factor = 1u64 << shift.min(20);
        Self(self.0.saturating_mul(factor)).min(limit)
    }
}

impl Add for Duration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
