//! Control groups of both versions: one of ours that holds a run, so that all its
//! processes are found, and, where a size asks for it, kept to CPUs or time.
//!
//! On version 1 the freezer's hierarchy holds a run: it accounts for nothing, so
//! holding costs the run nothing. Limits are in the hierarchies of `cpuset` and
//! `cpu`. On version 2 one directory does all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::journal::{Change, Journal, JournalError};
use crate::processes;

/// CFS's period, us.
pub const PERIOD_US: u64 = 100_000;
const ROOT: &str = "/sys/fs/cgroup";
/// Killed processes are gone within this.
const GONE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Control groups that cannot be made as asked.
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
            let dir = groups.add(journal, "cpuset", name)?;
            // Version 1 wants memory nodes before CPUs.
            if is_v1("cpuset") {
                let nodes = fs::read_to_string(parent("cpuset").join("cpuset.mems"));
                write(&dir.join("cpuset.mems"), nodes.unwrap_or_default().trim())?;
            }
            write(&dir.join("cpuset.cpus"), cpus)?;
        }
        if let Some(quota) = quota_us {
            let dir = groups.add(journal, "cpu", name)?;
            if is_v1("cpu") {
                write(&dir.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
            } else {
                write(&dir.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
            }
        }
        groups.add(journal, "freezer", name)?;
        Ok(groups)
    }

    fn add(
        &mut self,
        journal: &mut Journal,
        controller: &'static str,
        name: &str,
    ) -> Result<PathBuf, CgroupError> {
        if !available(controller) {
            return Err(CgroupError::NoController(controller));
        }
        let dir = parent(controller).join(name);
        if !self.0.contains(&dir) {
            journal.note(Change::Cgroup { path: dir.clone() })?;
            fs::create_dir_all(&dir).map_err(|source| CgroupError::Write {
                path: dir.clone(),
                source,
            })?;
            self.0.push(dir.clone());
        }
        Ok(dir)
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

/// Whether a controller can be used by us. Holding needs none on version 2.
pub fn available(controller: &str) -> bool {
    if is_v1(controller) {
        return true;
    }
    let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers"));
    controllers
        .is_ok_and(|list| controller == "freezer" || list.split(' ').any(|c| c == controller))
}

fn is_v1(controller: &str) -> bool {
    let dir = Path::new(ROOT).join(controller);
    dir.join("cgroup.procs").exists() && dir.join("tasks").exists()
}

fn parent(controller: &str) -> PathBuf {
    match is_v1(controller) {
        true => Path::new(ROOT).join(controller),
        false => PathBuf::from(ROOT),
    }
}

/// The directory of a group that a runtime was told by this name.
pub fn directory(controller: &str, name: &str) -> PathBuf {
    parent(controller).join(name.trim_start_matches('/'))
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|source| CgroupError::Write {
        path: path.to_owned(),
        source,
    })
}

fn members(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills all within until there is nobody; says how many there were at first.
fn empty(dir: &Path) -> usize {
    let begin = Instant::now();
    let first = members(dir).len();
    while begin.elapsed() < GONE {
        let left = members(dir);
        if left.is_empty() {
            break;
        }
        left.into_iter().for_each(processes::kill);
        thread::sleep(PAUSE);
    }
    first
}

/// Ends what is in a group and removes it.
pub fn remove(dir: &Path) {
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

/// Throttled time of a group, us; `None` where it has no quota.
pub fn throttled_us(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key)?.1.parse::<u64>().ok()
    };
    value("throttled_usec").or_else(|| Some(value("throttled_time")? / 1000))
}
