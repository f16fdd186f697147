//! What is pinned: a virtual machine, a container or a process.

mod cgroup;
mod container;
mod quota;

use std::path::PathBuf;

use tare_host::process::parent;
use tare_policy::placement::CpuMask;
use tare_probe::vm::{self, FindError, Role, Vm};

use crate::task::{self, Task, TaskId};
use cgroup::{Mounts, Places};
pub use container::{Container, Cpuset};
pub use quota::Quota;

/// Why a target was not found.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Nothing has this name or number.
    #[error("no virtual machine, container or process is {0:?}")]
    Nothing(String),
    /// Several virtual machines have this name, or they may not be looked at.
    #[error(transparent)]
    Vm(#[from] FindError),
}

/// Whose threads are placed.
#[derive(Clone, Debug)]
pub struct Target {
    /// As it is called.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
}

/// What a target is.
#[derive(Clone, Debug)]
pub enum TargetKind {
    /// A virtual machine: threads by what they do.
    Vm(Box<Vm>),
    /// A container: all processes of its cgroup.
    Container(Container),
    /// A machine whose maker knows which threads run vCPUs: its first thread, and
    /// theirs in their order.
    Machine(TaskId, Vec<u32>),
    /// A process: its first thread.
    Process(TaskId),
}

impl Target {
    /// A process ID (a machine's too), a cgroup's path, a machine's name, or a
    /// container's name or ID, in this order.
    pub fn find(text: &str) -> Result<Self, TargetError> {
        if let Ok(pid) = text.parse::<u32>() {
            return Self::of_pid(pid);
        }
        let of_container = || Container::find(text).map(TargetKind::Container);
        let kind = if text.starts_with('/') {
            of_container()
        } else {
            match vm::find(text) {
                Ok(vm) => Some(TargetKind::Vm(Box::new(vm))),
                Err(FindError::NoName(_)) => {
                    translated(text).map(|(_, kind)| kind).or_else(of_container)
                }
                Err(error) => return Err(error.into()),
            }
        };
        let kind = kind.ok_or_else(|| TargetError::Nothing(text.to_owned()))?;
        Ok(Self {
            name: text.to_owned(),
            kind,
        })
    }

