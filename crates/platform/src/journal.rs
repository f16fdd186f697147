//! What was changed on this host, written down before it is done, so that it is
//! undone at the end, or by the next start when the end never came.
//!
//! The file is as `tare pin`'s journals are ([`tare_host::journal`]). One without a
//! living writer is undone from its end to its begin and removed. Undoing is
//! repeatable: what is gone already is fine. Processes are known by PID and start
//! time, and only within the same boot. Placements are in `tare pin`'s own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use tare_host::journal::{self, JournalFile, boot_id};
use tare_host::owned_directory;

use crate::engine::Engine;
use crate::{cgroup_end, processes};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Change {
    /// The boot during which this happens.
    Boot {
        /// `/proc/sys/kernel/random/boot_id`.
        id: String,
    },
    /// A directory that [`owned_directory::create`] makes, with all that is in it.
    Directory {
        /// Where.
        path: PathBuf,
    },
    /// A cgroup, with processes in it perhaps.
    Cgroup {
        /// Its directory.
        path: PathBuf,
    },
    /// A controller that groups of version 2 below are given.
    Controller {
        /// The file of the group that gives.
        path: PathBuf,
        /// The controller.
        name: String,
    },
    /// A setting of the kernel.
    Setting {
        /// Its file.
        path: PathBuf,
        /// What it said before.
        was: String,
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
        /// What started it.
        #[serde(rename = "runtime")]
        engine: Engine,
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
    file: JournalFile<Change>,
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
        let file = JournalFile::create(&path).map_err(failed(&path))?;
        let mut journal = Self {
            file,
            changes: Vec::new(),
        };
        journal.note(Change::Boot { id: boot_id() })?;
        Ok((journal, undone))
    }

    /// Writes a change down; it may be done afterwards.
    pub fn note(&mut self, change: Change) -> Result<(), JournalError> {
        let written = self.file.write(std::slice::from_ref(&change));
        written.map_err(|source| JournalError {
            path: self.file.path().to_owned(),
            source,
        })?;
        self.changes.push(change);
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        undo(&self.changes);
        let _ = fs::remove_file(self.file.path());
    }
}

fn undo_left(dir: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "journal") {
            continue;
        }
        // None: its writer lives.
        if let Some(left) = journal::left(&path) {
            undo(&of_this_boot(left.entries));
            fs::remove_file(&path)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Of another boot only directories are still there.
fn of_this_boot(changes: Vec<Change>) -> Vec<Change> {
    let same_boot = changes.first() == Some(&Change::Boot { id: boot_id() });
    let outlives = |change: &Change| same_boot || matches!(change, Change::Directory { .. });
    changes.into_iter().filter(outlives).collect()
}

fn undo(changes: &[Change]) {
    for change in changes.iter().rev() {
        match change {
            Change::Boot { .. } => {}
            Change::Directory { path } => remove(path),
            Change::Cgroup { path } => cgroup_end::remove(path),
            Change::Controller { path, name } => cgroup_end::take_back(path, name),
            Change::Setting { path, was } => drop(fs::write(path, was)),
            Change::Process { pid, start } => processes::end_tree(*pid, *start),
            Change::Container { engine, state, id } => engine.delete(state, id),
        }
    }
}

/// A journal is a file, which others may have written: only a directory with Tare's marker is
/// unmounted and removed.
fn remove(path: &Path) {
    if owned_directory::is_ours(path) {
        unmount_below(path);
    }
    if let Err(error) = owned_directory::remove(path) {
        eprintln!("tare: {error}");
    }
}

/// Takes away what a runtime mounted in a directory, the latest first: removing must
/// not reach what is mounted.
fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(|place| PathBuf::from(place.replace("\\040", " ")));
    let ours: Vec<PathBuf> = places.filter(|place| place.starts_with(dir)).collect();
    for place in ours.into_iter().rev() {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_undone_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        owned_directory::create(&left).unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let start = processes::start_time(sleeper.id()).unwrap();
        let (mut journal, _) = Journal::begin(dir.path()).unwrap();
        journal
            .note(Change::Directory { path: left.clone() })
            .unwrap();
        let pid = sleeper.id();
        journal.note(Change::Process { pid, start }).unwrap();
        // As after SIGKILL: the file stays, its lock goes, nothing is undone.
        fs::copy(journal.file.path(), dir.path().join("1.journal")).unwrap();
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
    fn a_journal_cannot_name_a_directory_that_tare_did_not_make() {
        let dir = tempfile::tempdir().unwrap();
        let (photos, link) = (dir.path().join("photos"), dir.path().join("link"));
        let ours = dir.path().join("ours");
        fs::create_dir(&photos).unwrap();
        fs::write(photos.join("a.jpg"), "x").unwrap();
        owned_directory::create(&ours).unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        let paths = [photos.clone(), link.clone(), dir.path().join("missing")];
        let changes = paths.map(|path| Change::Directory { path });
        undo(&changes);
        assert!(photos.join("a.jpg").exists());
        assert!(ours.exists() && link.exists());
        undo(&[Change::Directory { path: ours.clone() }]);
        assert!(!ours.exists());
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
        assert_eq!(
            of_this_boot(journal::parse(&text)),
            [Change::Directory { path: "/x".into() }]
        );
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
