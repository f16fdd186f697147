//! When threads look at timers of CPU time (`timers::cpu`), and what they do then.

use core::sync::atomic::Ordering;

use tare_libos::thread::cores;
use tare_libos::time::Instant;

use crate::process::Process;
use crate::ring;
use crate::thread::Thread;
use crate::timers::{Clocks, LEAST_LOOK_NS, NEVER, NOW};

/// When the thread is to look.
fn look_ns(process: &Process, thread: &Thread) -> u64 {
    let own_ns = thread.cpu_look_ns.load(Ordering::SeqCst);
    process.timers.cpu_look_ns().min(own_ns)
}

/// Sends the signals of timers that are due, where the thread may find some. Called when it comes
/// from the program: what has used the time gets the signal.
pub(crate) fn look(process: &Process, thread: &Thread) {
    let look_ns = look_ns(process, thread);
    if look_ns == NEVER {
        return;
    }
    let now_ns = Instant::now().as_nanos();
    if now_ns < look_ns {
        return;
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
}

/// When the program, to which the thread goes, is interrupted for timers of CPU time.
pub(crate) fn limit(process: &Process, thread: &Thread) -> Option<Instant> {
    let look_ns = look_ns(process, thread);
    if look_ns == NEVER {
        return None;
    }
    let now_ns = Instant::now().as_nanos();
    // Where other threads have used the time meanwhile, this one runs for a while too.
    let ns = if look_ns > now_ns {
        look_ns
    } else {
        now_ns + LEAST_LOOK_NS
    };
    Some(Instant::from_nanos(ns))
}

/// Whether the thread has to look before it goes to the program, because a timer was set.
pub(crate) fn must_look(process: &Process, thread: &Thread) -> bool {
    look_ns(process, thread) == NOW
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
        look(&process, &thread);
        assert_eq!(limit(&process, &thread), None);
        assert!(!must_look(&process, &thread));
    }

    #[test]
    fn a_thread_looks_after_a_timer_is_set_and_takes_its_signal_itself() {
        let (process, thread) = Process::of_test();
        let other = thread.start(PID_OF_OTHER);
        process.threads.lock().insert(PID_OF_OTHER, other.clone());
        thread.cpu_time.run(1);
        ring::set_interval(&process, &other, Interval::Prof, every(1, 0));
        assert!(must_look(&process, &thread));
        look(&process, &thread);
        assert_eq!(process.pending.bits(), Mask::of(SIGPROF).0);
        assert_eq!(limit(&process, &thread), None, "it has rung");

        // By the clock of a thread that waits, to that thread.
        let counted = Counted::Thread(PID_OF_OTHER);
        let timer = Timer::new(counted, Notify::Thread(PID_OF_OTHER), 34, 0);
        let id = process.timers.add(timer, None).unwrap();
        ring::set_timer(&process, &thread, id, every(3, 5)).unwrap();
        look(&process, &thread);
        assert!(!must_look(&process, &thread) && must_look(&process, &other));
        assert_eq!(other.pending.bits(), 0);
        other.cpu_time.run(1);
        look(&process, &other);
        assert_eq!(other.pending.bits(), Mask::of(34).0);
        assert_eq!(limit(&process, &other), None, "its signal waits");
        other.cpu_time.pause(24);
        // Discarded or taken, it goes on: 3 was due, 8 to 23 were missed.
        process.discard(&thread, 34);
        assert!(must_look(&process, &other));
        assert_eq!(process.timers.overruns(id), Ok(4));
        let now_of = |counted| process.counted_ns(counted);
        assert_eq!(process.timers.setting(id, now_of), Ok(every(28, 5)));
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
