//! Run directories: one directory for each machine, found by name.
//!
//! ```text
//! $XDG_RUNTIME_DIR/tare/NAME/   (root: /run/tare; where the variable names no directory of this
//!                                user, a directory of the user's in /tmp)
//!     lock           marks the directory as Tare's; locked (flock) while the machine runs;
//!                    a machine that ended by itself leaves its exit code here
//!     machine.json   the configuration
//!     control.sock   the control interface, HTTP
//!     console.log    what the guest wrote to its serial port
//!     run.json       how `tare` started it, for `tare ps` and `tare stop`
//!     passt.log      what passt wrote when it started, if anything
//!     reload.disk    the disk by which it gets another root, if it can (`tare run --reload`)
//! ```
//!
//! The root may be any directory that the user names, so nothing in it is
//! Tare's unless its `lock` begins with [`MARKER`]. Only [`RunRoot::create`],
//! [`RunRoot::remove`] and the machine itself remove anything, and they unlink
//! the names above through descriptors (`entry`). Creating and removing happen
//! under a lock of the whole root (`.lock` in it). ADR 26.

mod dir;
mod end;
mod entry;
mod error;
mod location;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, Mode, OFlags, RawDir, flock, fstat, open, openat};
use rustix::io::Errno;

pub use dir::RunDir;
pub use end::{Recorded, RunEnd, RunState, record_end};
pub use entry::{MARKER, Removal};
pub use error::RunDirError;
pub use location::{ROOT_VARIABLE, default_root, valid_name};

use entry::Found;
use error::{Writer, at, writer};

/// Longest path of a UNIX socket in bytes, with its NUL (`unix(7)`).
const MAX_SOCKET_PATH: usize = 108;
const ROOT_LOCK: &str = ".lock";
/// Room for directory entries of one `getdents64(2)`.
const LISTING_BYTES: usize = 8192;

/// The run directory of a machine that runs or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its directory.
    pub dir: RunDir,
    /// Whether it runs.
    pub state: RunState,
}

/// What a root holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Machines by name.
    pub runs: Vec<Run>,
    /// Paths that Tare did not make. They are never touched.
    pub foreign: Vec<PathBuf>,
}

impl Listing {
    /// The machines that run.
    pub fn running(self) -> Vec<RunDir> {
        let runs = self.runs.into_iter();
        runs.filter(|run| run.state == RunState::Running)
            .map(|run| run.dir)
            .collect()
    }
}

/// All run directories of one user.
#[derive(Clone, Debug)]
pub struct RunRoot {
    path: PathBuf,
}

impl RunRoot {
    /// Opens [`default_root`].
    pub fn open_default() -> Result<Self, RunDirError> {
        Self::open(default_root())
    }

