//! Landlock: no file of any kind can be opened, made or changed any more,
//! except that the main thread removes the run directory; no TCP, no sockets
//! with abstract names, and no signals from the other threads.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};

use rustix::fs::{OFlags, fcntl_getfl};

use super::ConfineError;

/// Newest Landlock ABI whose rights are requested; an older kernel gives what it has.
const NEWEST: ABI = ABI::V5;

/// Where programs, libraries and firmware are on Linux systems, and the list of libraries
/// that the loader reads (`ld.so(8)`).
pub const INSTALLED: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
];

/// What compilers and scripts read beside what is installed: which program a name stands for
/// (`update-alternatives(1)`), where the linker looks (`ld(1)`).
pub const OF_COMPILERS: [&str; 3] = ["/etc/alternatives", "/etc/ld.so.conf", "/etc/ld.so.conf.d"];

/// Devices without hardware that scripts use.
pub const PLAIN_DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Which files a confined program reads and executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those in [`INSTALLED`].
    Installed,
    /// All of its user's, of root's program all: what it says of them is not to be passed on.
    Everything,
}

/// Rules for one thread.
#[derive(Debug)]
pub struct Files {
    rules: RulesetCreated,
    quiet: bool,
}

impl Files {
    /// No files at all, and no signals.
    pub fn none() -> Result<Self, ConfineError> {
        let rules = rules(Scope::AbstractUnixSocket | Scope::Signal)?;
        Ok(Self { rules, quiet: true })
    }

    /// For a reader: files below a directory may be read, or none at all.
    pub fn read_below(directory: Option<impl AsFd>) -> Result<Self, ConfineError> {
        let mut files = Self::none()?;
        if let Some(directory) = directory {
            let read = AccessFs::ReadFile | AccessFs::ReadDir;
            files.rules = files.rules.add_rule(PathBeneath::new(directory, read))?;
        }
        Ok(files)
    }

    /// For a program: what may be read may be executed, and nothing written.
    pub(super) fn execute(reads: Reads) -> Result<Self, ConfineError> {
        let mut files = Self::none()?;
        let below = match reads {
            Reads::Installed => &INSTALLED[..],
            Reads::Everything => &["/"],
        };
        for path in below.iter().map(Path::new) {
            let Ok(found) = PathFd::new(path) else {
                continue;
            };
            let mut allowed = AccessFs::Execute | AccessFs::ReadFile;
            if path.is_dir() {
                allowed |= AccessFs::ReadDir;
            }
            files.rules = files.rules.add_rule(PathBeneath::new(found, allowed))?;
        }
        Ok(files)
    }

    /// For a build: what is installed, `sources` and `programs` are read and executed, `objects`
    /// is changed in any way but by devices and sockets, `/proc` is read.
    pub(super) fn build(
        sources: &Path,
        objects: &Path,
        programs: &[PathBuf],
    ) -> Result<Self, ConfineError> {
        let mut files = Self::none()?;
        let execute = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
        let installed = INSTALLED.iter().chain(&OF_COMPILERS).map(Path::new);
        let executed = installed.chain(programs.iter().map(PathBuf::as_path));
        for path in executed.chain([sources]) {
            files.allow(path, execute)?;
        }
        files.allow(Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)?;
        for device in PLAIN_DEVICES.map(Path::new) {
            let used = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
            files.allow(device, used)?;
        }
        let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock;
        files.allow(objects, AccessFs::from_all(NEWEST) & !special)?;
        Ok(files)
    }

    /// For an emulator, from before it starts: what is installed and `brought` is read and executed,
    /// `/proc` is read, `devices` are used, and what it has open is opened again in the same way.
    pub(super) fn emulate(
        brought: Option<&Path>,
        devices: &[&Path],
        opened: &[BorrowedFd<'_>],
        network: Network,
    ) -> Result<Self, ConfineError> {
        let net = match network {
            Network::None => AccessNet::from_all(NEWEST),
            Network::Listens => AccessNet::ConnectTcp.into(),
        };
        let rules = rules_with(net, Scope::AbstractUnixSocket | Scope::Signal)?;
        let mut files = Self { rules, quiet: true };
        let execute = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
        for path in INSTALLED.iter().map(Path::new).chain(brought) {
            files.allow(path, execute)?;
        }
        files.allow(Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)?;
        for device in devices {
            let used = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            files.allow(device, used)?;
        }
        for fd in opened {
            let flags = fcntl_getfl(fd).unwrap_or(OFlags::RDONLY);
            let mut again = BitFlags::from(AccessFs::ReadFile);
            if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
                again |= AccessFs::WriteFile | AccessFs::Truncate;
            }
            // Memory and sockets are of no file system that rules are about, and need none.
            let _ = (&mut files.rules).add_rule(PathBeneath::new(fd, again));
        }
        Ok(files)
    }

    /// Allows what is at a path, if it is there; of a file what files have.
    fn allow(&mut self, path: &Path, allowed: BitFlags<AccessFs>) -> Result<(), ConfineError> {
        let Ok(found) = PathFd::new(path) else {
            return Ok(());
        };
        let allowed = if path.is_dir() {
            allowed
        } else {
            allowed & AccessFs::from_file(NEWEST)
        };
        (&mut self.rules).add_rule(PathBeneath::new(found, allowed))?;
        Ok(())
    }

