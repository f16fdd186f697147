//! Machines that QEMU's translator runs: they hold nothing of KVM, so their vCPUs are
//! identified by the names that QEMU gives its threads with `debug-threads=on`.

use std::fs;
use std::path::Path;

use super::find::{command, run_name, supervised};
use super::{Monitor, name};
use crate::proc;

/// A machine without KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Process ID of QEMU.
    pub pid: u32,
    /// Tare's name of the run, or QEMU's `-name`.
    pub name: String,
    /// Thread IDs of its vCPUs, in their order.
    pub vcpus: Vec<u32>,
}

/// The translated machine of this name or process ID, which may be that of Tare's
/// process that supervises it; `None` if there is none, or
/// several have the name, or QEMU does not name its threads.
pub fn translated(target: &str) -> Option<Translated> {
    if let Ok(pid) = target.parse() {
        return of_pid(pid).or_else(|| of_pid(supervised(pid)?));
    }
    let all = proc::numbers(Path::new("/proc")).unwrap_or_default();
    let mut named = all.into_iter().filter_map(of_pid);
    let found = named.find(|machine| machine.name == target)?;
    named.all(|other| other.name != target).then_some(found)
}

fn of_pid(pid: u32) -> Option<Translated> {
    let folder = proc::process(pid);
    let command = command(&folder);
    let exe = fs::read_link(folder.join("exe")).ok()?;
    (Monitor::of(&exe, &command) == Monitor::Qemu).then_some(())?;
    let mut vcpus: Vec<(u32, u32)> = proc::numbers(&folder.join("task"))
        .ok()?
        .into_iter()
        .filter_map(|tid| {
            let comm = fs::read_to_string(folder.join(format!("task/{tid}/comm"))).ok()?;
            Some((vcpu(comm.trim_end())?, tid))
        })
        .collect();
    vcpus.sort_unstable();
    (!vcpus.is_empty()).then_some(())?;
    Some(Translated {
        pid,
        name: run_name(pid, Monitor::Qemu).or_else(|| name::of(Monitor::Qemu, &command))?,
        vcpus: vcpus.into_iter().map(|(_, tid)| tid).collect(),
    })
}

/// The vCPU that a thread of this name runs; one may run all.
fn vcpu(comm: &str) -> Option<u32> {
    match comm.strip_suffix("/TCG")? {
        "ALL CPUs" => Some(0),
        one => one.strip_prefix("CPU ")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_translator_are_identified_by_name() {
        assert_eq!(vcpu("CPU 3/TCG"), Some(3));
        assert_eq!(vcpu("ALL CPUs/TCG"), Some(0));
        for other in ["CPU 0/KVM", "qemu-system-x86", "CPU x/TCG"] {
            assert_eq!(vcpu(other), None, "{other}");
        }
        assert_eq!(translated(&std::process::id().to_string()), None);
    }
}
