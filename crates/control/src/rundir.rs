//! Run directories: one directory for each running machine, found by name.
//!
//! ```text
//! $XDG_RUNTIME_DIR/tare/NAME/   (root: /run/tare, else a directory of the user's in /tmp)
//!     machine.json   the configuration
//!     lock           locked (flock) as long as the machine lives
//!     control.sock   the control interface, HTTP
//!     console.log    what the guest wrote to its serial port
//!     run.json       how `tare` started it, for `tare ps` and `tare stop`
//!     passt.log      what passt said when it started, if anything
//! ```
//!
//! A directory whose lock is free belongs to a machine that was killed; whoever
//! finds it removes it. Making and removing happen under a lock of the whole
//! root (`.lock` in it), so that nobody takes a directory that is just being
//! made for a stale one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Environment variable that names another root for run directories.
pub const ROOT_VARIABLE: &str = "TARE_RUN_ROOT";
/// Longest name of a machine in bytes.
pub const MAX_NAME: usize = 64;
/// Longest path of a UNIX socket in bytes, with its NUL (`unix(7)`).
const MAX_SOCKET_PATH: usize = 108;
const ROOT_LOCK: &str = ".lock";
const MACHINE: &str = "machine.json";
const LOCK: &str = "lock";
const CONTROL: &str = "control.sock";
const CONSOLE: &str = "console.log";
const RUN: &str = "run.json";
const PASST: &str = "passt.log";

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The name does not follow the rule of [`valid_name`].
    #[error(
        "{0:?} is no name for a machine: 1 to {MAX_NAME} letters, digits, '.', '_' or '-', beginning with a letter or digit"
    )]
    BadName(String),
    /// A machine of that name lives.
    #[error("a machine named {0:?} is running")]
    InUse(String),
    /// No machine of that name lives.
    #[error("no machine named {0:?} is running")]
    NotRunning(String),
    /// The root belongs to somebody else, who could exchange what is in it.
    #[error("{0} belongs to another user")]
    NotOurs(PathBuf),
    /// The control socket's path would be longer than the kernel takes.
    #[error("{0} is too long for a socket's path; choose a shorter name or set {ROOT_VARIABLE}")]
    PathTooLong(PathBuf),
    /// A file or directory cannot be made, read or removed.
    #[error("cannot use {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whether `name` may name a machine: 1 to [`MAX_NAME`] ASCII letters, digits,
/// `.`, `_` or `-`, beginning with a letter or digit.
pub fn valid_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= MAX_NAME
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(inner)
}

/// The directory that holds this user's run directories. It need not exist.
pub fn default_root() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(root) = set(ROOT_VARIABLE) {
        return root.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/tare".into();
    }
    match set("XDG_RUNTIME_DIR") {
        Some(runtime) => Path::new(&runtime).join("tare"),
        None => std::env::temp_dir().join(format!("tare-{}", uid.as_raw())),
    }
}

/// All run directories of one user.
#[derive(Clone, Debug)]
pub struct RunRoot {
    path: PathBuf,
}

impl RunRoot {
    /// Opens [`default_root`], making it (mode 0700) if it is missing.
    pub fn open_default() -> Result<Self, RunDirError> {
        Self::open(default_root())
    }

