//! The wall clock.

use core::time::Duration;

/// A point in time since 1970, UTC. Set once at its first use from the
/// hypervisor's wall clock (or the CMOS clock), then carried on by the
/// monotonic clock: an image does not follow later corrections of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemTime {
    ns: u64,
}

/// 1970-01-01 00:00:00 UTC.
pub const UNIX_EPOCH: SystemTime = SystemTime { ns: 0 };

impl SystemTime {
    /// Now.
    pub fn now() -> Self {
        Self {
            ns: crate::hal::clock::wall_ns(),
        }
    }

    /// Time from `earlier` to this point; zero if `earlier` is later.
    pub const fn duration_since(&self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}
