//! What was changed on this host, written down before it is done, so that it is
//! undone at the end, or by the next start when the end never came.
//!
//! A journal is a file of JSON lines, locked while its writer lives. A journal
//! without a living writer is undone from its end to its begin and removed.
//! Undoing is repeatable: what is gone already is fine. Processes are known by PID
//! and start time, and only within the same boot.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{cgroup, processes};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Change {
    /// The boot during which this happens.
    Boot {
        /// `/proc/sys/kernel/random/boot_id`.
        id: String,
    },
    /// A directory of ours with all that is in it.
    Directory {
        /// Where.
        path: PathBuf,
    },
    /// A control group, with processes in it perhaps.
    Cgroup {
        /// Its directory.
        path: PathBuf,
    },
    /// A process and what descends from it.
    Process {
        /// Its PID.
        pid: u32,
        /// Its start time, in ticks.
        start: u64,
    },
    /// A container.
    Container {
        /// The runtime.
        runtime: String,
        /// Directory of its state.
        state: PathBuf,
        /// Its name.
        id: String,
    },
}

/// A journal that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the journal {}", path.display())]
pub struct JournalError {
    /// The file.
    path: PathBuf,
    /// Why.
    source: io::Error,
}

/// The journal of this process. Dropping it undoes everything.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    changes: Vec<Change>,
}

impl Journal {
    /// Undoes what earlier processes left in `dir`, then begins a journal there.
    /// Says how many journals were undone.
    pub fn begin(dir: &Path) -> Result<(Self, usize), JournalError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError { path, source }
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let undone = undo_left(dir).map_err(failed(dir))?;
        let path = dir.join(format!("{}.journal", std::process::id()));
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(failed(&path))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| failed(&path)(errno.into()))?;
        let mut journal = Self {
            path,
            file,
            changes: Vec::new(),
        };
        journal.note(Change::Boot { id: boot() })?;
        Ok((journal, undone))
    }

    /// Writes a change down; it may be done afterwards.
    pub fn note(&mut self, change: Change) -> Result<(), JournalError> {
        let write = |file: &mut File| -> io::Result<()> {
            let mut line = serde_json::to_vec(&change)?;
            line.push(b'\n');
            file.write_all(&line)?;
            file.sync_data()
        };
        write(&mut self.file).map_err(|source| JournalError {
            path: self.path.clone(),
            source,
        })?;
        self.changes.push(change);
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        undo(&self.changes);
        let _ = fs::remove_file(&self.path);
    }
}

fn undo_left(dir: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "journal") {
            continue;
        }
        let file = File::open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue; // Its writer lives.
        }
        undo(&read(&fs::read_to_string(&path)?));
        fs::remove_file(&path)?;
        count += 1;
    }
    Ok(count)
}

/// The changes in a journal; a last line that was cut off was not yet done.
fn read(text: &str) -> Vec<Change> {
    let changes: Vec<Change> = text
        .lines()
        .map_while(|line| serde_json::from_str(line).ok())
        .collect();
    let same_boot = changes.first() == Some(&Change::Boot { id: boot() });
    let outlives = |change: &Change| same_boot || matches!(change, Change::Directory { .. });
    changes.into_iter().filter(outlives).collect()
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn undo(changes: &[Change]) {
    for change in changes.iter().rev() {
        match change {
            Change::Boot { .. } => {}
            Change::Directory { path } => {
                let _ = fs::remove_dir_all(path);
            }
            Change::Cgroup { path } => cgroup::remove(path),
            Change::Process { pid, start } => processes::end_tree(*pid, *start),
            Change::Container { runtime, state, id } => delete_container(runtime, state, id),
        }
    }
}

/// Removes a container, running or not.
pub fn delete_container(runtime: &str, state: &Path, id: &str) {
    if !state.join(id).exists() {
        return;
    }
    let _ = Command::new(runtime)
        .arg("--root")
        .arg(state)
        .args(["delete", "--force", id])
        .output();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_undone_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        fs::create_dir(&left).unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let start = processes::start_time(sleeper.id()).unwrap();
        let (mut journal, _) = Journal::begin(dir.path()).unwrap();
        journal
            .note(Change::Directory { path: left.clone() })
            .unwrap();
        let pid = sleeper.id();
        journal.note(Change::Process { pid, start }).unwrap();
        // As after SIGKILL: the file stays, its lock goes, nothing is undone.
        fs::copy(&journal.path, dir.path().join("1.journal")).unwrap();
        journal.changes.clear();
        drop(journal);
        assert!(left.exists());
        let (_journal, undone) = Journal::begin(dir.path()).unwrap();
        assert_eq!(undone, 1);
        assert!(!left.exists());
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
        assert!(!dir.path().join("1.journal").exists());
    }

    #[test]
    fn another_boots_processes_are_left_alone() {
        let lines = [
            Change::Boot { id: "other".into() },
            Change::Process { pid: 1, start: 1 },
            Change::Directory { path: "/x".into() },
        ]
        .map(|change| serde_json::to_string(&change).unwrap());
        let text = format!("{}\n{{\"did\":\"dir", lines.join("\n"));
        assert_eq!(read(&text), [Change::Directory { path: "/x".into() }]);
    }

    #[test]
    fn a_recycled_pid_is_not_ended() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let start = processes::start_time(sleeper.id()).unwrap();
        processes::end_tree(sleeper.id(), start + 1);
        assert!(sleeper.try_wait().unwrap().is_none());
        processes::end_tree(sleeper.id(), start);
        assert!(sleeper.wait().unwrap().code().is_none());
    }
}
