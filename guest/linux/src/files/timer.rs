//! Timers as files (`timerfd_create(2)`).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::POLLIN;
use tare_hal::clock;
use tare_libos::sync::SpinLock;

use super::watch::Item;
use super::{File, Status, Watchers};
use crate::errno::{Errno, Result};

/// Nanoseconds of the monotonic clock, and of the period; 0: without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) next_ns: u64,
    pub(crate) period_ns: u64,
}

/// The clock that a timer's absolute times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    /// Time since 1970, which nothing here sets: its distance from the other is looked at when
    /// the timer is set.
    Wall,
}

impl Clock {
    /// A time of the clock as one of the monotonic clock; 0 is past.
    pub(crate) fn monotonic_ns(self, ns: u64) -> u64 {
        match self {
            Self::Monotonic => ns,
            Self::Wall => on_monotonic(ns, clock::wall_ns(), clock::now_ns()),
        }
    }
}

/// A timer.
pub(crate) struct Timer {
    clock: Clock,
    setting: SpinLock<Setting>,
    /// How often it was set.
    sets: AtomicU64,
    watchers: Watchers,
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            setting: SpinLock::default(),
            sets: AtomicU64::new(0),
            watchers: Watchers::default(),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn set(&self, setting: Setting) -> Setting {
        let old = core::mem::replace(&mut *self.setting.lock(), setting);
        self.sets.fetch_add(1, Ordering::Relaxed);
        self.watchers.wake();
        old
    }

    pub(crate) fn setting(&self) -> Setting {
        *self.setting.lock()
    }
}

/// The monotonic time at which the wall clock shows `ns`.
fn on_monotonic(ns: u64, wall_ns: u64, now_ns: u64) -> u64 {
    match ns.checked_sub(wall_ns) {
        Some(rest) => now_ns.saturating_add(rest),
        None => now_ns.saturating_sub(wall_ns - ns),
    }
}

impl File for Timer {
    fn has_normal_data(&self) -> bool {
        false
    }

    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let slot = to.first_chunk_mut::<8>().ok_or(Errno::EINVAL)?;
        let mut setting = self.setting.lock();
        let now = clock::now_ns();
        if setting.next_ns == 0 || now < setting.next_ns {
            return Err(Errno::EAGAIN);
        }
        let late = now - setting.next_ns;
        let times = match late.checked_div(setting.period_ns) {
            Some(more) => {
                setting.next_ns += (more + 1) * setting.period_ns;
                more + 1
            }
            None => {
                setting.next_ns = 0;
                1
            }
        };
        *slot = times.to_le_bytes();
        drop(setting);
        // Who waits does so for the time that has passed.
        self.watchers.wake();
        Ok(8)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn ready(&self) -> u32 {
        let next_ns = self.setting.lock().next_ns;
        let is_due = next_ns != 0 && clock::now_ns() >= next_ns;
        if is_due { POLLIN } else { 0 }
    }

    /// Setting it takes back what was due (`do_timerfd_settime` in fs/timerfd.c): the next time is
    /// another.
    fn arrivals(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    fn deadline_ns(&self, after_ns: u64) -> Option<u64> {
        Some(self.setting.lock().next_ns).filter(|&next_ns| next_ns > after_ns)
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.watchers)
    }

    fn arm(&self, _item: &Arc<Item>) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_time_is_waited_for_on_the_monotonic_clock() {
        assert_eq!(on_monotonic(1_005, 1_000, 70), 75);
        assert_eq!(on_monotonic(990, 1_000, 70), 60);
        assert_eq!(on_monotonic(1, 1_000, 70), 0);
        assert_eq!(on_monotonic(u64::MAX, 1, 70), u64::MAX);
    }

    #[test]
    fn only_a_time_to_come_is_waited_for() {
        let timer = Timer::new(Clock::Monotonic);
        assert_eq!(timer.deadline_ns(0), None);
        timer.set(Setting {
            next_ns: 5,
            period_ns: 0,
        });
        assert_eq!(timer.deadline_ns(4), Some(5));
        assert_eq!(timer.deadline_ns(5), None);
    }
}