    /// Opens the root at `path`, making it (mode 0700) if it is missing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let path = path.into();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| at(&path, source))?;
        let metadata = fs::symlink_metadata(&path).map_err(|source| at(&path, source))?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(RunDirError::NotOurs(path));
        }
        Ok(Self { path })
    }

    /// Makes the directory for a machine and takes its lock. The lock lives as
    /// long as any copy of the returned file is open in some process: give the
    /// descriptor to the monitor. What a killed machine of that name left is
    /// removed.
    pub fn create(&self, name: &str) -> Result<(RunDir, File), RunDirError> {
        let directory = self.directory(name)?;
        let socket = directory.control_socket();
        if socket.as_os_str().len() >= MAX_SOCKET_PATH {
            return Err(RunDirError::PathTooLong(socket));
        }
        let _guard = self.guard()?;
        directory.remove_if_stale()?;
        let lock = match directory.make() {
            // The machine that had this name removed its directory just now.
            Err(RunDirError::Io { source, .. }) if is_missing(&source) => directory.make()?,
            other => other?,
        };
        Ok((directory, lock))
    }

    /// The running machine of that name. Removes what a killed one left.
    pub fn find(&self, name: &str) -> Result<RunDir, RunDirError> {
        let directory = self.directory(name)?;
        let _guard = self.guard()?;
        directory.remove_if_stale()?;
        match directory.is_alive() {
            true => Ok(directory),
            false => Err(RunDirError::NotRunning(name.to_owned())),
        }
    }

    /// All running machines by name. Removes what killed ones left.
    pub fn list(&self) -> Result<Vec<RunDir>, RunDirError> {
        let _guard = self.guard()?;
        let mut alive = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(|source| at(&self.path, source))?;
        for entry in entries {
            let entry = entry.map_err(|source| at(&self.path, source))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| valid_name(name)) else {
                continue;
            };
            let directory = self.directory(name)?;
            directory.remove_if_stale()?;
            if directory.is_alive() {
                alive.push(directory);
            }
        }
        alive.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(alive)
    }

    fn directory(&self, name: &str) -> Result<RunDir, RunDirError> {
        if !valid_name(name) {
            return Err(RunDirError::BadName(name.to_owned()));
        }
        Ok(RunDir {
            path: self.path.join(name),
        })
    }

    /// The lock of the whole root, until it is dropped.
    fn guard(&self) -> Result<File, RunDirError> {
        let path = self.path.join(ROOT_LOCK);
        let file = open_lock(&path).map_err(|source| at(&path, source))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| at(&path, errno.into()))?;
        Ok(file)
    }
}

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

    /// `lock`, locked while the machine lives.
    pub fn lock_file(&self) -> PathBuf {
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

    /// `passt.log`, what passt said when it started.
    pub fn passt_log(&self) -> PathBuf {
        self.path.join(PASST)
    }

    /// Whether somebody holds the lock.
    pub fn is_alive(&self) -> bool {
        let Ok(file) = File::open(self.lock_file()) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Removes the directory and what is in it, the lock file last of the
    /// files. For the machine's own end; others use [`RunRoot`]'s methods.
    /// Nothing outside the known names is touched.
    pub fn remove(&self) -> Result<(), RunDirError> {
        for name in [CONTROL, MACHINE, CONSOLE, RUN, PASST, LOCK] {
            let path = self.path.join(name);
            missing_is_fine(fs::remove_file(&path)).map_err(|source| at(&path, source))?;
        }
        match fs::remove_dir(&self.path) {
            // A new machine took the name as soon as the lock file was gone.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => missing_is_fine(other).map_err(|source| at(&self.path, source)),
        }
    }

    /// Makes the directory and its lock, and takes it.
    fn make(&self) -> Result<File, RunDirError> {
        let made = DirBuilder::new().mode(0o700).create(&self.path);
        made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RunDirError::InUse(self.name().to_owned()),
            _ => at(&self.path, source),
        })?;
        let path = self.lock_file();
        let file = open_lock(&path).map_err(|source| at(&path, source))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| at(&path, errno.into()))?;
        Ok(file)
    }

    /// The caller holds the root's lock.
    fn remove_if_stale(&self) -> Result<(), RunDirError> {
        if self.is_alive() {
            return Ok(());
        }
        missing_is_fine(fs::remove_dir_all(&self.path)).map_err(|source| at(&self.path, source))
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_missing(&error) => Ok(()),
        other => other,
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn at(path: &Path, source: io::Error) -> RunDirError {
    RunDirError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, RunRoot) {
        let directory = tempfile::tempdir().unwrap();
        let root = RunRoot::open(directory.path().join("tare")).unwrap();
        (directory, root)
    }

    #[test]
    fn names_that_could_leave_the_root_are_refused() {
        for name in [
            "", ".", "..", "../x", "a/b", "-a", ".lock", "a b", "ä", "a\n",
        ] {
            assert!(!valid_name(name), "{name:?}");
        }
        assert!(!valid_name(&"a".repeat(MAX_NAME + 1)));
        for name in ["a", "http-1", "A_b.c", "0"] {
            assert!(valid_name(name), "{name:?}");
        }
        assert!(valid_name(&"a".repeat(MAX_NAME)));
    }

    #[test]
    fn a_name_is_used_once_until_its_lock_goes() {
        let (_keep, root) = root();
        let (directory, lock) = root.create("web").unwrap();
        assert!(directory.is_alive());
        assert!(matches!(root.create("web"), Err(RunDirError::InUse(name)) if name == "web"));
        assert_eq!(root.find("web").unwrap(), directory);
        drop(lock);
        assert!(!directory.is_alive());
        assert!(matches!(root.find("web"), Err(RunDirError::NotRunning(_))));
        assert!(root.create("web").is_ok());
    }

    #[test]
    fn listing_removes_what_killed_machines_left() {
        let (_keep, root) = root();
        let (alive, _lock) = root.create("b").unwrap();
        let (also, _other) = root.create("a").unwrap();
        let (dead, lock) = root.create("dead").unwrap();
        fs::write(dead.console_log(), "x").unwrap();
        drop(lock);
        assert_eq!(root.list().unwrap(), [also, alive]);
        assert!(!dead.path().exists());
    }

    #[test]
    fn removing_leaves_nothing_and_may_be_repeated() {
        let (_keep, root) = root();
        let (directory, _lock) = root.create("web").unwrap();
        fs::write(directory.machine_json(), "{}").unwrap();
        directory.remove().unwrap();
        assert!(!directory.path().exists());
        directory.remove().unwrap();
    }

    #[test]
    fn a_socket_path_that_the_kernel_refuses_is_refused_before() {
        let keep = tempfile::tempdir().unwrap();
        let root = RunRoot::open(keep.path().join("x".repeat(60))).unwrap();
        let name = "y".repeat(MAX_NAME);
        assert!(matches!(
            root.create(&name),
            Err(RunDirError::PathTooLong(_))
        ));
        assert!(root.list().unwrap().is_empty());
    }

    #[test]
    fn a_root_that_is_no_directory_of_ours_is_refused() {
        let keep = tempfile::tempdir().unwrap();
        let link = keep.path().join("link");
        std::os::unix::fs::symlink(keep.path(), &link).unwrap();
        assert!(matches!(RunRoot::open(&link), Err(RunDirError::NotOurs(_))));
    }
}
