//! What CPUs are asked for: time of threads on them, and time of those that wait.
//!
//! A CPU that one thread keeps busy and one for which five queue have the same busy
//! share (`/proc/stat`); to a sixth thread they are not the same. The kernel's sums by
//! CPU (`/proc/schedstat`) are not in every kernel, those by thread are.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::task::{self, Task};

/// Time of every visible thread on a CPU and waiting for one, ns, by PID and TID.
#[derive(Debug, Default)]
pub(crate) struct Asked(BTreeMap<(u32, u32), u64>);

impl Asked {
    /// Until now.
    pub(crate) fn now() -> Self {
        let pids = task::numbers(Path::new("/proc")).into_iter();
        let threads = pids.flat_map(|pid| {
            let tids = task::numbers(&task::process(pid).join("task"));
            tids.into_iter().map(move |tid| (pid, tid))
        });
        let times = threads.map(|(pid, tid)| {
            let (run_ns, ready_ns) = task::schedstat(pid, tid);
            ((pid, tid), run_ns + ready_ns)
        });
        Self(times.collect())
    }

    /// Threads that ran since, where they ran last.
    pub(crate) fn since(self) -> Vec<(Task, u64)> {
        let now = Self::now().0.into_iter();
        let ran = now.filter_map(|(thread, asked_ns)| {
            // One that has begun since asked for all of its time since.
            let then_ns = self.0.get(&thread).copied().unwrap_or(0);
            Some((thread, asked_ns.checked_sub(then_ns).filter(|ns| *ns > 0)?))
        });
        ran.filter_map(|((pid, tid), ns)| Some((task::of(pid, tid)?, ns)))
            .collect()
    }
}

/// A time within a window, thousandths of it.
pub(crate) fn permille(ns: u64, window: Duration) -> u16 {
    let window_ns = window.as_nanos().max(1);
    u16::try_from(u128::from(ns) * 1000 / window_ns).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Busy(Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A loop of a shell, tied to one CPU.
    fn busy(cpu: u16) -> Busy {
        let mut shell = Command::new("taskset");
        shell.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
        Busy(shell.spawn().unwrap())
    }

    #[test]
    fn threads_that_queue_for_a_cpu_count_beside_the_one_that_runs() {
        let cpu = task::of(std::process::id(), std::process::id())
            .unwrap()
            .cpu;
        let three = [busy(cpu), busy(cpu), busy(cpu)];
        let pids: Vec<u32> = three.iter().map(|busy| busy.0.id()).collect();
        let is_tied = |(task, _): &(Task, u64)| pids.contains(&task.id.pid);
        for _ in 0..100 {
            let asked = Asked::now();
            std::thread::sleep(Duration::from_millis(100));
            let ran: Vec<_> = asked.since().into_iter().filter(is_tied).collect();
            let all_ns: u64 = ran.iter().map(|(_, ns)| ns).sum();
            // Of one CPU they cannot get more than the window, so the rest is waiting;
            // until taskset has tied them they may run elsewhere.
            if ran.len() == 3 && all_ns > 200_000_000 {
                assert!(ran.iter().all(|(task, _)| task.cpu == cpu));
                return;
            }
        }
        panic!("three loops on one CPU never asked for two of it");
    }

    #[test]
    fn a_share_of_a_window_is_in_thousandths() {
        let window = Duration::from_millis(150);
        assert_eq!(permille(75_000_000, window), 500);
        assert_eq!(permille(300_000_000, window), 2000);
        assert_eq!(permille(u64::MAX, window), u16::MAX);
        assert_eq!(permille(1, Duration::ZERO), 1000);
    }
}
