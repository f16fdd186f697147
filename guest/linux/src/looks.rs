//! When threads look at timers of CPU time (`timers::cpu`), and what they do then.

use core::sync::atomic::Ordering;

use tare_libos::thread::cores;
use tare_libos::time::Instant;

use crate::process::Process;
use crate::ring;
use crate::thread::Thread;
use crate::timers::{Clocks, LEAST_LOOK_NS, NEVER, NOW};

/// Sends the signals of timers that are due, where the thread may find some. Called when it comes
/// from the program: what has used the time gets the signal. Says whether it is to look again,
/// unless a timer is set.
#[inline]
pub(crate) fn look(process: &Process, thread: &Thread) -> bool {
    let look_ns = thread.cpu_look_ns.load(Ordering::Relaxed);
    look_ns != NEVER && look_from(look_ns, process, thread)
}

/// The same, where there were timers at the last look, or one was set.
#[inline(never)]
fn look_from(look_ns: u64, process: &Process, thread: &Thread) -> bool {
    let now_ns = Instant::now().as_nanos();
    if now_ns < look_ns {
        return true;
    }
    let (process_ns, running) = process.cpu_use(now_ns);
    let clocks = Clocks {
        now_ns,
        process_ns,
        running: running.min(cores()),
        thread: thread.number,
        thread_ns: thread.cpu_time.ns(now_ns),
    };
    for due in process.timers.ring_cpu(&clocks, &thread.cpu_look_ns) {
        ring::send(process, Some(thread), due);
    }
    thread.cpu_look_ns.load(Ordering::Relaxed) != NEVER
}

/// When the program, to which the thread goes, is interrupted for a look that is to come; not later
/// than `other`.
#[inline(never)]
pub(crate) fn limit(thread: &Thread, other: Option<Instant>) -> Instant {
    let look_ns = thread.cpu_look_ns.load(Ordering::Relaxed);
    let now_ns = Instant::now().as_nanos();
    // Where other threads have used the time meanwhile, this one runs for a while too.
    let ns = if look_ns > now_ns {
        look_ns
    } else {
        now_ns + LEAST_LOOK_NS
    };
    let own = Instant::from_nanos(ns);
    other.map_or(own, |other| own.min(other))
}

/// Whether the thread has to look before it goes to the program, because a timer was set.
#[inline]
pub(crate) fn must_look(thread: &Thread) -> bool {
    thread.cpu_look_ns.load(Ordering::SeqCst) == NOW
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::timer::Setting;
    use crate::pending::Info;
    use crate::signals::Mask;
    use crate::timers::{Counted, Interval, Notify, Timer};
    use linux_raw_sys::general::SIGPROF;

    const PID_OF_OTHER: u32 = 2;

    fn every(next_ns: u64, period_ns: u64) -> Setting {
        Setting { next_ns, period_ns }
    }

    #[test]
    fn a_thread_without_timers_of_cpu_time_has_no_limit() {
        let (process, thread) = Process::of_test();
        // Its first look finds that.
        assert!(must_look(&thread));
        assert!(!look(&process, &thread));
        assert!(!must_look(&thread));
    }

    #[test]
    fn a_thread_looks_after_a_timer_is_set_and_takes_its_signal_itself() {
        let (process, thread) = Process::of_test();
        let other = thread.start(PID_OF_OTHER);
        process.threads.lock().insert(PID_OF_OTHER, other.clone());
        thread.cpu_time.run(1);
        ring::set_interval(&process, &other, Interval::Prof, every(1, 0));
        assert!(must_look(&thread));
        assert!(!look(&process, &thread), "it has rung");
        assert_eq!(process.pending.bits(), Mask::of(SIGPROF).0);

        // By the clock of a thread that waits, to that thread.
        let counted = Counted::Thread(PID_OF_OTHER);
        let timer = Timer::new(counted, Notify::Thread(PID_OF_OTHER), 34, 0);
        let id = process.timers.add(timer, None).unwrap();
        ring::set_timer(&process, &thread, id, every(3, 5)).unwrap();
        look(&process, &thread);
        assert!(!must_look(&thread) && must_look(&other));
        assert_eq!(other.pending.bits(), 0);
        other.cpu_time.run(1);
        assert!(!look(&process, &other), "its signal waits");
        assert_eq!(other.pending.bits(), Mask::of(34).0);
        other.cpu_time.pause(24);
        // Discarded or taken, it goes on: 3 was due, 8 to 23 were missed.
        process.discard(&thread, 34);
        assert!(must_look(&other));
        assert_eq!(process.timers.overruns(id), Ok(4));
        let now_of = |counted| process.counted_ns(counted);
        assert_eq!(process.timers.setting(id, now_of), Ok(every(28, 5)));
    }

    #[test]
    fn the_program_is_interrupted_for_a_look_and_has_a_while_until_then() {
        let (_, thread) = Process::of_test();
        let at = |ns| Instant::from_nanos(ns);
        thread.cpu_look_ns.store(NEVER - 1, Ordering::Relaxed);
        assert_eq!(limit(&thread, None), at(NEVER - 1));
        assert_eq!(limit(&thread, Some(at(7))), at(7));
        // What is past already is put off.
        thread.cpu_look_ns.store(1, Ordering::Relaxed);
        assert!(limit(&thread, None) >= at(LEAST_LOOK_NS));
    }

    #[test]
    fn a_signal_that_who_runs_has_blocked_goes_to_another() {
        let (process, thread) = Process::of_test();
        let due = (Notify::Process, SIGPROF, Info::default());
        thread.blocked.store(Mask::of(SIGPROF).0, Ordering::Relaxed);
        ring::send(&process, Some(&thread), due);
        assert_eq!(process.pending.bits(), Mask::of(SIGPROF).0);
        let gone = (Notify::Thread(99), SIGPROF, Info::default());
        ring::send(&process, Some(&thread), gone);
        assert_eq!(thread.pending.bits(), 0);
    }
}
