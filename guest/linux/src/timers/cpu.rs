//! Timers of CPU time: `setitimer(2)` with ITIMER_VIRTUAL and ITIMER_PROF, and `timer_create(2)` on
//! the CPU clocks of the process and of its threads (kernel `kernel/time/posix-cpu-timers.c`).
//!
//! No thread waits for them, because CPU time passes only while a thread runs. A thread that
//! goes to the program has it interrupted when the first timer may be due, and looks then
//! (`looks`). So an idle program does not wake for them, and one without them compares two
//! numbers for each call.
//!
//! Limits: all CPU time counts as the program's own, so that both timers of `setitimer` count the
//! same; a timer rings up to a millisecond late, where Linux's ticks are 1 to 10 ms.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::{SIGPROF, SIGVTALRM};

use super::{All, Counted, Ring, Timer, Timers, ring_interval};
use crate::files::timer::Setting;

/// Time between two looks at least, nanoseconds. It leaves most of the CPU to a program whose timers
/// have shorter periods.
pub(crate) const LEAST_LOOK_NS: u64 = 1_000_000;

/// When to look at the timers: at no time, and before the program goes on.
pub(crate) const NEVER: u64 = u64::MAX;
pub(crate) const NOW: u64 = 0;

/// A timer of `setitimer` that counts CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    Virtual,
    Prof,
}

/// Their signals.
const SIGNALS: [u32; 2] = [SIGVTALRM, SIGPROF];

/// What the clocks show when a thread looks.
pub(crate) struct Clocks {
    /// The monotonic one.
    pub(crate) now_ns: u64,
    pub(crate) process_ns: u64,
    /// How many threads run.
    pub(crate) running: usize,
    /// The thread that looks.
    pub(crate) thread: u32,
    pub(crate) thread_ns: u64,
}

impl All {
    /// Adds what is due to `due`; gives when the thread looks next, of the monotonic clock.
    fn ring_cpu(&mut self, clocks: &Clocks, due: &mut Vec<Ring>) -> u64 {
        for (interval, signal) in self.intervals.iter_mut().zip(SIGNALS) {
            due.extend(ring_interval(interval, signal, clocks.process_ns));
        }
        let intervals = self.intervals.iter().map(|interval| interval.next_ns);
        let intervals_ns = intervals.filter(|&ns| ns != 0).min();
        let by_process = |timer: &Timer| timer.counted == Counted::Process;
        let made_ns = self.ring_made(by_process, clocks.process_ns, due);
        let by_thread = |timer: &Timer| timer.counted == Counted::Thread(clocks.thread);
        let thread_ns = self.ring_made(by_thread, clocks.thread_ns, due);
        let process_ns = intervals_ns.into_iter().chain(made_ns).min();
        // Threads that run at the same time come there sooner.
        let running = clocks.running.max(1) as u64;
        let process_rest_ns = process_ns.map(|ns| ns.saturating_sub(clocks.process_ns) / running);
        let rest_ns = thread_ns.map(|ns| ns.saturating_sub(clocks.thread_ns));
        let first_ns = process_rest_ns.into_iter().chain(rest_ns).min();
        first_ns.map_or(NEVER, |ns| {
            clocks.now_ns.saturating_add(ns.max(LEAST_LOOK_NS))
        })
    }
}

impl Timers {
    /// Sets a timer of `setitimer`; gives what it was set to.
    pub(crate) fn set_interval(&self, interval: Interval, setting: Setting) -> Setting {
        let slot = &mut self.all.lock().intervals[interval as usize];
        core::mem::replace(slot, setting)
    }

    pub(crate) fn interval(&self, interval: Interval) -> Setting {
        self.all.lock().intervals[interval as usize]
    }

    /// What is due goes out; notes in `look_ns` when the thread looks next.
    pub(crate) fn ring_cpu(&self, clocks: &Clocks, look_ns: &AtomicU64) -> Vec<Ring> {
        let mut due = Vec::new();
        let mut all = self.all.lock();
        let next_ns = all.ring_cpu(clocks, &mut due);
        look_ns.store(next_ns, Ordering::SeqCst);
        drop(all);
        due
    }

