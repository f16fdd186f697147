//! Threads of the lab, each on its own CPU.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that this process may use.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Keeps the calling thread on `cpu`; says whether it did. `None` leaves it.
pub fn this_thread(cpu: Option<usize>) -> bool {
    let Some(cpu) = cpu else { return false };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Does both in new threads, `caller` on the first of `cpus` CPUs and `other` on the
/// last; what `caller` gives.
pub fn pair<T: Send>(
    cpus: usize,
    other: impl FnOnce() + Send,
    caller: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let allowed = allowed()?;
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.get(cpus - 1)) else {
        return Err(io::Error::other("there are not enough CPUs"));
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            this_thread(Some(last));
            other();
        });
        let caller = scope.spawn(move || {
            this_thread(Some(first));
            caller()
        });
        let panicked = |_| Err(io::Error::other("a thread of the host's arm ended early"));
        caller.join().unwrap_or_else(panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_cpu() {
        let cpu = *allowed().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || (this_thread(Some(cpu)), allowed().unwrap()));
        assert_eq!(seen.join().unwrap(), (true, vec![cpu]));
    }

    #[test]
    fn more_cpus_than_there_are_is_an_error() {
        assert!(pair(100_000, || (), || Ok(())).is_err());
    }
}