    /// For the set-up: what `/proc` and `/sys` show may be read, and what
    /// [`Self::remove_in`] names may be removed.
    pub fn read_kernel_only(removable: Option<[&OwnedFd; 2]>) -> Result<Self, ConfineError> {
        let mut files = match removable {
            Some([root, directory]) => Self::remove_in(root, directory)?,
            None => Self {
                rules: rules(Scope::AbstractUnixSocket.into())?,
                quiet: true,
            },
        };
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        for path in ["/proc", "/sys"] {
            // A jail has what KVM shows there, if anything.
            if let Ok(directory) = PathFd::new(path) {
                files.rules = files.rules.add_rule(PathBeneath::new(directory, read))?;
            }
        }
        files.quiet = true;
        Ok(files)
    }

    /// Files in `run_dir` may be removed, and the empty directory itself.
    /// This one speaks for the process if the kernel has no Landlock.
    pub fn remove_only(run_dir: &Path) -> Result<Self, ConfineError> {
        let root = run_dir.parent().unwrap_or(Path::new("."));
        Self::remove_in(PathFd::new(root)?, PathFd::new(run_dir)?)
    }

    /// The same with open directories: `directory` is in `root`.
    pub fn remove_in(root: impl AsFd, directory: impl AsFd) -> Result<Self, ConfineError> {
        // It kicks vCPU threads, which are in their own domains; kernels before
        // 6.15 keep its signals from them. Its system call filter keeps signals to
        // this process.
        let mut rules = rules(Scope::AbstractUnixSocket.into())?;
        let inside = AccessFs::RemoveFile;
        rules = rules.add_rule(PathBeneath::new(directory, inside))?;
        let itself = AccessFs::RemoveDir;
        rules = rules.add_rule(PathBeneath::new(root, itself))?;
        Ok(Self {
            rules,
            quiet: false,
        })
    }

    /// So may files in `directory`.
    pub fn and_remove_in(mut self, directory: &Path) -> Result<Self, ConfineError> {
        let inside = AccessFs::RemoveFile;
        let rule = PathBeneath::new(PathFd::new(directory)?, inside);
        self.rules = self.rules.add_rule(rule)?;
        Ok(self)
    }

    /// Whether the kernel has Landlock, and so restricts the calling thread.
    pub(super) fn restrict(self) -> Result<bool, ConfineError> {
        let quiet = self.quiet;
        let is_restricted = self.enforce()? != RulesetStatus::NotEnforced;
        if !is_restricted && !quiet {
            // Standard error may be closed, which must not end the process.
            let _ = writeln!(
                io::stderr(),
                "tare: this kernel has no Landlock; this process is confined by its system call filter alone"
            );
        }
        Ok(is_restricted)
    }

    /// Whether the kernel restricts a thread by these rules: tried by one.
    #[cfg(test)]
    pub(super) fn are_enforced(self) -> bool {
        let status = std::thread::spawn(|| self.enforce()).join();
        !matches!(status, Ok(Ok(RulesetStatus::NotEnforced)))
    }

    fn enforce(self) -> Result<RulesetStatus, ConfineError> {
        Ok(self.rules.restrict_self()?.ruleset)
    }
}

/// What an emulator does with TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    None,
    /// It listens, in its own network namespace.
    Listens,
}

fn rules(scope: BitFlags<Scope>) -> Result<RulesetCreated, ConfineError> {
    rules_with(AccessNet::from_all(NEWEST), scope)
}

/// Rules by which nothing is allowed of files, nor of these uses of TCP.
fn rules_with(
    net: BitFlags<AccessNet>,
    scope: BitFlags<Scope>,
) -> Result<RulesetCreated, ConfineError> {
    Ok(Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(net)?
        .scope(scope)?
        .create()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// Rules are forever: each test takes its own thread.
    fn confined(files: Files, check: impl FnOnce() + Send + 'static) {
        let body = move || match files.enforce().unwrap() {
            RulesetStatus::NotEnforced => tare_vmtest::lacks("this kernel has no Landlock"),
            _ => check(),
        };
        thread::spawn(body).join().unwrap();
    }

    #[test]
    fn no_file_can_be_opened_or_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        confined(Files::none().unwrap(), move || {
            assert!(fs::read("/proc/self/status").is_err());
            assert!(fs::write(&path, "x").is_err());
        });
    }

    #[test]
    fn the_main_thread_removes_the_run_directory_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let (run_dir, other) = (root.path().join("run"), root.path().join("other"));
        for directory in [&run_dir, &other] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("file"), "x").unwrap();
        }
        confined(Files::remove_only(&run_dir).unwrap(), move || {
            assert!(fs::read(run_dir.join("file")).is_err());
            assert!(fs::remove_file(other.join("file")).is_err());
            fs::remove_file(run_dir.join("file")).unwrap();
            fs::remove_dir(&run_dir).unwrap();
        });
    }
}