    /// Opens the root at `path`, which need not exist: [`Self::create`] makes it
    /// (mode 0700). Refuses a root that other users could change.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let root = Self { path: path.into() };
        root.descriptor()?;
        Ok(root)
    }

    /// Makes the directory for a machine and takes its lock. The lock is held as
    /// long as any copy of the returned file is open in some process: pass the
    /// descriptor to the monitor. What an ended machine of that name left is
    /// removed; a directory that Tare did not make is an error.
    pub fn create(&self, name: &str) -> Result<(RunDir, File), RunDirError> {
        let directory = self.directory(name)?;
        let socket = directory.control_socket();
        if socket.as_os_str().len() >= MAX_SOCKET_PATH {
            return Err(RunDirError::PathTooLong(socket));
        }
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path);
        made.map_err(|source| at(&self.path, source))?;
        let root = self.existing()?;
        let _guard = self.guard(&root)?;
        match entry::find(&root, name).map_err(|source| at(directory.path(), source))? {
            Found::Missing => {}
            Found::Foreign => return Err(RunDirError::Foreign(directory.path().to_owned())),
            // A machine that is just ending, or one whose start was cut short.
            Found::Empty => {
                entry::remove_empty(&root, name).map_err(|source| at(directory.path(), source))?
            }
            Found::Run(found) => match found
                .state()
                .map_err(|source| at(directory.path(), source))?
            {
                RunState::Running => return Err(RunDirError::InUse(name.to_owned())),
                RunState::Ended(_) => directory.remove()?,
            },
        }
        let lock = entry::make(&root, name).map_err(|source| at(directory.path(), source))?;
        Ok((directory, lock))
    }

    /// The running machine of that name.
    pub fn find(&self, name: &str) -> Result<RunDir, RunDirError> {
        let run = self.look_up(name)?;
        match run.state {
            RunState::Running => Ok(run.dir),
            RunState::Ended(_) => Err(RunDirError::NotRunning(name.to_owned())),
        }
    }

    /// The machine of that name, whether it runs or has ended.
    pub fn look_up(&self, name: &str) -> Result<Run, RunDirError> {
        let dir = self.directory(name)?;
        let Some(root) = self.descriptor()? else {
            return Err(RunDirError::NotRunning(name.to_owned()));
        };
        match entry::find(&root, name).map_err(|source| at(dir.path(), source))? {
            Found::Missing | Found::Empty => Err(RunDirError::NotRunning(name.to_owned())),
            Found::Foreign => Err(RunDirError::Foreign(dir.path().to_owned())),
            Found::Run(found) => {
                let state = found.state().map_err(|source| at(dir.path(), source))?;
                Ok(Run { dir, state })
            }
        }
    }

    /// All machines, and what else stands in the root. Changes nothing.
    pub fn list(&self) -> Result<Listing, RunDirError> {
        let mut listing = Listing::default();
        let Some(root) = self.descriptor()? else {
            return Ok(listing);
        };
        for name in names(&root).map_err(|source| at(&self.path, source))? {
            let path = self.path.join(&name);
            let dir = name.to_str().and_then(|name| self.directory(name).ok());
            let Some(dir) = dir else {
                listing.foreign.push(path);
                continue;
            };
            match entry::find(&root, dir.name()).map_err(|source| at(&path, source))? {
                Found::Missing | Found::Empty => {}
                Found::Foreign => listing.foreign.push(path),
                Found::Run(found) => {
                    let state = found.state().map_err(|source| at(&path, source))?;
                    listing.runs.push(Run { dir, state });
                }
            }
        }
        let by_name = |a: &Run, b: &Run| a.dir.name().cmp(b.dir.name());
        listing.runs.sort_by(by_name);
        listing.foreign.sort();
        Ok(listing)
    }

    /// Removes what a machine that has ended left.
    pub fn remove(&self, name: &str) -> Result<(), RunDirError> {
        let Some(root) = self.descriptor()? else {
            return Err(RunDirError::NotRunning(name.to_owned()));
        };
        let _guard = self.guard(&root)?;
        let run = self.look_up(name)?;
        match run.state {
            RunState::Running => Err(RunDirError::InUse(name.to_owned())),
            RunState::Ended(_) => run.dir.remove(),
        }
    }

    /// Removes what a machine left that was killed before it could record its end, and says
    /// whether its directory is gone. Nothing is removed of a machine that runs or recorded
    /// its end; a directory that holds files of others stays.
    pub fn remove_killed(&self, name: &str) -> Result<bool, RunDirError> {
        let Some(root) = self.descriptor()? else {
            return Ok(false);
        };
        let _guard = self.guard(&root)?;
        let run = match self.look_up(name) {
            Err(RunDirError::NotRunning(_)) => return Ok(false),
            other => other?,
        };
        if run.state != RunState::Ended(None) {
            return Ok(false);
        }
        run.dir.remove()?;
        Ok(!run.dir.path().exists())
    }

    fn directory(&self, name: &str) -> Result<RunDir, RunDirError> {
        if !valid_name(name) {
            return Err(RunDirError::BadName(name.to_owned()));
        }
        Ok(RunDir::at(self.path.join(name)))
    }

    fn existing(&self) -> Result<OwnedFd, RunDirError> {
        let missing = || at(&self.path, io::ErrorKind::NotFound.into());
        self.descriptor()?.ok_or_else(missing)
    }

    /// The root itself, if it exists and belongs to this user alone.
    fn descriptor(&self) -> Result<Option<OwnedFd>, RunDirError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = match open(&self.path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(RunDirError::NotADirectory(self.path.clone()));
            }
            Err(errno) => return Err(at(&self.path, errno.into())),
        };
        let status = fstat(&root).map_err(|errno| at(&self.path, errno.into()))?;
        match writer(&status) {
            Writer::ThisUser => Ok(Some(root)),
            Writer::Others => Err(RunDirError::WritableByOthers {
                path: self.path.clone(),
                mode: status.st_mode & 0o7777,
            }),
            Writer::AnotherUser => Err(RunDirError::NotOurs(self.path.clone())),
        }
    }

    /// The lock of the whole root, until it is dropped.
    fn guard(&self, root: &OwnedFd) -> Result<OwnedFd, RunDirError> {
        let failed = |errno: Errno| at(&self.path.join(ROOT_LOCK), errno.into());
        let flags =
            OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let lock = openat(root, ROOT_LOCK, flags, mode).map_err(failed)?;
        if !entry::is_own_file(&lock).map_err(failed)? {
            return Err(RunDirError::Foreign(self.path.join(ROOT_LOCK)));
        }
        flock(&lock, FlockOperation::LockExclusive).map_err(failed)?;
        Ok(lock)
    }
}

/// Names in the root that do not begin with a dot.
fn names(root: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    use std::os::unix::ffi::OsStringExt as _;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let listing = openat(root, ".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(LISTING_BYTES);
    let mut entries = RawDir::new(listing, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if !name.starts_with(b".") {
            names.push(std::ffi::OsString::from_vec(name));
        }
    }
    Ok(names)
}
