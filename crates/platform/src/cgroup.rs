//! Cgroups of both versions: one of ours that holds a run, so that all its
//! processes are found, and, where a size asks for it, kept to CPUs or time.
//!
//! On version 1 the freezer's hierarchy holds a run, or where it is missing another
//! that accounts for nothing, so holding costs the run nothing. Limits are in the
//! hierarchies of `cpuset` and `cpu`. On version 2 one directory does all; a controller
//! that the root does not hand down yet is handed down, and taken back in the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tare_pin::CpuList;

use crate::cgroup_end::empty;
use crate::journal::{Change, Journal, JournalError};

/// CFS's period, us.
pub const PERIOD_US: u64 = 100_000;
const ROOT: &str = "/sys/fs/cgroup";
/// Hierarchies beside those of controllers that can hold a run, best first.
const HOLDERS: [&str; 4] = ["freezer", "systemd", "unified", "pids"];
/// Enters the groups: `GROUP... -- COMMAND...`
const ENTER: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@""#;
/// Controllers that a group of version 2 hands down.
const SUBTREE: &str = "cgroup.subtree_control";

/// Cgroups that cannot be made as asked.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The controller is not there.
    #[error("this host has no {0} controller in {ROOT}")]
    NoController(&'static str),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not give a group these CPUs.
    #[error("a cgroup cannot use the CPUs {cpus}: one is offline or not allowed here")]
    NoCpus {
        /// As they were requested.
        cpus: String,
        /// Why.
        source: io::Error,
    },
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The directories that a run's first process enters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes groups called `name`: one that holds, and the limits asked for.
    pub fn make(
        journal: &mut Journal,
        name: &str,
        cpus: Option<&str>,
        quota_us: Option<u64>,
    ) -> Result<Self, CgroupError> {
        let mut groups = Self::default();
        if let Some(cpus) = cpus {
            let dir = groups.limit(journal, "cpuset", name)?;
            // Version 1 wants memory nodes before CPUs.
            if is_v1("cpuset") {
                let nodes = fs::read_to_string(parent("cpuset").join("cpuset.mems"));
                write(&dir.join("cpuset.mems"), nodes.unwrap_or_default().trim())?;
            }
            give(&dir, cpus).map_err(|source| CgroupError::NoCpus {
                cpus: cpus.to_owned(),
                source,
            })?;
        }
        if let Some(quota) = quota_us {
            let dir = groups.limit(journal, "cpu", name)?;
            if is_v1("cpu") {
                write(&dir.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
            } else {
                write(&dir.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
            }
        }
        if let Some(holder) = holder() {
            groups.add(journal, holder.join(name))?;
        }
        Ok(groups)
    }

    fn limit(
        &mut self,
        journal: &mut Journal,
        controller: &'static str,
        name: &str,
    ) -> Result<PathBuf, CgroupError> {
        if !available(controller) {
            return Err(CgroupError::NoController(controller));
        }
        if !is_v1(controller) {
            hand_down(journal, Path::new(ROOT), controller)?;
        }
        let dir = parent(controller).join(name);
        self.add(journal, dir.clone())?;
        Ok(dir)
    }

    fn add(&mut self, journal: &mut Journal, dir: PathBuf) -> Result<(), CgroupError> {
        if !self.0.contains(&dir) {
            journal.note(Change::Cgroup { path: dir.clone() })?;
            fs::create_dir_all(&dir).map_err(|source| CgroupError::Write {
                path: dir.clone(),
                source,
            })?;
            self.0.push(dir);
        }
        Ok(())
    }

    /// A command that is in these groups before it is anything else.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", ENTER, "tare"]);
        command.args(&self.0).args(["--", program]);
        command
    }

    /// The directories.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.0
    }

    /// Kills whatever is still within; says how many there were.
    pub fn empty(&self) -> usize {
        self.0.iter().map(|dir| empty(dir)).max().unwrap_or(0)
    }
}

/// Whether a controller can be used by us.
pub fn available(controller: &str) -> bool {
    is_v1(controller) || lists(&Path::new(ROOT).join("cgroup.controllers"), controller)
}

/// Whether a run's processes can be held together. Needs no controller.
pub fn holds() -> bool {
    holder().is_some()
}

/// Where groups that hold are made.
fn holder() -> Option<PathBuf> {
    let beside = HOLDERS.map(|name| Path::new(ROOT).join(name));
    let mut places = beside.into_iter().chain([PathBuf::from(ROOT)]);
    places.find(|dir| dir.join("cgroup.procs").exists())
}

