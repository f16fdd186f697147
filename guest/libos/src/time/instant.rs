//! Monotonic time.

use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

/// A point in time since the image began; it never goes back.
///
/// ```
/// use tare_libos::time::{Duration, Instant};
/// let start = Instant::now();
/// let deadline = start + Duration::from_secs(1);
/// assert!(deadline > Instant::now());
/// assert!(start.elapsed() < Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// Now.
    #[inline]
    pub fn now() -> Self {
        Self {
            ns: crate::hal::clock::now_ns(),
        }
    }

    /// The point `ns` nanoseconds after the image began.
    pub const fn from_nanos(ns: u64) -> Self {
        Self { ns }
    }

    /// Nanoseconds from the image's begin to this point.
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }

    /// Time since this point; zero if it lies in the future.
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// Time from `earlier` to this point; zero if `earlier` is later.
    pub const fn duration_since(&self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// This point and `duration`, or `None` beyond the clock's 584 years.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        let ns = u64::try_from(duration.as_nanos()).ok()?;
        self.ns.checked_add(ns).map(Self::from_nanos)
    }
}

/// A later point; the end of the clock when it would lie beyond.
impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self { ns: u64::MAX })
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// An earlier point; the image's begin when it would lie before.
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.ns.saturating_sub(ns))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_at_both_ends() {
        let near_end = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(near_end + Duration::MAX, Instant::from_nanos(u64::MAX));
        assert_eq!(near_end.checked_add(Duration::from_nanos(2)), None);
        assert_eq!(
            Instant::from_nanos(5) - Duration::MAX,
            Instant::from_nanos(0)
        );
    }

    #[test]
    fn a_later_start_gives_zero() {
        let (early, late) = (Instant::from_nanos(1), Instant::from_nanos(9));
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(late - early, Duration::from_nanos(8));
    }
}
