//! Putting back what a journal says, thread by thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tare_policy::placement::CpuMask;

use super::Entry;
use crate::affinity;
use crate::cpu_list::CpuList;
use crate::target::Cpuset;
use crate::task::{self, TaskId};

/// Most looks for threads that began meanwhile.
const ROUNDS: usize = 50;

/// What came of putting back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Threads that are where they were.
    pub restored: usize,
    /// Threads that have ended.
    pub ended: usize,
    /// cgroups that are as they were.
    pub cpusets: usize,
    /// What could not be put back, or was changed by another program since and left
    /// as it is; sentences.
    pub left: Vec<String>,
}

impl Undone {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.ended += other.ended;
        self.cpusets += other.cpusets;
        self.left.extend(other.left);
    }
}

/// Puts back what these entries changed, the last one first.
pub(super) fn undo(entries: &[Entry]) -> Undone {
    let mut undone = Undone::default();
    let bounded = undo_cpusets(entries, &mut undone);
    for entry in entries.iter().rev() {
        if let Entry::Thread { id, before, wanted } = entry {
            let since = (!bounded).then_some(&wanted.0);
            undo_thread(id, &before.0, since, &mut undone);
        }
    }
    for _ in 0..ROUNDS {
        // Heirs may have made heirs before they were freed.
        if bounded || free_heirs(entries, &mut undone) == 0 {
            break;
        }
    }
    undone
}

/// Whether there were any.
fn undo_cpusets(entries: &[Entry], undone: &mut Undone) -> bool {
    let mut steps = Vec::new();
    let mut any = false;
    for entry in entries {
        let Entry::Cpuset {
            folder,
            before,
            wanted,
        } = entry
        else {
            continue;
        };
        any = true;
        let cpuset = Cpuset {
            folder: folder.clone(),
        };
        // A cgroup that has gone took its threads with it.
        let Some(now) = cpuset.cpus() else { continue };
        let widened = before.0.or(&wanted.0);
        if now == before.0 {
            undone.cpusets += 1;
        } else if now == wanted.0 || now == widened {
            steps.push((folder.clone(), before.0));
        } else {
            undone.left.push(format!(
                "{} was changed to {} by another program",
                folder.display(),
                CpuList(now)
            ));
        }
    }
    match write_cpusets(&steps) {
        Ok(()) => undone.cpusets += steps.len(),
        Err((folder, error)) => undone.left.push(format!("{}: {error}", folder.display())),
    }
    any
}

/// Gives cgroups their CPUs, the upper ones first in `steps`: widened from above,
/// then narrowed from below, since a lower one must lie within its upper one.
pub(crate) fn write_cpusets(steps: &[(PathBuf, CpuMask)]) -> Result<(), (PathBuf, io::Error)> {
    let write = |folder: &Path, cpus: CpuMask| {
        write_cpuset(folder, cpus).map_err(|error| (folder.to_owned(), error))
    };
    if steps.len() > 1 {
        for (folder, cpus) in steps {
            let cpuset = Cpuset {
                folder: folder.clone(),
            };
            let now = cpuset.cpus().unwrap_or(CpuMask::EMPTY);
            if !now.is_empty() && !cpus.is_empty() {
                write(folder, now.or(cpus))?;
            }
        }
    }
    for (folder, cpus) in steps.iter().rev() {
        write(folder, *cpus)?;
    }
    Ok(())
}

/// No CPUs are those of the upper cgroup, in version 2. The kernel refuses that while the cgroup has
/// tasks (`validate_change` in kernel/cgroup/cpuset.c): then it gets the CPUs by name.
fn write_cpuset(folder: &Path, cpus: CpuMask) -> io::Result<()> {
    let write = |cpus: CpuMask| {
        let text = format!("{}\n", CpuList(cpus));
        fs::write(folder.join("cpuset.cpus"), text)
    };
    let written = write(cpus);
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    if !cpus.is_empty() || !written.as_ref().is_err_and(refused) {
        return written;
    }
    let cpuset = Cpuset {
        folder: folder.to_owned(),
    };
    cpuset.limit().map_or(written, write)
}

/// `since`: where it was put; a thread that is elsewhere was moved by another program.
fn undo_thread(id: &TaskId, before: &CpuMask, since: Option<&CpuMask>, undone: &mut Undone) {
    if !id.lives() {
        undone.ended += 1;
        return;
    }
    let outcome = affinity::get(id.tid).and_then(|now| match now {
        now if now == *before => Ok(now),
        now if since.is_some_and(|since| *since != now) => {
            undone.left.push(format!(
                "thread {} was moved to {} by another program",
                id.tid,
                CpuList(now)
            ));
            Err(Errno::CANCELED)
        }
        _ => affinity::set(id.tid, before),
    });
    match outcome {
        Ok(now) if now == *before => undone.restored += 1,
        Ok(now) => undone.left.push(format!(
            "thread {}: the kernel made {} of {}",
            id.tid,
            CpuList(now),
            CpuList(*before)
        )),
        Err(Errno::SRCH) => undone.ended += 1,
        Err(Errno::CANCELED) => {}
        Err(errno) => undone.left.push(format!("thread {}: {errno}", id.tid)),
    }
}

/// Threads that began meanwhile have their makers' CPUs: they get those that the
/// process's first thread had.
fn free_heirs(entries: &[Entry], undone: &mut Undone) -> usize {
    let mut freed = 0;
    let mut known = BTreeSet::new();
    let mut leaders: BTreeMap<u32, CpuMask> = BTreeMap::new();
    let mut given: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for entry in entries {
        if let Entry::Thread { id, before, wanted } = entry {
            known.insert(*id);
            if id.tid == id.pid && id.lives() {
                leaders.entry(id.pid).or_insert(before.0);
            }
            given.entry(id.pid).or_default().insert(wanted.to_string());
        }
    }
    for (pid, before) in leaders {
        let given = &given[&pid];
        let fresh = task::of_process(pid).into_iter();
        for task in fresh.filter(|task| !known.contains(&task.id)) {
            let inherited = |now: &CpuMask| given.contains(&CpuList(*now).to_string());
            if affinity::get(task.id.tid).is_ok_and(|now| now != before && inherited(&now)) {
                undo_thread(&task.id, &before, None, undone);
                freed += 1;
            }
        }
    }
    freed
}
