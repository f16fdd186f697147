//! Processes by PID and start time, their descendants and threads, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::iter;

use rustix::process::Signal;
use tare_host::process::ProcessHandle;
pub use tare_host::process::start_time;

/// A process as `/proc` lists it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    pid: u32,
    parent: u32,
    start: u64,
}

/// Fields of `/proc/PID/stat` after the name, which may hold spaces and parentheses
/// (`proc_pid_stat(5)`): the fourth and the twenty-second of all.
fn listed(pid: u32) -> Option<Listed> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace();
    Some(Listed {
        pid,
        parent: fields.nth(1)?.parse().ok()?,
        start: fields.nth(17)?.parse().ok()?,
    })
}

/// A process and all that descend from it, parents first.
pub fn tree(pid: u32) -> Vec<u32> {
    let all: Vec<Listed> = all().filter_map(listed).collect();
    let below = descendants(pid, &all);
    iter::once(pid)
        .chain(below.iter().map(|it| it.pid))
        .collect()
}

/// What descends from a process, parents first.
fn descendants(pid: u32, all: &[Listed]) -> Vec<Listed> {
    let mut children: BTreeMap<u32, Vec<Listed>> = BTreeMap::new();
    for child in all {
        children.entry(child.parent).or_default().push(*child);
    }
    let mut tree = children.remove(&pid).unwrap_or_default();
    let mut at = 0;
    while let Some(next) = tree.get(at) {
        tree.extend(children.remove(&next.pid).unwrap_or_default());
        at += 1;
    }
    tree
}

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Threads of a process with their names.
pub fn threads(pid: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let ids = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.map(|tid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        (tid, name.unwrap_or_default().trim().to_owned())
    })
    .collect()
}

/// Kills a process that started then, with all that descend from it.
pub(crate) fn end_tree(pid: u32, start: u64) {
    let all: Vec<Listed> = all().filter_map(listed).collect();
    // Still that process: what the list has below its number descends from it.
    let Some(process) = ProcessHandle::open(pid, start) else {
        return;
    };
    // All are open before one ends, and its number is free.
    let below: Vec<ProcessHandle> = descendants(pid, &all).iter().filter_map(open).collect();
    for process in iter::once(&process).chain(&below) {
        // Whoever is gone is gone.
        let _ = process.signal(Signal::KILL);
    }
}

/// The process that was listed, unless it has ended.
fn open(listed: &Listed) -> Option<ProcessHandle> {
    ProcessHandle::open(listed.pid, listed.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_its_parents_tree() {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        assert!(tree(parent).contains(&own));
        assert!(threads(own).iter().any(|(_, name)| !name.is_empty()));
        assert!(start_time(own).is_some());
        assert_eq!(start_time(0), None);
    }
    #[test]
    fn descendants_come_after_their_parents() {
        let listed = |(pid, parent)| Listed {
            pid,
            parent,
            start: 0,
        };
        let all = [(7, 5), (5, 2), (2, 1), (6, 2), (3, 1)].map(listed);
        let below: Vec<u32> = descendants(2, &all).iter().map(|it| it.pid).collect();
        assert_eq!(below, [5, 6, 7]);
        assert!(descendants(3, &all).is_empty());
    }

    /// A number that was listed, and belongs to another process by now.
    #[test]
    fn a_listed_number_that_was_used_again_is_not_opened() {
        let now = listed(std::process::id()).unwrap();
        assert_eq!(now.parent, std::os::unix::process::parent_id());
        assert_eq!(Some(now.start), start_time(now.pid));
        assert!(open(&now).is_some());
        let before = Listed {
            start: now.start - 1,
            ..now
        };
        assert!(open(&before).is_none());
    }
}
