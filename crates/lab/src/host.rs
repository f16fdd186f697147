//! The machine that an experiment runs on, from /proc and /sys.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use tare_control::stats::Kvm;

/// Facts that figures depend on. What cannot be read is empty or absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostFacts {
    /// Processor model.
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// What executes guests; found by running one.
    pub(crate) kvm: Kvm,
    /// KVM's longest poll on a halt, ns.
    pub(crate) halt_poll_ns: Option<u64>,
    /// Processes that wanted a CPU over the last minute, at the begin.
    pub(crate) load_average: Option<f64>,
    /// The frequency governor of the first CPU.
    pub(crate) governor: Option<String>,
}

impl HostFacts {
    /// Reads them. `kvm` is [`Kvm::None`] until a machine has said otherwise.
    pub(crate) fn read() -> Self {
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let memory_kib: u64 = field(&meminfo, "MemTotal")
            .and_then(|v| v.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory_mib: memory_kib >> 10,
            kvm: Kvm::None,
            halt_poll_ns: number("/sys/module/kvm/parameters/halt_poll_ns"),
            load_average: text("/proc/loadavg").and_then(|t| t.split(' ').next()?.parse().ok()),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// The revision of the source that `executable` was built from, if it lies in
/// its work tree, else this crate's version.
pub(crate) fn revision(executable: &Path) -> String {
    let described = executable.parent().and_then(|directory| {
        let output = Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(["describe", "--always", "--dirty", "--abbrev=12"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !line.is_empty()).then_some(line)
    });
    described.unwrap_or_else(|| concat!("v", env!("CARGO_PKG_VERSION")).to_owned())
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The value of `name: value` in a /proc file.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = HostFacts::read();
        assert!(facts.cores > 0 && facts.memory_mib > 0);
        assert!(!facts.kernel.is_empty());
    }

    #[test]
    fn outside_a_work_tree_the_version_is_the_revision() {
        let revision = revision(Path::new("/proc/self/exe"));
        assert_eq!(revision, concat!("v", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "cpu MHz\t: 1\nmodel\t\t: 17\nmodel name\t: EPYC: fast\n";
        assert_eq!(field(text, "model name"), Some("EPYC: fast"));
        assert_eq!(field(text, "flags"), None);
    }
}
