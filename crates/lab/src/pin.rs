//! Threads of the lab on CPUs of their own.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that this process may use.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Keeps the calling thread on `cpu`; says whether it did. `None` leaves it.
pub(crate) fn this_thread(cpu: Option<usize>) -> bool {
    let Some(cpu) = cpu else { return false };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_cpu() {
        let cpu = *allowed().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || (this_thread(Some(cpu)), allowed().unwrap()));
        assert_eq!(seen.join().unwrap(), (true, vec![cpu]));
    }
}
