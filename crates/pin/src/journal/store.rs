//! The directory of journals, and one that is being written.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, geteuid};
use tare_host::journal::{self, JournalFile, boot_id};
use tare_host::process::{ProcessHandle, start_time};

use super::entry::begun;
use super::undo::undo;
use super::{Begin, Entry, Undone};
use crate::target::Target;
use crate::task;

/// Environment variable that names another state directory.
pub(crate) const STATE_VARIABLE: &str = "TARE_STATE_DIR";
const PLACEMENTS: &str = "placements";
/// How long the process that made a placement may take to restore it.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// Why a journal cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be made, read, written or removed.
    #[error("cannot keep the journal of placements in {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another user could change it.
    #[error("{0} belongs to another user")]
    NotOurs(PathBuf),
    /// No directory to keep it in.
    #[error("neither HOME nor {STATE_VARIABLE} is set")]
    NoHome,
    /// Nothing was placed.
    #[error("nothing is pinned for {0:?}")]
    Nothing(String),
    /// Another process places it for a time.
    #[error("process {holder} holds a placement of {asked:?}")]
    Busy {
        /// Who.
        holder: u32,
        /// Of what.
        asked: String,
    },
    /// Another process holds the placement and does not end.
    #[error("process {holder} holds the placement of {asked:?} and does not restore it")]
    Held {
        /// Who.
        holder: u32,
        /// Of what.
        asked: String,
    },
}

/// A placement that its maker left, put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The target as it was called.
    pub asked: String,
    /// What came of it.
    pub undone: Undone,
}

/// All journals of one user.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// A journal that this process writes, and its lock.
#[derive(Debug)]
pub(crate) struct Journal {
    file: JournalFile<Entry>,
    entries: Vec<Entry>,
}

/// The directory of Tare's state: `$TARE_STATE_DIR`, root's `/var/lib/tare`, others'
/// `$XDG_STATE_HOME/tare` or `~/.local/state/tare`. `None` without a home. It may not
/// exist yet.
pub fn state_directory() -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(state) = set(STATE_VARIABLE) {
        return Some(state);
    }
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/tare"));
    }
    let home = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    Some(home?.join("tare"))
}

impl Store {
    /// In `$TARE_STATE_DIR`, root's in `/var/lib/tare`, others' in
    /// `$XDG_STATE_HOME/tare` or `~/.local/state/tare`. Nothing is made yet.
    pub fn open_default() -> Result<Self, StoreError> {
        let state = state_directory().ok_or(StoreError::NoHome)?;
        Ok(Self::in_directory(&state))
    }

    /// In this state directory.
    pub fn in_directory(state: &Path) -> Self {
        Self {
            folder: state.join(PLACEMENTS),
        }
    }

    /// Puts back what makers who were killed left, the latest first, and forgets
    /// what has ended. What lasts, or is being worked on, stays.
    pub fn recover(&self) -> Vec<Recovered> {
        let Ok(_guard) = self.guard_existing() else {
            return Vec::new();
        };
        let mut recovered = Vec::new();
        for path in self.newest_first() {
            let Some((file, begin, entries)) = free(&path) else {
                continue;
            };
            let over = begin.boot != boot_id() || all_ended(&entries);
            if !over && entries.contains(&Entry::Kept) {
                continue;
            }
            if !over {
                recovered.push(Recovered {
                    asked: begin.asked,
                    undone: undo(&entries),
                });
            }
            let _ = fs::remove_file(&path);
            drop(file);
        }
        recovered
    }

    /// Puts back every placement of what was called `asked` or is `target`, the
    /// latest first. Another process that holds one gets SIGTERM.
    pub fn undo(&self, asked: &str, target: Option<&Target>) -> Result<Undone, StoreError> {
        let key = target.map(Target::key);
        let is_meant = |begin: &Begin| {
            begin.boot == boot_id()
                && (begin.asked == asked || key.as_ref().is_some_and(|key| *key == begin.key))
        };
        let mut undone = Undone::default();
        let mut found = false;
        for path in self.newest_first() {
            let Some((begin, _)) = read(&path).filter(|(begin, _)| is_meant(begin)) else {
                continue;
            };
            found = true;
            let guard = self.guard()?;
            let free_now = free(&path);
            drop(guard);
            match free_now {
                Some((_file, _, entries)) => {
                    undone.add(undo(&entries));
                    fs::remove_file(&path).map_err(|source| at(&path, source))?;
                }
                None => ask_to_end(&path, &begin)?,
            }
        }
        if found {
            Ok(undone)
        } else {
            Err(StoreError::Nothing(asked.to_owned()))
        }
    }

