//! One name in the root, examined and removed through descriptors: no link is
//! followed, no open waits for a FIFO's other end, and a directory counts as
//! Tare's only if its `lock` is a regular file of this user that begins with
//! [`MARKER`].

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, flock, fstat, mkdirat, openat,
    unlinkat,
};
use rustix::io::{Errno, pread, retry_on_intr};

use super::end::{RunEnd, RunState};
use super::error::{Writer, writer};

/// First line of the `lock` of each directory that Tare makes.
pub const MARKER: &str = "tare run directory 1\n";
pub(super) const MACHINE: &str = "machine.json";
pub(super) const LOCK: &str = "lock";
pub(super) const CONTROL: &str = "control.sock";
pub(super) const CONSOLE: &str = "console.log";
pub(super) const RUN: &str = "run.json";
/// `run.json` while it is being written.
pub(super) const RUN_NEW: &str = "run.new";
pub(super) const PASST: &str = "passt.log";
pub(super) const RELOAD: &str = "reload.disk";
/// Everything that Tare puts into a run directory, the marker last.
const KNOWN: [&str; 8] = [CONTROL, MACHINE, CONSOLE, RUN, RUN_NEW, PASST, RELOAD, LOCK];
/// What a machine that has ended needs no longer.
const ONLY_RUNNING: [&str; 4] = [CONTROL, MACHINE, RUN_NEW, RELOAD];
/// Longest `lock` that is read.
const LOCK_BYTES: usize = 512;

/// What stands at a name.
pub(super) enum Found {
    Missing,
    /// A directory of this user without content, or with an empty `lock` that no process holds: a start
    /// was cut short.
    Empty,
    /// Something that Tare did not make.
    Foreign,
    Run(FoundRun),
}

/// A directory that Tare made.
pub(super) struct FoundRun {
    directory: OwnedFd,
    lock: OwnedFd,
}

impl FoundRun {
    /// Whether a process holds the lock, else what its holder recorded at its end. That is
    /// read after the lock was free: before, its holder may have yet to record it.
    pub(super) fn state(&self) -> io::Result<RunState> {
        match flock(&self.lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(RunState::Ended(self.end()?)),
            Err(Errno::WOULDBLOCK) => Ok(RunState::Running),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What the last holder of the lock recorded at its end.
    pub(super) fn end(&self) -> io::Result<Option<RunEnd>> {
        Ok(RunEnd::parse(&text(&self.lock)?))
    }
}

/// Looks at `name` in `root`.
pub(super) fn find(root: impl AsFd, name: &str) -> io::Result<Found> {
    let directory = match open_directory(root.as_fd(), name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(Found::Missing),
        Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(Found::Foreign),
        Err(errno) => return Err(errno.into()),
    };
    found_in(directory)
}

/// Looks at an open directory, which the machine that ends may have removed meanwhile.
pub(super) fn found_in(directory: OwnedFd) -> io::Result<Found> {
    match look(directory) {
        // The kernel does not list a directory without a name (`fs/readdir.c`, `iterate_dir`).
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        found => found,
    }
}

fn look(directory: OwnedFd) -> io::Result<Found> {
    if writer(&fstat(&directory)?) != Writer::ThisUser {
        return Ok(Found::Foreign);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    let lock = match openat(&directory, LOCK, flags, Mode::empty()) {
        Ok(lock) => lock,
        Err(Errno::NOENT) if has_at_most(&directory, &[])? => return Ok(Found::Empty),
        // No lock, a link, a socket, or a file that may not be read.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(Found::Foreign),
        Err(errno) => return Err(errno.into()),
    };
    if !is_own_file(&lock)? {
        return Ok(Found::Foreign);
    }
    let text = text(&lock)?;
    if text.starts_with(MARKER) {
        return Ok(Found::Run(FoundRun { directory, lock }));
    }
    if text.is_empty() && has_at_most(&directory, &[LOCK])? && is_free(&lock)? {
        return Ok(Found::Empty);
    }
    Ok(Found::Foreign)
}

/// Whether it is a regular file that only this user may write.
pub(super) fn is_own_file(file: impl AsFd) -> rustix::io::Result<bool> {
    let status = fstat(file)?;
    let regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    Ok(regular && writer(&status) == Writer::ThisUser)
}

fn text(lock: &OwnedFd) -> io::Result<String> {
    let mut bytes = [0; LOCK_BYTES];
    let length = retry_on_intr(|| pread(lock, &mut bytes[..], 0))?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Whether a directory holds nothing but files of these names.
fn has_at_most(directory: &OwnedFd, names: &[&str]) -> io::Result<bool> {
    let mut buffer = Vec::with_capacity(1024);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_named = names.iter().any(|known| known.as_bytes() == name);
        if !is_named && !matches!(name, b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether no process holds the lock.
fn is_free(lock: &OwnedFd) -> rustix::io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockShared) {
        // Unlocked again when the file is closed.
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Makes the directory `name` with its lock, and takes that. Readers hold the
/// lock shared for an instant, so this waits. A failure leaves nothing.
pub(super) fn make(root: impl AsFd, name: &str) -> io::Result<File> {
    let root = root.as_fd();
    mkdirat(root, name, Mode::from_raw_mode(0o700))?;
    let made = make_lock(root, name);
    if made.is_err() {
        let _ = remove_empty(root, name);
    }
    made
}

fn make_lock(root: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let directory = open_directory(root, name)?;
    let flags = OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CLOEXEC;
    let lock = openat(&directory, LOCK, flags, Mode::from_raw_mode(0o600))?;
    let mut lock = File::from(lock);
    flock(&lock, FlockOperation::LockExclusive)?;
    lock.write_all(MARKER.as_bytes())?;
    Ok(lock)
}

fn open_directory(root: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(root, name, flags, Mode::empty())
}

/// Removes a directory that was found [`Found::Empty`]; no error if it is not there any more.
pub(super) fn remove_empty(root: impl AsFd, name: &str) -> io::Result<()> {
    let root = root.as_fd();
    match open_directory(root, name) {
        Ok(directory) => missing_is_fine(unlinkat(&directory, LOCK, AtFlags::empty()))?,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    missing_is_fine(unlinkat(root, name, AtFlags::REMOVEDIR))
}

/// A run directory of Tare's, open for its removal. A confined process opens
/// this before it is confined; removing takes `unlinkat(2)` alone.
#[derive(Debug)]
pub struct Removal {
    root: OwnedFd,
    name: String,
    directory: OwnedFd,
}

impl Removal {
    pub(super) fn new(root: OwnedFd, name: &str, found: FoundRun) -> Self {
        Self {
            root,
            name: name.to_owned(),
            directory: found.directory,
        }
    }

    /// Removes the files that Tare puts into a run directory, the marker last, and
    /// then the directory. A file of another name stays, and the directory with it.
    pub fn remove(&self) -> io::Result<()> {
        self.unlink(&KNOWN)?;
        match unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            other => missing_is_fine(other),
        }
    }

    /// Removes what only a running machine needs. Its log and record stay.
    pub fn remove_only_running(&self) -> io::Result<()> {
        self.unlink(&ONLY_RUNNING)
    }

    /// The root and the directory in it, in which [`Self::remove`] removes.
    pub fn directories(&self) -> [&OwnedFd; 2] {
        [&self.root, &self.directory]
    }

    fn unlink(&self, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| {
            missing_is_fine(unlinkat(&self.directory, *name, AtFlags::empty()))
        })
    }
}

fn missing_is_fine(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
