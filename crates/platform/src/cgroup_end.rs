//! The end of a cgroup: its processes killed, its directory removed, and a controller
//! that was handed down taken back.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tare_host::process::signal_members;

/// Killed processes are gone within this.
const GONE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Takes a controller back, unless others have come to use it.
pub(crate) fn take_back(path: &Path, controller: &str) {
    let _ = fs::write(path, format!("-{controller}"));
}

fn members(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills all processes within until none is left; returns how many there were.
pub(crate) fn empty(dir: &Path) -> usize {
    let begin = Instant::now();
    let first = members(dir).len();
    while begin.elapsed() < GONE {
        if members(dir).is_empty() {
            break;
        }
        signal_members(|| members(dir), Signal::KILL);
        thread::sleep(PAUSE);
    }
    first
}

/// Ends what is in a group and removes it.
pub(crate) fn remove(dir: &Path) {
    if !dir.exists() {
        return;
    }
    for child in fs::read_dir(dir).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&child.path());
        }
    }
    empty(dir);
    let _ = fs::remove_dir(dir);
}