    /// Begins a journal, unless another process holds a placement of the target.
    pub(crate) fn begin(&self, asked: &str, target: &Target) -> Result<Journal, StoreError> {
        let _guard = self.guard()?;
        self.expect_unheld(&target.key())?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ns = since.unwrap_or_default().as_nanos();
        let name = format!("{ns:020}-{}.jsonl", std::process::id());
        let path = self.folder.join(name);
        let file = JournalFile::create(&path).map_err(|source| at(&path, source))?;
        let mut journal = Journal {
            file,
            entries: Vec::new(),
        };
        let begin = Begin {
            boot: boot_id(),
            asked: asked.to_owned(),
            key: target.key(),
            holder: std::process::id(),
        };
        journal.write(&[Entry::Begin(begin)])?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| at(&self.folder, source))?;
        Ok(journal)
    }

    /// Of two placements that end in any order, the later one would put back what the first had
    /// made. Those that last are put back the newest first.
    fn expect_unheld(&self, key: &str) -> Result<(), StoreError> {
        for path in self.newest_first() {
            let Some((begin, _)) = read(&path) else {
                continue;
            };
            let is_meant = begin.boot == boot_id() && begin.key == key;
            if is_meant && free(&path).is_none() && path.exists() {
                let Begin { holder, asked, .. } = begin;
                return Err(StoreError::Busy { holder, asked });
            }
        }
        Ok(())
    }

    /// The lock of the directory, which is made if it is missing.
    fn guard(&self) -> Result<File, StoreError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder);
        made.map_err(|source| at(&self.folder, source))?;
        self.guard_existing()
    }

    fn guard_existing(&self) -> Result<File, StoreError> {
        let metadata =
            fs::symlink_metadata(&self.folder).map_err(|source| at(&self.folder, source))?;
        if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
            return Err(StoreError::NotOurs(self.folder.clone()));
        }
        let folder = File::open(&self.folder).map_err(|source| at(&self.folder, source))?;
        flock(&folder, FlockOperation::LockExclusive)
            .map_err(|errno| at(&self.folder, errno.into()))?;
        Ok(folder)
    }

    /// Names begin with the time.
    fn newest_first(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "jsonl")
            })
            .collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        paths
    }
}

impl Journal {
    /// Writes down what is about to be done; on the disk when this returns.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) -> Result<(), StoreError> {
        self.write(&entries)?;
        self.entries.extend(entries);
        Ok(())
    }

    /// The placement lasts beyond this process.
    pub(crate) fn keep(mut self) -> Result<(), StoreError> {
        self.write(&[Entry::Kept])
    }

    /// Puts everything back and removes the journal.
    pub(crate) fn undo(self) -> Undone {
        let undone = undo(&self.entries);
        // What could not be removed is undone twice, which changes nothing.
        let _ = fs::remove_file(self.file.path());
        undone
    }

    fn write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let written = self.file.write(entries);
        written.map_err(|source| at(self.file.path(), source))
    }
}

/// A journal that no process works on: its lock and content. One without a first line
/// was begun and nothing else; it is removed.
fn free(path: &Path) -> Option<(File, Begin, Vec<Entry>)> {
    let left = journal::left(path)?;
    let Some((begin, entries)) = begun(left.entries) else {
        let _ = fs::remove_file(path);
        return None;
    };
    Some((left.lock, begin, entries))
}

fn read(path: &Path) -> Option<(Begin, Vec<Entry>)> {
    begun(journal::read(path)?)
}

/// Whether nothing is left that these entries changed.
fn all_ended(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| match entry {
        Entry::Thread { id, .. } => {
            // Heirs of a thread that ended live in its process.
            !id.lives() && task::of(id.pid, id.pid).is_none()
        }
        Entry::Cpuset { folder, .. } => !folder.exists(),
        Entry::Begin(_) | Entry::Kept => true,
    })
}

/// Ends the maker of a placement, who puts it back.
fn ask_to_end(path: &Path, begin: &Begin) -> Result<(), StoreError> {
    let held = || StoreError::Held {
        holder: begin.holder,
        asked: begin.asked.clone(),
    };
    // The lock says that the holder lives, so the number is still its own.
    let holder = start_time(begin.holder).and_then(|at| ProcessHandle::open(begin.holder, at));
    if let Some(holder) = holder {
        holder.signal(Signal::TERM).map_err(|_| held())?;
    }
    let end = Instant::now() + RESTORE_TIMEOUT;
    while path.exists() {
        if Instant::now() > end {
            return Err(held());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn at(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io {
        path: path.to_owned(),
        source,
    }
}
