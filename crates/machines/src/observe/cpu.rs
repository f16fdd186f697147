//! CPU time of a process and its descendants, by thread.
//!
//! From `/proc/PID/task/TID/schedstat`, the scheduler's own account in ns. A
//! thread that is running was charged at its last scheduler tick, so a reading
//! may be a few milliseconds behind; over successive windows this cancels.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tare_host::process;
use tare_probe::proc::schedstat;

/// The network's helpers, accounted apart from the monitor, by the beginning of their names.
const HELPERS: [&str; 2] = ["passt", "tare-ports"];
/// Deepest descendants that are looked for.
const DEPTH: usize = 4;

/// CPU time so far of every thread of a process and its descendants.
#[derive(Clone, Debug)]
pub struct CpuReading {
    /// When it was read.
    pub at: Instant,
    threads: BTreeMap<u32, ThreadTime>,
}

#[derive(Clone, Debug)]
struct ThreadTime {
    process: String,
    thread: String,
    run_ns: u64,
    wait_ns: u64,
}

/// CPU time between two readings, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSpent {
    /// Between the readings.
    pub wall_ns: u64,
    /// Of the monitor's threads together.
    pub monitor_ns: u64,
    /// Time that the monitor's threads were ready and had no CPU.
    pub(crate) wait_ns: u64,
    /// Of the network helper (passt).
    pub helper_ns: u64,
    /// Of each of the monitor's threads, by name.
    pub threads: BTreeMap<String, u64>,
}

fn is_helper(process: &str) -> bool {
    HELPERS.iter().any(|helper| process.starts_with(helper))
}

impl CpuReading {
    /// Reads the threads of `root` and its descendants, and of `helpers` that
    /// have left its family. An error means that `root` is gone.
    pub(crate) fn read(root: u32, helpers: &[u32]) -> io::Result<Self> {
        let mut reading = Self {
            at: Instant::now(),
            threads: BTreeMap::new(),
        };
        reading.add_process(root, DEPTH)?;
        for helper in helpers {
            let _ = reading.add_process(*helper, 0);
        }
        Ok(reading)
    }

    /// CPU time from `earlier` to this reading.
    pub fn since(&self, earlier: &Self) -> CpuSpent {
        let wall = self.at.duration_since(earlier.at).as_nanos();
        let mut spent = CpuSpent {
            wall_ns: u64::try_from(wall).unwrap_or(u64::MAX),
            ..CpuSpent::default()
        };
        for (tid, now) in &self.threads {
            let before = earlier
                .threads
                .get(tid)
                .map_or((0, 0), |t| (t.run_ns, t.wait_ns));
            let ns = now.run_ns.saturating_sub(before.0);
            if is_helper(&now.process) {
                spent.helper_ns += ns;
            } else {
                spent.monitor_ns += ns;
                spent.wait_ns += now.wait_ns.saturating_sub(before.1);
                *spent.threads.entry(now.thread.clone()).or_default() += ns;
            }
        }
        spent
    }

    fn add_process(&mut self, pid: u32, depth: usize) -> io::Result<()> {
        let process = line(&format!("/proc/{pid}/comm"))?;
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let Some(tid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            // A thread or child may end while it is looked at.
            let _ = self.add_thread(pid, tid, &process, depth);
        }
        Ok(())
    }

    fn add_thread(&mut self, pid: u32, tid: u32, process: &str, depth: usize) -> io::Result<()> {
        let task = format!("/proc/{pid}/task/{tid}");
        let text = fs::read_to_string(format!("{task}/schedstat"))?;
        let (run_ns, wait_ns) = schedstat(&text).ok_or(io::ErrorKind::InvalidData)?;
        let time = ThreadTime {
            process: process.to_owned(),
            thread: line(&format!("{task}/comm"))?,
            run_ns,
            wait_ns,
        };
        self.threads.insert(tid, time);
        if depth > 0 {
            for child in process::children_of(Path::new(&task)) {
                let _ = self.add_process(child, depth - 1);
            }
        }
        Ok(())
    }
}

impl CpuSpent {
    /// The monitor's share of one core, percent.
    pub fn monitor_pct(&self) -> f64 {
        percent(self.monitor_ns, self.wall_ns)
    }

    /// Time that ready threads waited for a CPU, percent of the window.
    pub fn wait_pct(&self) -> f64 {
        percent(self.wait_ns, self.wall_ns)
    }

    /// The network helper's share of one core, percent.
    pub fn helper_pct(&self) -> f64 {
        percent(self.helper_ns, self.wall_ns)
    }
}

/// Process IDs of the descendants of `root`.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        found.extend(process::children(pid));
    }
    found.remove(0);
    found
}

/// Network helpers whose command line has `word`: one that was started apart
/// from the monitor is not among its descendants.
pub(crate) fn helpers_with(word: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| line(&format!("/proc/{pid}/comm")).is_ok_and(|name| is_helper(&name)))
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line)
                .split('\0')
                .any(|w| w.contains(word))
        })
        .collect()
}

fn line(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end().to_owned())
}

fn percent(part_ns: u64, wall_ns: u64) -> f64 {
    if wall_ns == 0 {
        return 0.0;
    }
    part_ns as f64 / wall_ns as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const BUSY_NS: u64 = 20_000_000;

    #[test]
    fn a_busy_child_is_charged_to_its_parent_and_a_sleeping_one_is_not() {
        let run = |script: &str, most_turns: u32| {
            let mut child = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(50));
            let before = CpuReading::read(child.id(), &[]).unwrap();
            let mut turns = 0;
            let spent = loop {
                thread::sleep(Duration::from_millis(200));
                let spent = CpuReading::read(child.id(), &[]).unwrap().since(&before);
                turns += 1;
                // On a busy computer it gets little of each turn.
                if turns == most_turns || spent.monitor_ns > BUSY_NS {
                    break spent;
                }
            };
            for pid in descendants(child.id()) {
                let _ = Command::new("kill").arg(pid.to_string()).status();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            spent
        };
        let busy = run("sh -c 'while :; do :; done' & wait", 200);
        assert!(busy.monitor_ns > BUSY_NS, "{busy:?}");
        let idle = run("sleep 5 & wait", 1);
        assert!(idle.monitor_ns < BUSY_NS / 2, "{idle:?}");
        assert_eq!(idle.helper_ns, 0);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(CpuReading::read(u32::MAX, &[]).is_err());
    }
}
