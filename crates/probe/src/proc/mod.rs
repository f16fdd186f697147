//! `/proc` as far as the account needs it: parsing apart from reading.
//!
//! What a process writes into its own name is not trusted; what does not parse is
//! treated as missing.

pub(crate) mod cpuset;
pub(crate) mod quota;
mod task;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_host::cpu_list::cpu_list;

pub use quota::CpuLimit;
pub use task::{Switches, TaskStat, schedstat};
pub(crate) use task::{disk, migrations, switches};

/// The folder of a process.
pub(crate) fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The folder of a thread.
pub(crate) fn thread(pid: u32, tid: u32) -> PathBuf {
    process(pid).join("task").join(tid.to_string())
}

/// Whether a process is in this one's network namespace; not if that cannot be read.
pub(crate) fn shares_network(pid: u32) -> bool {
    let namespace = |folder: &Path| fs::read_link(folder.join("ns/net")).ok();
    let own = namespace(Path::new("/proc/self"));
    own.is_some() && namespace(&process(pid)) == own
}

/// A thread's or process's name.
pub(crate) fn comm(folder: &Path) -> Option<String> {
    let bytes = fs::read(folder.join("comm")).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// The numbers that a folder's entries have for names, ascending.
pub(crate) fn numbers(folder: &Path) -> io::Result<Vec<u32>> {
    let mut found: Vec<u32> = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Parsed `stat` of a process or thread.
pub(crate) fn stat(folder: &Path) -> Option<TaskStat> {
    let bytes = fs::read(folder.join("stat")).ok()?;
    TaskStat::parse(&String::from_utf8_lossy(&bytes))
}

/// CPUs that are online.
pub(crate) fn online_cpus() -> u32 {
    u32::try_from(online().len()).unwrap_or(0)
}

/// Numbers of this host's CPUs that are online.
pub(crate) fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpu_list(text.trim())
}

/// Whether this host's CPUs have VT-x or SVM; without, a KVM emulates ring 0.
pub fn has_hardware_virtualisation() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| {
        line.split_whitespace()
            .any(|flag| matches!(flag, "vmx" | "svm"))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_of_another_network_namespace_is_recognised() {
        assert!(shares_network(std::process::id()));
        let started = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            tare_vmtest::skip("unshare is not installed");
            return;
        };
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let shares = shares_network(child.id());
        // Its input ends: it does too.
        drop(child.stdin.take());
        let pid = child.id();
        child.wait().unwrap();
        if line.is_empty() {
            tare_vmtest::skip("no privilege for a network namespace");
            return;
        }
        assert!(!shares);
        assert!(!shares_network(pid));
    }
}
