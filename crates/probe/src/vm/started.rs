//! Finding machines that start, again and again, within a share of a core.
//!
//! A process that starts a machine mostly does so soon: those that are young are looked
//! at each time. One that waits for a request (Firecracker's API) is found when all
//! processes are looked at, which happens as often as [`WHOLE_SHARE`] allows.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Vm, find};
use crate::clock::thread_cpu_ns;
use crate::proc;

/// Looks at a process while it is young.
const YOUNG: u32 = 6;
/// Share of a core that looking at all processes may take.
const WHOLE_SHARE: f64 = 0.002;
/// Shortest time between two looks at all.
const WHOLE: Duration = Duration::from_secs(2);

/// A process that lived so long when the first listing began is not young, s.
const YOUNG_S: u64 = 5;

/// Finds machines that start.
#[derive(Debug)]
pub struct Started {
    /// How often each process was looked at.
    looks: HashMap<u32, u32>,
    next_whole: Instant,
}

/// What a look found.
#[derive(Debug)]
pub struct Looked {
    /// The machines, those that are known too.
    pub vms: Vec<Vm>,
    /// Whether all processes were looked at.
    pub is_whole: bool,
}

impl Started {
    /// To be made before all machines are listed: what starts from now on is young, and so
    /// are processes that started a short time before this one.
    pub fn before_listing() -> Self {
        let started = |pid| Some(proc::stat(&proc::process(pid))?.started_ticks);
        let own = started(std::process::id()).unwrap_or(0);
        let old = own.saturating_sub(YOUNG_S * rustix::param::clock_ticks_per_second());
        let pids = proc::numbers(Path::new("/proc")).unwrap_or_default();
        let looks = pids.into_iter().map(|pid| {
            let is_old = started(pid).is_some_and(|started| started < old);
            (pid, if is_old { YOUNG } else { 0 })
        });
        Self {
            looks: looks.collect(),
            next_whole: Instant::now() + WHOLE,
        }
    }

    /// All machines have been listed, which took so much CPU time.
    pub fn listed(&mut self, took: Duration) {
        self.next_whole = Instant::now() + rest(took);
    }

    /// Machines of processes that are worth a look now.
    pub fn look(&mut self) -> Looked {
        let began_ns = thread_cpu_ns();
        let is_whole = Instant::now() >= self.next_whole;
        let pids = proc::numbers(Path::new("/proc")).unwrap_or_default();
        let known = std::mem::take(&mut self.looks);
        let mut vms = Vec::new();
        for pid in pids {
            let looks = known.get(&pid).copied().unwrap_or(0);
            self.looks.insert(pid, looks.saturating_add(1));
            if is_whole || looks < YOUNG {
                vms.extend(find::machine(pid).ok().flatten());
            }
        }
        if is_whole {
            let took = Duration::from_nanos(thread_cpu_ns().saturating_sub(began_ns));
            self.next_whole = Instant::now() + rest(took);
        }
        Looked { vms, is_whole }
    }
}

fn rest(took: Duration) -> Duration {
    WHOLE.max(took.div_f64(WHOLE_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_at_all_processes_keeps_its_share() {
        assert_eq!(rest(Duration::from_millis(1)), WHOLE);
        assert_eq!(rest(Duration::from_millis(20)), Duration::from_secs(10));
    }

    #[test]
    fn a_process_that_closed_its_machine_lives_without_it() {
        let pid = std::process::id();
        let vm = Vm {
            pid,
            started_ticks: proc::stat(&proc::process(pid)).expect("stat").started_ticks,
            name: "closed".to_owned(),
            monitor: crate::vm::Monitor::Tare,
            command: Vec::new(),
            vcpus: vec![0],
        };
        assert!(find::lives(&vm) && find::has_closed(&vm));
        // Of one that has ended nothing is seen.
        let ended = Vm {
            pid: u32::MAX,
            ..vm
        };
        assert!(!find::lives(&ended) && !find::has_closed(&ended));
    }

    #[test]
    fn processes_that_are_known_are_not_looked_at_each_time() {
        let mut started = Started::before_listing();
        started.listed(Duration::from_secs(60));
        let (own, first) = (std::process::id(), 1);
        // A process that is as young as this one is looked at again.
        assert_eq!(started.looks[&own], 0);
        started.looks.insert(first, YOUNG);
        for look in 1..=YOUNG {
            assert!(!started.look().is_whole);
            assert_eq!(started.looks[&own], look);
        }
        assert_eq!(started.looks[&first], 2 * YOUNG);
        started.next_whole = Instant::now();
        assert!(started.look().is_whole);
        // What has ended is forgotten.
        started.looks.insert(u32::MAX, 1);
        started.look();
        assert!(!started.looks.contains_key(&u32::MAX));
    }
}
