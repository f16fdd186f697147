//! Finding machines that start, again and again, within a share of a core.
//!
//! A process that starts a machine mostly does so soon: those that are young are looked
//! at each time. One that waits to be told (Firecracker's API) is found when all
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

/// Finds machines that start.
#[derive(Debug)]
pub struct Started {
    /// How often each process was looked at.
    looks: HashMap<u32, u32>,
    next_whole: Instant,
}

impl Started {
    /// Processes that live already are not young. `took` is the CPU time of the listing
    /// before.
    pub fn after_listing(took: Duration) -> Self {
        let pids = proc::numbers(Path::new("/proc")).unwrap_or_default();
        Self {
            looks: pids.into_iter().map(|pid| (pid, YOUNG)).collect(),
            next_whole: Instant::now() + rest(took),
        }
    }

    /// Machines of processes that are worth a look now; those that are known too.
    pub fn look(&mut self) -> Vec<Vm> {
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
        vms
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
    fn processes_that_are_known_are_not_looked_at_each_time() {
        let mut started = Started::after_listing(Duration::from_secs(60));
        started.look();
        let own = std::process::id();
        assert_eq!(started.looks[&own], YOUNG + 1);
        started.looks.remove(&own);
        for look in 1..YOUNG {
            started.look();
            assert_eq!(started.looks[&own], look);
        }
        // What has ended is forgotten.
        started.looks.insert(u32::MAX, 1);
        started.look();
        assert!(!started.looks.contains_key(&u32::MAX));
    }
}
