//! What was changed on this host, written down before it is done, so that it is
//! undone at the end, or by the next start when the end never came.
//!
//! The file is as `tare pin`'s journals are ([`tare_host::journal`]). One without a
//! living writer is undone from its end to its begin and removed. Undoing is
//! repeatable: what is gone already is fine. Processes are known by PID and start
//! time, and only within the same boot. Placements are in `tare pin`'s own.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use tare_host::journal::{self, JournalFile, boot_id};
use tare_host::owned_directory;
use tare_host::stderr;
use tare_rootfs::cache::{Cache, CacheError};

use crate::container_engine::ContainerEngine;
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
        engine: ContainerEngine,
        /// Directory of its state.
        state: PathBuf,
        /// Its name.
        id: String,
    },
}

/// A journal that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no directory for it.
    #[error(transparent)]
    NoPlace(#[from] CacheError),
    /// A file of it.
    #[error("cannot keep the journal {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The directory of the journals of all weighings, in the user's cache; it may not exist.
pub fn directory() -> Result<PathBuf, JournalError> {
    Ok(Cache::open_default()?.dir().join("platforms/journal"))
}

/// A journal of this process. Dropping it undoes everything.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile<Change>,
    changes: Vec<Change>,
}

impl Journal {
    /// Undoes what killed weighings left, says so on standard error, and begins a journal among
    /// theirs.
    pub fn of_a_weighing() -> Result<Self, JournalError> {
        let (journal, undone) = Self::begin(&directory()?)?;
        if undone > 0 {
            stderr::line(format_args!(
                "weigh: undid what {undone} earlier weighing(s) left behind"
            ));
        }
        Ok(journal)
    }

    /// Undoes what earlier processes left in `dir`, then begins a journal there.
    /// Says how many journals were undone.
    pub fn begin(dir: &Path) -> Result<(Self, usize), JournalError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let undone = undo_left(dir)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{}-{number}.journal", std::process::id()));
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
        written.map_err(failed(self.file.path()))?;
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

/// Undoes what killed processes left, as their journals in `dir` say; how many there were.
pub fn undo_left(dir: &Path) -> Result<usize, JournalError> {
    let mut count = 0;
    for (path, changes) in all_left(dir)? {
        undo(&changes.entries);
        fs::remove_file(&path).map_err(failed(&path))?;
        count += 1;
    }
    Ok(count)
}

/// What killed processes left that is still there, as their journals in `dir` say.
pub fn left_behind(dir: &Path) -> Result<Leftovers, JournalError> {
    let all = all_left(dir)?.into_iter();
    let changes = all.flat_map(|(_, changes)| changes.entries);
    Ok(Leftovers(changes.filter(is_there).collect()))
}

/// The journals whose writers are gone, and what can be undone of each.
fn all_left(dir: &Path) -> Result<Vec<(PathBuf, journal::Left<Change>)>, JournalError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(dir))?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(dir))?.path();
        if path.extension().is_none_or(|end| end != "journal") {
            continue;
        }
        if let Some(mut left) = journal::left(&path) {
            left.entries = of_this_boot(left.entries);
            all.push((path, left));
        }
    }
    Ok(all)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::File { path, source }
}

/// Changes that were not undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers(Vec<Change>);

impl Leftovers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for change in &self.0 {
            match change {
                Change::Setting { path, was } => {
                    parts.push(format!("{} (was {was})", path.display()))
                }
                Change::Directory { path } | Change::Cgroup { path } => {
                    parts.push(path.display().to_string());
                }
                Change::Process { pid, .. } => parts.push(format!("process {pid}")),
                Change::Container { id, .. } => parts.push(format!("container {id}")),
                Change::Boot { .. } | Change::Controller { .. } => {}
            }
        }
        f.write_str(&parts.join(", "))
    }
}

/// Whether a change is still in force. Controllers that were handed down take nothing.
fn is_there(change: &Change) -> bool {
    match change {
        Change::Boot { .. } | Change::Controller { .. } => false,
        Change::Directory { path } => owned_directory::is_ours(path),
        Change::Cgroup { path } => path.exists(),
        Change::Setting { path, was } => {
            let now = fs::read_to_string(path);
            now.is_ok_and(|now| now.trim() != was.trim())
        }
        Change::Process { pid, start } => processes::start_time(*pid) == Some(*start),
        Change::Container { engine, state, id } => engine.has(state, id),
    }
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
        stderr::line(format_args!("tare: {error}"));
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
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_undone_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left");
        owned_directory::create(&left).unwrap();
        let setting = dir.path().join("setting");
        fs::write(&setting, "0").unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let start = processes::start_time(sleeper.id()).unwrap();
        let (mut journal, _) = Journal::begin(dir.path()).unwrap();
        journal
            .note(Change::Directory { path: left.clone() })
            .unwrap();
        let pid = sleeper.id();
        journal.note(Change::Process { pid, start }).unwrap();
        let path = setting.clone();
        journal
            .note(Change::Setting {
                path,
                was: "1".into(),
            })
            .unwrap();
        assert!(left_behind(dir.path()).unwrap().is_empty());
        // As after SIGKILL: the file stays, its lock goes, nothing is undone.
        fs::copy(journal.file.path(), dir.path().join("1.journal")).unwrap();
        journal.changes.clear();
        drop(journal);
        assert!(left.exists());
        let said = left_behind(dir.path()).unwrap().to_string();
        let expected = [
            left.display().to_string(),
            format!("process {pid}"),
            format!("{} (was 1)", setting.display()),
        ];
        assert_eq!(said, expected.join(", "));
        let (_journal, undone) = Journal::begin(dir.path()).unwrap();
        assert_eq!(undone, 1);
        assert!(!left.exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "1");
        assert!(left_behind(dir.path()).unwrap().is_empty());
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