/// Where a group of this name would be, in every hierarchy: runtimes make theirs in
/// all of them.
pub fn everywhere(name: &str) -> Vec<PathBuf> {
    let below = fs::read_dir(ROOT)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let hierarchies = below.chain([PathBuf::from(ROOT)]);
    // What only groups of version 2 that are not the root have is not a hierarchy's.
    let is_root =
        |dir: &PathBuf| dir.join("cgroup.procs").exists() && !dir.join("cgroup.events").exists();
    let roots = hierarchies.filter(is_root);
    roots
        .map(|dir| dir.join(name.trim_start_matches('/')))
        .collect()
}

/// Lets groups below `root` have a controller of version 2.
fn hand_down(
    journal: &mut Journal,
    root: &Path,
    controller: &'static str,
) -> Result<(), CgroupError> {
    let path = root.join(SUBTREE);
    if lists(&path, controller) {
        return Ok(());
    }
    journal.note(Change::Controller {
        path: path.clone(),
        name: controller.to_owned(),
    })?;
    write(&path, &format!("+{controller}"))
}

/// Gives a group CPUs, and reads back that it has them: version 2 takes any list, and
/// replaces what is offline by the CPUs of the group above.
fn give(group: &Path, cpus: &str) -> io::Result<()> {
    fs::write(group.join("cpuset.cpus"), cpus)?;
    let files = ["cpuset.effective_cpus", "cpuset.cpus.effective"];
    let mut found = files
        .iter()
        .filter_map(|name| fs::read_to_string(group.join(name)).ok());
    let Some(has) = found.next() else {
        return Ok(());
    };
    if CpuList::from_kernel(&has) == CpuList::from_kernel(cpus) {
        Ok(())
    } else {
        Err(io::Error::other(format!("it would have {}", has.trim())))
    }
}

fn lists(path: &Path, controller: &str) -> bool {
    let list = fs::read_to_string(path);
    list.is_ok_and(|list| list.split_whitespace().any(|name| name == controller))
}

fn is_v1(controller: &str) -> bool {
    let dir = Path::new(ROOT).join(controller);
    dir.join("cgroup.procs").exists() && dir.join("tasks").exists()
}

fn parent(controller: &str) -> PathBuf {
    if is_v1(controller) {
        Path::new(ROOT).join(controller)
    } else {
        PathBuf::from(ROOT)
    }
}

/// The directory of the group that a container runtime got by this name.
pub fn directory(controller: &str, name: &str) -> PathBuf {
    parent(controller).join(name.trim_start_matches('/'))
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|source| CgroupError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Throttled time of a group, us; `None` where it has no quota.
pub fn throttled_us(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key)?.1.parse::<u64>().ok()
    };
    value("throttled_usec").or_else(|| Some(value("throttled_time")? / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_a_group_does_not_get_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        // As version 2 has it, with CPU 1 offline.
        fs::write(dir.path().join("cpuset.cpus.effective"), "0,2-3\n").unwrap();
        let refused = give(dir.path(), "0-1").unwrap_err();
        assert_eq!(refused.to_string(), "it would have 0,2-3");
        give(dir.path(), "0,2,3").unwrap();
        // The real one refuses CPUs that are not there, or has others.
        if available("cpuset") && rustix::process::geteuid().is_root() {
            let (mut journal, _) = Journal::begin(&dir.path().join("journal")).unwrap();
            let name = format!("tare-test-cpus-{}", std::process::id());
            let refused = Groups::make(&mut journal, &name, Some("1023"), None).unwrap_err();
            assert!(refused.to_string().contains("CPUs 1023"), "{refused}");
            drop(journal);
            assert!(!parent("cpuset").join(&name).exists());
        }
    }

    #[test]
    fn a_controller_that_is_not_handed_down_is_and_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SUBTREE);
        fs::write(&file, "memory pids\n").unwrap();
        let journals = dir.path().join("journal");
        let (mut journal, _) = Journal::begin(&journals).unwrap();
        hand_down(&mut journal, dir.path(), "pids").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "memory pids\n");
        hand_down(&mut journal, dir.path(), "cpuset").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "+cpuset");
        drop(journal);
        assert_eq!(fs::read_to_string(&file).unwrap(), "-cpuset");
    }
}
