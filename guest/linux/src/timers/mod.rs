//! The process's timers: those of `setitimer(2)` and `alarm(2)`, and those of
//! `timer_create(2)`. One thread waits for all that count time (`ring`); `cpu` has those that
//! count CPU time.
//!
//! A timer whose signal waits to be taken does not ring meanwhile: when it is taken, the times
//! that have passed are its overruns, and the timer goes on (kernel
//! `kernel/time/posix-timers.c`). So a signal that is blocked costs an idle program nothing.

mod cpu;

use alloc::vec::Vec;

use linux_raw_sys::general::SIGALRM;
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::files::timer::{Clock, Setting};
use crate::pending::{Info, SI_KERNEL, SI_TIMER};

pub(crate) use cpu::{Clocks, Interval, LEAST_LOOK_NS, NEVER, NOW};

/// Most timers of `timer_create`.
pub(crate) const MOST: usize = 1024;
/// Most overruns that are counted (`DELAYTIMER_MAX`).
const MOST_OVERRUNS: u64 = i32::MAX as u64;

/// Who gets a timer's signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    None,
    Process,
    /// The thread with this number.
    Thread(u32),
}

/// What a timer of `timer_create` counts; its setting has times of that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Time, always of the monotonic clock.
    Time(Clock),
    /// CPU time of the process.
    Process,
    /// CPU time of the thread with this number.
    Thread(u32),
}

/// A timer of `timer_create`.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    pub(crate) counted: Counted,
    pub(crate) notify: Notify,
    pub(crate) signal: u32,
    /// `si_value`.
    pub(crate) value: u64,
    setting: Setting,
    /// When it rang last, while that signal waits.
    rang_ns: Option<u64>,
    /// Of the signal that was taken last.
    overruns: u64,
}

/// A signal that is due.
pub(crate) type Ring = (Notify, u32, Info);

impl Timer {
    pub(crate) fn new(counted: Counted, notify: Notify, signal: u32, value: u64) -> Self {
        Self {
            counted,
            notify,
            signal,
            value,
            setting: Setting::default(),
            rang_ns: None,
            overruns: 0,
        }
    }

    /// When it is to ring; none while it need not.
    fn deadline_ns(&self) -> Option<u64> {
        let is_set = self.setting.next_ns != 0;
        (is_set && self.rang_ns.is_none() && self.notify != Notify::None)
            .then_some(self.setting.next_ns)
    }

    fn ring(&mut self, id: u32, now_ns: u64) -> Option<Ring> {
        self.deadline_ns().filter(|&due_ns| due_ns <= now_ns)?;
        self.rang_ns = Some(self.setting.next_ns);
        if self.setting.period_ns == 0 {
            self.setting.next_ns = 0;
        }
        let info = Info {
            code: SI_TIMER,
            origin: id.into(),
            value: self.value,
            timer: Some(id),
        };
        Some((self.notify, self.signal, info))
    }

    /// Its signal is taken: gives the overruns.
    fn taken(&mut self, now_ns: u64) -> u64 {
        let Some(rang_ns) = self.rang_ns.take() else {
            return 0;
        };
        let period_ns = self.setting.period_ns;
        let missed = now_ns.saturating_sub(rang_ns).checked_div(period_ns);
        if missed.is_some() {
            self.setting.next_ns = next(rang_ns, period_ns, now_ns);
        }
        self.overruns = missed.unwrap_or(0).min(MOST_OVERRUNS);
        self.overruns
    }

    /// What `timer_gettime` gives: also a timer that rings no more, or not now, goes on.
    fn setting(&self, now_ns: u64) -> Setting {
        let Setting { next_ns, period_ns } = self.setting;
        let next_ns = match next_ns {
            past if past > now_ns => past,
            0 => 0,
            _ if period_ns == 0 => 0,
            past => next(past, period_ns, now_ns),
        };
        Setting { next_ns, period_ns }
    }
}

/// The first time behind now, of those that follow `from_ns` by a period.
pub(crate) fn next(from_ns: u64, period_ns: u64, now_ns: u64) -> u64 {
    let passed = now_ns.saturating_sub(from_ns) / period_ns;
    from_ns.saturating_add((passed + 1).saturating_mul(period_ns))
}

