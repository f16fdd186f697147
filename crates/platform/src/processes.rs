//! Processes by PID and start time, their descendants and threads, from `/proc`.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};
pub use tare_host::process::start_time;

/// A field of `/proc/PID/stat`, counted from 1 (proc(5)), after the name.
fn field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    after
        .split_ascii_whitespace()
        .nth(number - 3)
        .map(str::to_owned)
}

/// A process and all that descend from it, parents first.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for child in all() {
        if let Some(parent) = field(child, 4).and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(next) = tree.get(at) {
        tree.extend(children.remove(next).unwrap_or_default());
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
    if start_time(pid) != Some(start) {
        return;
    }
    for pid in tree(pid) {
        kill(pid);
    }
}

/// SIGKILL; whoever is gone is gone.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::KILL);
    }
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
}
