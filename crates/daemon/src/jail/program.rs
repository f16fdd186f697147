//! The files that a program needs to start, in the root of its jail: the directories that
//! libraries and firmware are installed in, read only, and `/dev/kvm` if it uses that.
//! [`super::empty_root_of`] takes all of it away before a guest runs.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Gid, Mode, Uid, chown, major, makedev, minor, mknodat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind_recursive};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tare_confine::INSTALLED;
use tare_control::config::JailUser;

use super::bound::{Access, BoundFiles, below_root, make_file};
use super::namespaces::Loopback;
use super::{JailError, emptying, failed};

const KVM: &str = "/dev/kvm";

/// A program that is executed in a jail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it is, without symbolic links.
    pub path: PathBuf,
    /// The device of the host that it needs.
    pub device: HostDevice,
    /// Whether it can listen in its network namespace.
    pub loopback: Loopback,
    /// Whether it gets signals that end its job.
    pub job_signals: JobSignals,
}

/// Who gets the signals that end a job: keys of a terminal, its hangup, and what users send to all
/// processes of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobSignals {
    /// The program too.
    Everyones,
    /// The process that started it alone, which ends it by [`KILL_REQUEST`]. The program stays in the job, so
    /// that it may read the terminal and stops with the job.
    Starters,
}

/// Kills a program that gets none of its job's signals: this one has its default action there, and the
/// process outside a PID namespace kills the program by it and waits for its end.
pub const KILL_REQUEST: Signal = Signal::USR2;

impl JobSignals {
    /// What the program does not get, although it may handle it.
    pub(super) fn withheld(self) -> &'static [i32] {
        match self {
            Self::Everyones => &[],
            Self::Starters => &[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP],
        }
    }
}

/// Which device of the host a program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostDevice {
    /// None.
    None,
    /// `/dev/kvm`.
    Kvm,
}

/// What a program needs to start, already open: the new root may cover the originals.
#[derive(Debug)]
pub(super) struct ProgramFiles {
    bound: BoundFiles,
    device: HostDevice,
}

impl Program {
    /// Files outside of the installed directories that the program needs.
    pub fn brought(&self) -> Option<&Path> {
        let home = env::var_os("HOME").map(PathBuf::from);
        brought(&self.path, home.as_deref())
    }

    /// Devices of the host that it opens.
    pub fn devices(&self) -> Vec<&'static Path> {
        match self.device {
            HostDevice::None => Vec::new(),
            HostDevice::Kvm => vec![Path::new(KVM)],
        }
    }

    pub(super) fn open(&self) -> Result<ProgramFiles, JailError> {
        let paths = INSTALLED.iter().map(Path::new).chain(self.brought());
        let mut bound = BoundFiles::default();
        for path in paths {
            bound.add(path, Access::Read)?;
        }
        Ok(ProgramFiles {
            bound,
            device: self.device,
        })
    }
}

/// The files of a program outside of [`INSTALLED`]: the directory in which it was installed
/// (`/opt/qemu` for `/opt/qemu/bin/qemu-system-x86_64`) or QEMU was built, unless that holds other
/// things as well; else the file alone.
fn brought<'a>(program: &'a Path, home: Option<&Path>) -> Option<&'a Path> {
    if INSTALLED.iter().any(|path| program.starts_with(path)) {
        return None;
    }
    let directory = program.parent()?;
    // QEMU's build directory: `get_relocated_path`, util/cutils.c.
    let is_own = directory.ends_with("bin") || directory.join("qemu-bundle").is_dir();
    let prefix = directory
        .parent()
        .filter(|_| is_own)
        .filter(|prefix| !holds_other_things(prefix, home));
    Some(prefix.unwrap_or(program))
}

/// Whether a directory holds other things: the root, `/opt` or another directory there, and homes.
fn holds_other_things(directory: &Path, home: Option<&Path>) -> bool {
    let is_first_level = directory.components().count() <= 2;
    let is_home = directory.parent() == Some(Path::new("/home"));
    // Also what a home is in.
    is_first_level || is_home || home.is_some_and(|home| home.starts_with(directory))
}

impl ProgramFiles {
    /// Fills the working directory, the new root. `owner` is the user that the program becomes.
    pub(super) fn provide(&self, owner: Option<&JailUser>) -> Result<(), JailError> {
        emptying::mark()?;
        self.bound.provide()?;
        match self.device {
            HostDevice::None => Ok(()),
            HostDevice::Kvm => provide_kvm(owner).map_err(failed("provide /dev/kvm")),
        }
    }
}

/// Makes a node of the machine's user, if root can; else binds the host's.
fn provide_kvm(owner: Option<&JailUser>) -> Result<(), Errno> {
    let below = below_root(Path::new(KVM));
    let Ok(host) = fs::metadata(KVM) else {
        return Ok(());
    };
    if !host.file_type().is_char_device() {
        return Ok(());
    }
    let io = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if let Some(owner) = owner {
        fs::create_dir_all("dev").map_err(io)?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(
            "tmpfs",
            "dev",
            "tmpfs",
            flags,
            c"size=4k,nr_inodes=4,mode=755",
        )?;
        let device = makedev(major(host.rdev()), minor(host.rdev()));
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(CWD, &below, FileType::CharacterDevice, mode, device) {
            Ok(()) => {
                let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
                return chown(&below, Some(uid), Some(gid));
            }
            // A container without CAP_MKNOD.
            Err(Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    make_file(&below).map_err(io)?;
    mount_bind_recursive(KVM, &below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_elsewhere_brings_the_directory_that_it_is_installed_in() {
        let of = |path: &'static str| {
            brought(Path::new(path), Some(Path::new("/srv/people/ann"))).and_then(Path::to_str)
        };
        for installed in [
            "/usr/bin/qemu-system-x86_64",
            "/nix/store/abc-qemu/bin/qemu",
            "/bin/qemu",
            "/sbin/qemu",
        ] {
            assert_eq!(of(installed), None, "{installed}");
        }
        assert_eq!(of("/opt/qemu/bin/qemu"), Some("/opt/qemu"));
        let below_home = "/srv/people/ann/qemu/bin/qemu";
        assert_eq!(of(below_home), Some("/srv/people/ann/qemu"));
        for alone in [
            "/qemu",
            "/opt/qemu-system-x86_64",
            "/opt/bin/qemu",
            "/opt/qemu/qemu-system-x86_64",
            "/srv/people/ann/bin/qemu",
            "/srv/people/bin/qemu",
        ] {
            assert_eq!(of(alone), Some(alone), "nothing beside it");
        }
        let other_home = Path::new("/home").join("ann/bin/qemu");
        assert_eq!(brought(&other_home, None), Some(&*other_home));
    }

    #[test]
    fn a_program_where_it_was_built_brings_its_sources() {
        let place = tempfile::tempdir().unwrap();
        let build = place.path().join("qemu/build");
        fs::create_dir_all(build.join("qemu-bundle")).unwrap();
        let program = build.join("qemu-system-x86_64");
        assert_eq!(brought(&program, None), build.parent());
    }
}