    /// Has threads look before they go to the program again. A look that goes on ends before, by
    /// noting the next one.
    pub(crate) fn look_now<'a>(&self, threads: impl Iterator<Item = &'a AtomicU64>) {
        let all = self.all.lock();
        threads.for_each(|look_ns| look_ns.store(NOW, Ordering::SeqCst));
        drop(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::Notify;

    const MS: u64 = 1_000_000;
    const THREAD: u32 = 7;

    fn every(next_ns: u64, period_ns: u64) -> Setting {
        Setting { next_ns, period_ns }
    }

    fn made(counted: Counted, setting: Setting) -> Timer {
        let mut timer = Timer::new(counted, Notify::Process, 34, 0);
        timer.setting = setting;
        timer
    }

    /// Clocks at a time at which the process and its thread have used so much.
    fn at(now_ns: u64, process_ns: u64, thread_ns: u64) -> Clocks {
        Clocks {
            now_ns,
            process_ns,
            running: 2,
            thread: THREAD,
            thread_ns,
        }
    }

    fn signals(all: &mut All, clocks: &Clocks) -> (Vec<u32>, u64) {
        let mut due = Vec::new();
        let look_ns = all.ring_cpu(clocks, &mut due);
        (due.iter().map(|ring| ring.1).collect(), look_ns)
    }

    #[test]
    fn without_timers_of_cpu_time_nothing_looks() {
        let mut all = All {
            alarm: every(1, 1),
            ..All::default()
        };
        assert_eq!(signals(&mut all, &at(9, 9, 9)), (Vec::new(), NEVER));
    }

    #[test]
    fn a_timer_of_setitimer_rings_by_the_process_and_is_looked_at_when_all_may_have_used_it() {
        let mut all = All::default();
        all.intervals[Interval::Prof as usize] = every(10 * MS, 10 * MS);
        all.intervals[Interval::Virtual as usize] = every(50 * MS, 0);
        let (rung, look_ns) = signals(&mut all, &at(100 * MS, 4 * MS, 0));
        // Two threads use 6 ms in 3.
        assert_eq!((rung, look_ns), (Vec::new(), 103 * MS));
        // What passed meanwhile is one signal.
        let (rung, look_ns) = signals(&mut all, &at(120 * MS, 32 * MS, 0));
        assert_eq!((rung, look_ns), (vec![SIGPROF], 124 * MS));
        let (rung, _) = signals(&mut all, &at(140 * MS, 50 * MS, 0));
        assert_eq!(rung, [SIGVTALRM, SIGPROF]);
        assert_eq!(all.intervals[Interval::Virtual as usize].next_ns, 0);
    }

    #[test]
    fn a_timer_of_a_thread_rings_by_that_thread_alone() {
        let mut all = All::default();
        let other = made(Counted::Thread(THREAD + 1), every(1, 0));
        all.made.push((0, other));
        let own = made(Counted::Thread(THREAD), every(5 * MS, 0));
        all.made.push((1, own));
        let (rung, look_ns) = signals(&mut all, &at(100 * MS, 90 * MS, 2 * MS));
        assert_eq!((rung, look_ns), (Vec::new(), 103 * MS));
        let (rung, look_ns) = signals(&mut all, &at(103 * MS, 90 * MS, 5 * MS));
        assert_eq!((rung, look_ns), (vec![34], NEVER));
        // The thread that waits for timers of time leaves them all.
        let mut due = Vec::new();
        assert_eq!(all.ring(u64::MAX, &mut due), None);
        assert!(due.is_empty());
    }

    #[test]
    fn a_short_period_leaves_the_program_a_millisecond() {
        let mut all = All::default();
        all.intervals[0] = every(1, 1);
        let (rung, look_ns) = signals(&mut all, &at(100 * MS, 70 * MS, 0));
        assert_eq!((rung, look_ns), (vec![SIGVTALRM], 101 * MS));
    }
}