#[derive(Default)]
struct All {
    /// That of `setitimer`, for real time.
    alarm: Setting,
    /// Those of `setitimer`, for CPU time of the process.
    intervals: [Setting; 2],
    /// Those of `timer_create`, by number.
    made: Vec<(u32, Timer)>,
    /// The number of the next one.
    next: u32,
}

impl All {
    /// Adds what is due to `due`; gives the next time.
    fn ring(&mut self, now_ns: u64, due: &mut Vec<Ring>) -> Option<u64> {
        due.extend(ring_interval(&mut self.alarm, SIGALRM, now_ns));
        let by_time = |timer: &Timer| matches!(timer.counted, Counted::Time(_));
        let made_ns = self.ring_made(by_time, now_ns, due);
        let alarm_ns = Some(self.alarm.next_ns).filter(|&ns| ns != 0);
        made_ns.into_iter().chain(alarm_ns).min()
    }

    /// EINVAL for a number that no timer has.
    fn timer(&mut self, id: u32) -> Result<&mut Timer> {
        let mut made = self.made.iter_mut();
        let found = made.find(|(number, _)| *number == id);
        found.map(|(_, timer)| timer).ok_or(Errno::EINVAL)
    }

    /// The same for those of `timer_create` that count what is `now_ns` now.
    fn ring_made(
        &mut self,
        counts: impl Fn(&Timer) -> bool,
        now_ns: u64,
        due: &mut Vec<Ring>,
    ) -> Option<u64> {
        let mut first_ns = None;
        for (id, timer) in self.made.iter_mut().filter(|(_, timer)| counts(timer)) {
            due.extend(timer.ring(*id, now_ns));
            first_ns = first_ns.into_iter().chain(timer.deadline_ns()).min();
        }
        first_ns
    }
}

/// The signal of a timer of `setitimer` that is due, which goes on then if it has a period.
fn ring_interval(setting: &mut Setting, signal: u32, now_ns: u64) -> Option<Ring> {
    if setting.next_ns == 0 || setting.next_ns > now_ns {
        return None;
    }
    setting.next_ns = match setting.period_ns {
        0 => 0,
        period_ns => next(setting.next_ns, period_ns, now_ns),
    };
    let info = Info {
        code: SI_KERNEL,
        ..Info::default()
    };
    Some((Notify::Process, signal, info))
}

/// The timers of a process. Methods that take `now_of` call it with what a timer counts, to learn
/// how much of that has passed.
#[derive(Default)]
pub(crate) struct Timers {
    all: SpinLock<All>,
    /// The thread that waits.
    pub(crate) waiter: SpinLock<Option<Waiter>>,
}

impl Timers {
    /// Sets the alarm; gives what it was set to.
    pub(crate) fn set_alarm(&self, setting: Setting) -> Setting {
        core::mem::replace(&mut self.all.lock().alarm, setting)
    }

    pub(crate) fn alarm(&self) -> Setting {
        self.all.lock().alarm
    }

    /// Adds a timer, whose value is its number if it has none.
    pub(crate) fn add(&self, mut timer: Timer, value: Option<u64>) -> Result<u32> {
        let mut all = self.all.lock();
        if all.made.len() >= MOST {
            return Err(Errno::EAGAIN);
        }
        let mut id = all.next;
        while all.timer(id).is_ok() {
            id = (id + 1) & i32::MAX as u32;
        }
        all.next = (id + 1) & i32::MAX as u32;
        timer.value = value.unwrap_or(id.into());
        all.made.push((id, timer));
        Ok(id)
    }

    /// What a timer counts.
    pub(crate) fn counted(&self, id: u32) -> Result<Counted> {
        Ok(self.all.lock().timer(id)?.counted)
    }

    /// Sets a timer; gives what it was set to. A signal of it that waits stays.
    pub(crate) fn set(
        &self,
        id: u32,
        setting: Setting,
        now_of: impl Fn(Counted) -> u64,
    ) -> Result<Setting> {
        let mut all = self.all.lock();
        let timer = all.timer(id)?;
        let old = timer.setting(now_of(timer.counted));
        timer.setting = setting;
        timer.rang_ns = None;
        timer.overruns = 0;
        Ok(old)
    }

