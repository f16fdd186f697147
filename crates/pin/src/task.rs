//! Threads by the number that the kernel reuses and the start time that it does not.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_probe::proc::TaskStat;

/// One thread forever: its number and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Its process.
    pub pid: u32,
    /// Its thread ID.
    pub tid: u32,
    /// Start, clock ticks since boot.
    pub started_ticks: u64,
}

/// A thread as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// The CPU it ran on last.
    pub cpu: u16,
    /// CPU time so far, ns.
    pub run_ns: u64,
    /// Time that it waited for a CPU so far, ns.
    pub ready_ns: u64,
}

impl TaskId {
    /// Whether this very thread lives.
    pub fn lives(&self) -> bool {
        stat(self.pid, self.tid).is_some_and(|stat| stat.started_ticks == self.started_ticks)
    }
}

/// All threads of a process; none if it has ended.
pub(crate) fn of_process(pid: u32) -> Vec<Task> {
    let tids = numbers(&process(pid).join("task"));
    tids.into_iter().filter_map(|tid| of(pid, tid)).collect()
}

/// One thread.
pub(crate) fn of(pid: u32, tid: u32) -> Option<Task> {
    let stat = stat(pid, tid)?;
    let (run_ns, ready_ns) = schedstat(pid, tid);
    Some(Task {
        id: TaskId {
            pid,
            tid,
            started_ticks: stat.started_ticks,
        },
        name: stat.comm,
        cpu: u16::try_from(stat.cpu).unwrap_or(u16::MAX),
        run_ns,
        ready_ns,
    })
}

/// A thread's time on a CPU and waiting for one so far, ns; 0 if it has ended.
pub(crate) fn schedstat(pid: u32, tid: u32) -> (u64, u64) {
    let text = fs::read_to_string(thread(pid, tid).join("schedstat")).unwrap_or_default();
    tare_probe::proc::schedstat(&text).unwrap_or_default()
}

/// The numbers among a folder's entries, ascending.
pub(crate) fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

/// The folder of a process.
pub(crate) fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn thread(pid: u32, tid: u32) -> PathBuf {
    process(pid).join("task").join(tid.to_string())
}

fn stat(pid: u32, tid: u32) -> Option<TaskStat> {
    let bytes = fs::read(thread(pid, tid).join("stat")).ok()?;
    TaskStat::parse(&String::from_utf8_lossy(&bytes))
}
