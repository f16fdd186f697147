//! The directory of one machine: its files by name.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ftruncate, open};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::end::{Recorded, RunState, record_end};
use super::entry::{
    self, CONSOLE, CONTROL, Found, LOCK, MACHINE, MARKER, PASST, RUN, Removal, find, is_own_file,
};
use super::error::{RunDirError, at};

/// Longest record that is read, bytes.
const RECORD_BYTES: u64 = 1 << 20;

/// The directory of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// The directory at `path`, as [`crate::config::MachineConfig::run_dir`] names it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The machine's name.
    pub fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// `machine.json`, the configuration.
    pub fn machine_json(&self) -> PathBuf {
        self.path.join(MACHINE)
    }

    /// `lock`, locked while the machine runs.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// `control.sock`, the control interface.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join(CONTROL)
    }

    /// `console.log`, what the guest wrote to its serial port.
    pub fn console_log(&self) -> PathBuf {
        self.path.join(CONSOLE)
    }

    /// `run.json`, how `tare` started the machine.
    pub fn run_json(&self) -> PathBuf {
        self.path.join(RUN)
    }

    /// `run.new`, which becomes `run.json` when it is whole.
    fn run_json_draft(&self) -> PathBuf {
        self.path.join(entry::RUN_NEW)
    }

    /// `passt.log`, what passt wrote when it started.
    pub fn passt_log(&self) -> PathBuf {
        self.path.join(PASST)
    }

    /// `reload.disk`, the disk by which the machine gets another root.
    pub fn reload_disk(&self) -> PathBuf {
        self.path.join(entry::RELOAD)
    }

    /// Whether a machine runs here, that is, a process holds the lock.
    pub fn is_alive(&self) -> bool {
        match self.examine() {
            Ok((_, Found::Run(found))) => matches!(found.state(), Ok(RunState::Running)),
            _ => false,
        }
    }

    /// Opens a file of this directory for reading. Follows no link and refuses
    /// what is not a regular file of this user.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        open_own(path, OFlags::RDONLY)
    }

    /// Writes a file of this directory, for its owner alone: [`Self::open_file`] refuses one
    /// that others may write, as the caller's umask could let them.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)?.write_all(bytes)
    }

    /// Opens `reload.disk` for reading and writing, on the terms of [`Self::open_file`].
    pub fn open_reload_disk(&self) -> io::Result<File> {
        open_own(&self.reload_disk(), OFlags::RDWR)
    }

    /// Opens the directory for its removal, if it is there. An error if Tare did
    /// not make it.
    pub fn removal(&self) -> Result<Option<Removal>, RunDirError> {
        match self.examine().map_err(|source| at(&self.path, source))? {
            (root, Found::Run(found)) => Ok(Some(Removal::new(root, self.name(), found))),
            (_, Found::Missing | Found::Empty) => Ok(None),
            (_, Found::Foreign) => Err(RunDirError::Foreign(self.path.clone())),
        }
    }

    /// Removes the directory: see [`Removal::remove`]. For the machine's own end;
    /// others use [`super::RunRoot`]'s methods.
    pub fn remove(&self) -> Result<(), RunDirError> {
        match self.removal()? {
            Some(removal) => removal.remove().map_err(|source| at(&self.path, source)),
            None => Ok(()),
        }
    }

    /// Leaves the log, the record and the exit code of a machine that ends now, until
    /// [`super::RunRoot::remove`].
    pub fn leave_ended(&self, code: u8) -> Result<(), RunDirError> {
        let Some(removal) = self.removal()? else {
            return Ok(());
        };
        let left = removal.remove_only_running().and_then(|()| {
            let flags = OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
            let lock = open(self.lock_file(), flags, Mode::empty())?;
            record_end(&lock, code)
        });
        left.map_err(|source| at(&self.path, source))
    }

    /// How the machine ended, as its last attempt left it, while the caller holds the lock.
    pub fn recorded(&self) -> Result<Recorded, RunDirError> {
        let recorded = self.examine().and_then(|(_, found)| match found {
            Found::Run(found) => Ok(found.end()?.map_or(Recorded::Nothing, Recorded::End)),
            Found::Missing | Found::Empty | Found::Foreign => Ok(Recorded::Removed),
        });
        recorded.map_err(|source| at(&self.path, source))
    }

    /// Makes the directory of an ended machine ready for its next start, while the caller holds
    /// the lock. The log stays.
    pub fn begin_again(&self) -> Result<(), RunDirError> {
        let Some(removal) = self.removal()? else {
            return Err(RunDirError::NotRunning(self.name().to_owned()));
        };
        let begun = removal.remove_only_running().and_then(|()| {
            let flags = OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            let lock = open(self.lock_file(), flags, Mode::empty())?;
            Ok(ftruncate(&lock, MARKER.len() as u64)?)
        });
        begun.map_err(|source| at(&self.path, source))
    }

    /// Names the machine's process in `run.json`: the monitor is not always the process that `tare`
    /// started and wrote there. Nothing is done where there is no `run.json`.
    pub fn name_process(&self, pid: u32, start_time: u64) -> io::Result<()> {
        let document = match self.read_record() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            document => document?,
        };
        let mut record: Map<String, Value> = serde_json::from_slice(&document)?;
        record.insert("pid".to_owned(), pid.into());
        record.insert("start_time".to_owned(), start_time.into());
        self.write_record(&serde_json::to_vec_pretty(&record)?)
    }

    /// The bytes of `run.json`, on the terms of [`Self::open_file`].
    pub fn read_record(&self) -> io::Result<Vec<u8>> {
        let mut document = Vec::new();
        let file = self.open_file(&self.run_json())?;
        file.take(RECORD_BYTES).read_to_end(&mut document)?;
        Ok(document)
    }

    /// Replaces `run.json` at once: a reader sees the old one or the new one.
    pub fn write_record(&self, document: &[u8]) -> io::Result<()> {
        let draft = self.run_json_draft();
        self.write_file(&draft, document)?;
        fs::rename(&draft, self.run_json())
    }

    fn examine(&self) -> io::Result<(OwnedFd, Found)> {
        let root = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = match open(root.unwrap_or(Path::new(".")), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(io::ErrorKind::NotFound.into()),
            other => other?,
        };
        let found = find(&root, self.name())?;
        Ok((root, found))
    }
}

/// Opens a regular file of this user; follows no link and waits for no other end of a FIFO.
fn open_own(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags | access, Mode::empty())?;
    if is_own_file(&file)? {
        Ok(file.into())
    } else {
        Err(io::Error::other("not a regular file of this user"))
    }
}