    pub(crate) fn setting(&self, id: u32, now_of: impl Fn(Counted) -> u64) -> Result<Setting> {
        let mut all = self.all.lock();
        let timer = all.timer(id)?;
        Ok(timer.setting(now_of(timer.counted)))
    }

    /// Overruns of the signal that was taken last.
    pub(crate) fn overruns(&self, id: u32) -> Result {
        Ok(self.all.lock().timer(id)?.overruns)
    }

    /// The numbers of all but the alarm.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.all.lock().made.iter().map(|(id, _)| *id).collect()
    }

    pub(crate) fn remove(&self, id: u32) -> Result<()> {
        let mut all = self.all.lock();
        let at = all.made.iter().position(|(number, _)| *number == id);
        all.made.swap_remove(at.ok_or(Errno::EINVAL)?);
        Ok(())
    }

    /// What is due now goes to `due`; gives the next time.
    pub(crate) fn ring(&self, due: &mut Vec<Ring>) -> Option<u64> {
        self.all.lock().ring(Instant::now().as_nanos(), due)
    }

    /// A timer's signal is taken: notes its overruns, and lets the timer go on. Gives what
    /// `siginfo` says of both, and what the timer counts if it goes on.
    pub(crate) fn taken(&self, id: u32, now_of: impl Fn(Counted) -> u64) -> (u64, Option<Counted>) {
        let mut all = self.all.lock();
        let Ok(timer) = all.timer(id) else {
            return (id.into(), None);
        };
        let overruns = timer.taken(now_of(timer.counted));
        let goes_on = timer.deadline_ns().map(|_| timer.counted);
        (u64::from(id) | overruns << 32, goes_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(next_ns: u64, period_ns: u64) -> Timer {
        let mut timer = Timer::new(Counted::Time(Clock::Monotonic), Notify::Process, 34, 5);
        timer.setting = Setting { next_ns, period_ns };
        timer
    }

    #[test]
    fn a_timer_rings_once_until_its_signal_is_taken() {
        let mut timer = set(100, 10);
        assert_eq!(timer.ring(3, 99), None);
        let (_, signal, info) = timer.ring(3, 104).unwrap();
        assert_eq!((signal, info.origin, info.value), (34, 3, 5));
        assert_eq!((timer.deadline_ns(), timer.ring(3, 200)), (None, None));
        assert_eq!(timer.setting(112).next_ns, 120);
        // It rang at 100, and would have rung at 110 and 120.
        assert_eq!(timer.taken(125), 2);
        assert_eq!(timer.deadline_ns(), Some(130));
        assert!(timer.ring(3, 130).is_some());
        assert_eq!((timer.taken(131), timer.deadline_ns()), (0, Some(140)));
    }

    #[test]
    fn a_timer_without_a_period_rings_once() {
        let mut timer = set(100, 0);
        assert!(timer.ring(3, 100).is_some());
        assert_eq!((timer.taken(500), timer.deadline_ns()), (0, None));
        assert_eq!(timer.setting(500), Setting::default());
    }

    #[test]
    fn a_timer_that_tells_nobody_is_not_waited_for_and_goes_on() {
        let mut timer = set(100, 30);
        timer.notify = Notify::None;
        assert_eq!((timer.deadline_ns(), timer.ring(3, 100)), (None, None));
        assert_eq!(timer.setting(99).next_ns, 100);
        assert_eq!(timer.setting(100).next_ns, 130);
    }

    #[test]
    fn the_next_time_of_all_is_waited_for() {
        let mut all = All {
            alarm: Setting {
                next_ns: 50,
                period_ns: 20,
            },
            made: vec![(0, set(80, 0)), (1, set(60, 0))],
            next: 2,
            ..All::default()
        };
        let mut due = Vec::new();
        assert_eq!(all.ring(49, &mut due), Some(50));
        assert!(due.is_empty());
        assert_eq!(all.ring(75, &mut due), Some(80));
        let signals: Vec<u32> = due.iter().map(|ring| ring.1).collect();
        assert_eq!((signals, all.alarm.next_ns), (vec![SIGALRM, 34], 90));
    }

    #[test]
    fn times_without_end_do_not_wrap() {
        assert_eq!(next(u64::MAX - 5, 10, u64::MAX), u64::MAX);
        assert_eq!(next(0, 1, u64::MAX - 1), u64::MAX);
    }
}