    /// The machine or process of this ID; of a process of Tare's that waits for QEMU,
    /// the machine.
    pub fn of_pid(pid: u32) -> Result<Self, TargetError> {
        match vm::find(&pid.to_string()) {
            Ok(vm) => Ok(Self {
                name: vm.name.clone(),
                kind: TargetKind::Vm(Box::new(vm)),
            }),
            // Whether it may be placed is the kernel's to say.
            Err(FindError::NoVm { .. } | FindError::NotPermitted { .. }) => {
                let gone = || TargetError::Nothing(pid.to_string());
                let task = task::of(pid, pid).ok_or_else(gone)?;
                let process = || (task.name, TargetKind::Process(task.id));
                let (name, kind) = translated(&pid.to_string()).unwrap_or_else(process);
                Ok(Self { name, kind })
            }
            Err(FindError::NoProcess(_)) => Err(TargetError::Nothing(pid.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The machine of this process, as its maker knows it: QEMU's translator holds
    /// nothing of KVM, and says by QMP which threads run vCPUs.
    pub fn machine(name: &str, pid: u32, vcpus: &[u32]) -> Result<Self, TargetError> {
        let gone = || TargetError::Nothing(pid.to_string());
        let first = task::of(pid, pid).ok_or_else(gone)?.id;
        Ok(Self {
            name: name.to_owned(),
            kind: TargetKind::Machine(first, vcpus.to_vec()),
        })
    }

    /// Its vCPUs, if it is a machine.
    pub fn vcpus(&self) -> Option<usize> {
        match &self.kind {
            TargetKind::Vm(vm) => Some(vm.vcpus.len()),
            TargetKind::Machine(_, vcpus) => Some(vcpus.len()),
            TargetKind::Container(_) | TargetKind::Process(_) => None,
        }
    }

    /// Its threads now, with what they do in a machine.
    pub fn tasks(&self) -> Vec<(Task, Role)> {
        match &self.kind {
            TargetKind::Vm(vm) => {
                let lives = task::of(vm.pid, vm.pid)
                    .is_some_and(|task| task.id.started_ticks == vm.started_ticks);
                let threads = lives.then(|| vm::threads(vm)).into_iter().flatten();
                threads
                    .filter_map(|thread| Some((task::of(thread.pid, thread.tid)?, thread.role)))
                    .collect()
            }
            TargetKind::Container(container) => container
                .pids()
                .into_iter()
                .flat_map(task::of_process)
                .map(|task| (task, Role::Other))
                .collect(),
            TargetKind::Machine(first, vcpus) => {
                let role = |task: &Task| match vcpus.iter().position(|tid| *tid == task.id.tid) {
                    Some(index) => Role::Vcpu(u32::try_from(index).unwrap_or(u32::MAX)),
                    None if task.id == *first => Role::Emulator,
                    None => Role::Other,
                };
                let tasks = living(first).into_iter();
                tasks.map(|task| (task.clone(), role(&task))).collect()
            }
            TargetKind::Process(first) => {
                let tasks = living(first).into_iter();
                tasks.map(|task| (task, Role::Other)).collect()
            }
        }
    }

    /// Its first process; a container's lowest.
    pub fn pid(&self) -> Option<u32> {
        match &self.kind {
            TargetKind::Vm(vm) => Some(vm.pid),
            TargetKind::Container(container) => container.pids().first().copied(),
            TargetKind::Machine(first, _) | TargetKind::Process(first) => Some(first.pid),
        }
    }

    /// A text that names it and nothing else until the next boot.
    pub(crate) fn key(&self) -> String {
        match &self.kind {
            TargetKind::Vm(vm) => format!("process {} {}", vm.pid, vm.started_ticks),
            TargetKind::Container(container) => format!("cgroup {}", container.processes.display()),
            TargetKind::Machine(first, _) | TargetKind::Process(first) => {
                format!("process {} {}", first.pid, first.started_ticks)
            }
        }
    }

    /// CPUs that its cgroup lets it have: a container's parent's.
    pub(crate) fn limit(&self) -> Option<CpuMask> {
        match &self.kind {
            TargetKind::Container(Container {
                cpuset: Some(cpuset),
                ..
            }) => cpuset.limit(),
            _ => process_limit(self.pid()?),
        }
    }

    /// The CPU quota that binds it first.
    pub fn quota(&self) -> Option<Quota> {
        Quota::binding(self.quotas())
    }

    /// The CPU quotas of its cgroup and of those above it, the inner ones first: each
    /// bounds it.
    pub fn quotas(&self) -> Vec<Quota> {
        let group = self.cpu_group();
        group.map(|group| Quota::all(&group)).unwrap_or_default()
    }

    /// Of these quotas those whose group holds the target's processes only. Without one of the
    /// others, processes of others would run without a quota too.
    pub fn owned<'a>(&self, quotas: &'a [Quota]) -> Vec<&'a Quota> {
        // Each look for members goes through all processes of the host.
        if quotas.is_empty() {
            return Vec::new();
        }
        let members = self.members();
        let owned = |quota: &&Quota| cgroup::holds_only(&quota.group, &members);
        quotas.iter().filter(owned).collect()
    }

    /// Its processes and threads now, with a machine's helpers and the processes of Tare's that wait
    /// for it.
    fn members(&self) -> Vec<u32> {
        let ids = |(task, _): (Task, Role)| [task.id.pid, task.id.tid];
        let mut members: Vec<u32> = self.tasks().into_iter().flat_map(ids).collect();
        if let TargetKind::Vm(vm) = &self.kind {
            members.extend(vm::helpers_of(vm));
        }
        members.extend(self.waiting());
        members
    }

    /// Processes that wait for the machine: their numbers stand for it.
    fn waiting(&self) -> Vec<u32> {
        let first = self.vcpus().and_then(|_| self.pid());
        let parents = std::iter::successors(first, |pid| parent(*pid)).skip(1);
        let is_own = |pid: &u32| Self::of_pid(*pid).is_ok_and(|it| it.key() == self.key());
        parents.take_while(is_own).collect()
    }

    /// Its group of the `cpu` controller.
    fn cpu_group(&self) -> Option<PathBuf> {
        if let TargetKind::Container(container) = &self.kind {
            return container.cpu.clone();
        }
        let places = Places::of(self.pid()?)?;
        let mounts = Mounts::read();
        let v1 = mounts.v1("cpu").zip(places.v1("cpu"));
        let (root, place) = v1.or_else(|| mounts.v2().zip(places.v2()))?;
        Some(root.join(place.trim_start_matches('/')))
    }
}

/// The machine of QEMU's translator of this name or process ID, with its name.
fn translated(text: &str) -> Option<(String, TargetKind)> {
    let machine = vm::translated(text)?;
    let first = task::of(machine.pid, machine.pid)?.id;
    Some((machine.name, TargetKind::Machine(first, machine.vcpus)))
}

/// The threads of a process, if it still is the one that had this first thread.
fn living(first: &TaskId) -> Vec<Task> {
    if first.lives() {
        task::of_process(first.pid)
    } else {
        Vec::new()
    }
}

fn process_limit(pid: u32) -> Option<CpuMask> {
    let places = Places::of(pid)?;
    let mounts = Mounts::read();
    let v1 = mounts.v1("cpuset").zip(places.v1("cpuset"));
    let (root, place) = v1.or_else(|| mounts.v2().zip(places.v2()))?;
    container::effective(&root.join(place.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_a_target_and_one_that_ended_is_not() {
        let own = std::process::id();
        let target = Target::find(&own.to_string()).unwrap();
        assert!(matches!(target.kind, TargetKind::Process(first) if first.pid == own));
        assert!(!target.tasks().is_empty());
        assert!(target.key().starts_with(&format!("process {own} ")));
        for text in ["4000000000", "1073741824", "no such thing", "/nonexistent"] {
            let error = Target::find(text).unwrap_err();
            assert!(matches!(error, TargetError::Nothing(_)), "{error}");
        }
    }
}
