//! The kernel's clocks in ns.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    of(ClockId::ThreadCPUTime)
}

/// CPU time of this process, all threads.
pub fn process_cpu_ns() -> u64 {
    of(ClockId::ProcessCPUTime)
}

/// Time since the computer started.
pub(crate) fn monotonic_ns() -> u64 {
    of(ClockId::Monotonic)
}

fn of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}
