//! Finding virtual machines by the descriptors of their processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_control::rundir::default_root;
use tare_host::process::inside_of;

use super::descriptors::Descriptors;
use super::{Monitor, Vm, name};
use crate::proc;
use crate::{Source, Unavailable};

const KVM_VM: &str = "anon_inode:kvm-vm";
const KVM_VCPU: &str = "anon_inode:kvm-vcpu:";

/// Why a virtual machine was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No process has this ID.
    #[error("no process has the ID {0}")]
    NoProcess(u32),
    /// The process holds no `kvm-vm` descriptor.
    #[error("process {pid} ({name}) runs no KVM virtual machine")]
    NoVm {
        /// Its ID.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The process's descriptors may not be looked at.
    #[error("process {pid} belongs to another user: become root to observe it")]
    NotPermitted {
        /// Its ID.
        pid: u32,
    },
    /// No virtual machine has this name.
    #[error("no virtual machine that this user may observe is named {0:?}")]
    NoName(String),
    /// Several have it.
    #[error("{count} virtual machines are named {name:?}: give a process ID instead")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many have it.
        count: usize,
    },
    /// `/proc` cannot be read.
    #[error("cannot read {path}")]
    Proc {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// The virtual machines of this host.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Those that could be seen, by process ID.
    pub vms: Vec<Vm>,
    /// What could not be looked at.
    pub unavailable: Vec<Unavailable>,
}

/// Every virtual machine whose process this user may look at.
pub fn list() -> Listing {
    let mut listing = Listing::default();
    let mut foreign = 0;
    for pid in proc::numbers(Path::new("/proc")).unwrap_or_default() {
        match machine(pid) {
            Ok(vm) => listing.vms.extend(vm),
            Err(FindError::NotPermitted { .. }) => foreign += 1,
            // Ended meanwhile.
            Err(_) => {}
        }
    }
    if foreign > 0 {
        let why = format!("{foreign} processes belong to other users (needs root)");
        listing
            .unavailable
            .push(Unavailable::new(Source::Proc, why));
    }
    listing
}

/// The virtual machine of a process ID or name; an ID comes first, that of its
/// monitor or of Tare's process that supervises it.
pub fn find(target: &str) -> Result<Vm, FindError> {
    if let Ok(pid) = target.parse() {
        return match of_pid(pid) {
            Err(none @ FindError::NoVm { .. }) => {
                let machine = supervised(pid).and_then(|machine| of_pid(machine).ok());
                machine.ok_or(none)
            }
            found => found,
        };
    }
    let mut named: Vec<Vm> = list().vms;
    named.retain(|vm| vm.name == target);
    match named.len() {
        0 => Err(FindError::NoName(target.to_owned())),
        1 => Ok(named.remove(0)),
        count => Err(FindError::Ambiguous {
            name: target.to_owned(),
            count,
        }),
    }
}

/// The virtual machine of a process.
pub fn of_pid(pid: u32) -> Result<Vm, FindError> {
    machine(pid)?.ok_or_else(|| match proc::comm(&proc::process(pid)) {
        Some(name) => FindError::NoVm { pid, name },
        None => FindError::NoProcess(pid),
    })
}

/// Whether the process of this machine has not ended.
pub fn lives(vm: &Vm) -> bool {
    let stat = proc::stat(&proc::process(vm.pid));
    stat.is_some_and(|stat| stat.started_ticks == vm.started_ticks)
}

/// Whether the process of this machine is seen to hold it no more: it closed the machine, or
/// ended and its parent has not asked how.
pub fn has_closed(vm: &Vm) -> bool {
    matches!(machine(vm.pid), Ok(None))
}

/// The virtual machine of a process; `None` if it runs none. Of most processes only the descriptors
/// are looked at.
pub(super) fn machine(pid: u32) -> Result<Option<Vm>, FindError> {
    let folder = proc::process(pid);
    let open = descriptors(pid)?;
    if !open.links().any(|link| link.as_os_str() == KVM_VM) {
        return Ok(None);
    }
    let stat = proc::stat(&folder).ok_or(FindError::NoProcess(pid))?;
    let command = command(&folder);
    let exe = fs::read_link(folder.join("exe")).unwrap_or_default();
    let monitor = Monitor::of(&exe, &command);
    Ok(Some(Vm {
        pid,
        started_ticks: stat.started_ticks,
        name: name_of_run(&open, monitor)
            .or_else(|| name::of(monitor, &command))
            .unwrap_or(stat.comm),
        monitor,
        command,
        vcpus: vcpus(&open),
    }))
}

fn descriptors(pid: u32) -> Result<Descriptors, FindError> {
    Descriptors::of(pid).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => FindError::NotPermitted { pid },
        io::ErrorKind::NotFound => FindError::NoProcess(pid),
        _ => FindError::Proc {
            path: proc::process(pid).join("fd").display().to_string(),
            source,
        },
    })
}

/// The vCPUs whose descriptors these are.
fn vcpus(open: &Descriptors) -> Vec<u32> {
    let mut vcpus: Vec<u32> = open.numbered(KVM_VCPU).map(|(vcpu, _)| vcpu).collect();
    vcpus.sort_unstable();
    vcpus.dedup();
    vcpus
}

pub(super) fn command(folder: &Path) -> Vec<String> {
    let bytes = fs::read(folder.join("cmdline")).unwrap_or_default();
    let mut words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    words
}

/// The process of the machine that process `pid` started and waits for: of its PID namespace, or as Tare does
/// with QEMU, where both hold the `lock` of one run.
pub(super) fn supervised(pid: u32) -> Option<u32> {
    let inside = inside_of(pid);
    if inside != pid {
        return Some(inside);
    }
    let held = |pid: u32| -> Vec<PathBuf> {
        let open = Descriptors::of(pid).unwrap_or_default();
        let is_lock = |link: &&Path| {
            link.file_name().is_some_and(|name| name == "lock")
                && link.with_file_name("run.json").is_file()
        };
        open.links().filter(is_lock).map(Path::to_owned).collect()
    };
    let locks = held(pid);
    let is_child = |child: &u32| {
        let stat = proc::stat(&proc::process(*child));
        stat.is_some_and(|stat| stat.parent == pid)
    };
    let all = if locks.is_empty() {
        Vec::new()
    } else {
        proc::numbers(Path::new("/proc")).unwrap_or_default()
    };
    let mut children = all.into_iter().filter(is_child).map(inside_of);
    children.find(|child| held(*child).iter().any(|lock| locks.contains(lock)))
}

/// The name of Tare's run whose monitor is process `pid`.
pub(super) fn run_name(pid: u32, monitor: Monitor) -> Option<String> {
    name_of_run(&Descriptors::of(pid).ok()?, monitor)
}

/// The run whose `lock` is one of these descriptors. Only that run is looked at: with
/// many machines, a listing of all for each would take the time.
fn name_of_run(open: &Descriptors, monitor: Monitor) -> Option<String> {
    if monitor != Monitor::Tare && monitor != Monitor::Qemu {
        return None;
    }
    let root = default_root();
    let run = open.links().find_map(|link| {
        let run = link.parent()?;
        let is_lock = link.file_name()? == "lock" && run.parent()? == root;
        (is_lock && run.join("run.json").is_file()).then_some(run)
    })?;
    Some(run.file_name()?.to_str()?.to_owned())
}
