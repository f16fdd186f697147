//! The jail of a build of untrusted sources: the namespaces of a machine and one for processes, a
//! root with the installed programs, the sources and the directory of objects, and a separate user
//! where root builds.
//!
//! The process forks: the child is the first of its process namespace, so that all processes of the
//! build end with it, whatever they did to survive.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchown, fstat, openat,
    statat,
};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait, waitpid,
};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use tare_confine::{INSTALLED, OF_COMPILERS, PLAIN_DEVICES};
use tare_control::config::{Jail, JailUser};
use tare_host::process;

use super::bound::{Access, BoundFiles};
use super::build_bounds::{self, BuildBounds, Excess, Watch};
use super::namespaces::{Granted, Loopback, NAMESPACES, make_namespaces};
use super::processes::has_hung_up;
use super::user::become_user;
use super::{JailError, RootFiles, enter_new_root, failed, failed_io, separate_mounts};

/// Deepest directory of objects whose owner is changed.
const DEPTH_MAX: usize = 64;
/// How often the process outside looks at the build.
const LOOK: Duration = Duration::from_millis(10);

/// What a build reads and changes; absolute paths without symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The sources.
    pub sources: PathBuf,
    /// The directory of objects: the only one that the build changes.
    pub objects: PathBuf,
    /// Further directories of programs.
    pub programs: Vec<PathBuf>,
}

/// A process on either side of a fork.
#[derive(Debug)]
pub enum Forked {
    /// The process in the jail. The caller calls [`tare_confine::enter_build`].
    Child,
    /// The process outside.
    Parent(BuildProcess),
}

/// The child in the jail; it ends when this process does.
#[derive(Debug)]
pub struct BuildProcess {
    child: Pid,
    /// The directory that the build changes. Its path leads elsewhere once the child has its own
    /// root.
    objects: OwnedFd,
    /// Closed by the end of this process, however it ends.
    _alive: OwnedFd,
}

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildEnd {
    /// By itself: an exit status, or 128 plus the number of a signal, as in shells.
    Status(i32),
    /// It exceeded a bound and was killed.
    Excess(Excess),
}

impl BuildProcess {
    /// Waits for the end, and kills a build that exceeds its bounds. No process of the build is
    /// left.
    pub fn wait(&self, bounds: BuildBounds) -> io::Result<BuildEnd> {
        let end = self.wait_for_first(bounds);
        // In its own process namespace all have ended with the first.
        end_children();
        end
    }

    fn wait_for_first(&self, bounds: BuildBounds) -> io::Result<BuildEnd> {
        // What cannot be counted counts as too much.
        let Ok(mut watch) = Watch::begin(&self.objects, bounds) else {
            return Ok(BuildEnd::Excess(Excess::Space));
        };
        loop {
            match waitpid(Some(self.child), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => {
                    let signaled = status.terminating_signal().map(|signal| 128 + signal);
                    if let Some(code) = status.exit_status().or(signaled) {
                        return Ok(BuildEnd::Status(code));
                    }
                }
                Ok(None) => {
                    if let Some(excess) = watch.excess() {
                        return Ok(BuildEnd::Excess(excess));
                    }
                    thread::sleep(LOOK);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Kills and reaps the children of this process until it has none; orphans of a child become this
/// process's ([`fork_into_build`]).
fn end_children() {
    loop {
        let children = process::children(std::process::id());
        let pids = children
            .into_iter()
            .filter_map(|pid| Pid::from_raw(pid.cast_signed()));
        for child in pids {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => thread::sleep(LOOK),
            Err(_) => return,
        }
    }
}

/// Forks into a jail. Where the kernel grants no namespaces the child keeps this user and the
/// host's root. To be called by a process of one thread.
pub fn fork_into_build(build: &Build, jail: &Jail) -> Result<Forked, JailError> {
    let granted = if jail.namespaces {
        make_namespaces(NAMESPACES | UnshareFlags::NEWPID, Loopback::Down)?
    } else {
        Granted::No
    };
    // Without its own root another user may not reach the files.
    let user = jail.user.filter(|_| granted == Granted::Yes);
    if geteuid().is_root() {
        let owner = user.map_or((0, 0), |user| (user.uid, user.gid));
        give(&build.objects, owner).map_err(failed_io("hand over the objects"))?;
    }
    // Without a process namespace, orphans of the build become children of this process.
    set_child_subreaper(Some(getpid())).map_err(failed("take over what a build leaves"))?;
    let objects = build_bounds::open(&build.objects).map_err(failed_io("open the objects"))?;
    let (parents_end, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(failed("make a pipe"))?;
    // SAFETY: this process has one thread, so that the child may do what the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(failed_io("fork into")(io::Error::last_os_error())),
        0 => {
            drop((alive, objects));
            if granted == Granted::Yes {
                enter_root_of(build, user.as_ref())?;
            }
            end_with(&parents_end)?;
            Ok(Forked::Child)
        }
        child => Ok(Forked::Parent(BuildProcess {
            child: Pid::from_raw(child).ok_or(JailError::ParentEnded)?,
            objects,
            _alive: alive,
        })),
    }
}

/// Makes the parent's end end this process, also if it came before. The parent's number, which
/// [`tare_host::child::ParentDeath`] compares, is 0 from another process namespace.
fn end_with(parents_end: &OwnedFd) -> Result<(), JailError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("tie the end"))?;
    if has_hung_up(parents_end).map_err(failed("tie the end"))? {
        return Err(JailError::ParentEnded);
    }
    Ok(())
}

fn enter_root_of(build: &Build, user: Option<&JailUser>) -> Result<(), JailError> {
    if separate_mounts()? == Granted::Yes {
        let files = build.open()?;
        enter_new_root(&RootFiles::Build(files), user)?;
        if let Some(user) = user {
            become_user(user).map_err(|errno| JailError::User {
                uid: user.uid,
                source: errno.into(),
            })?;
        }
    }
    Ok(())
}

impl Build {
    /// Opens what the root receives. A directory within another comes after it.
    fn open(&self) -> Result<BuildFiles, JailError> {
        let mut bound = BoundFiles::default();
        let installed = INSTALLED.iter().chain(&OF_COMPILERS).map(Path::new);
        let read = installed.chain(self.programs.iter().map(PathBuf::as_path));
        for path in read.chain([self.sources.as_path()]) {
            bound.add(path, Access::Read)?;
        }
        for device in PLAIN_DEVICES.map(Path::new) {
            bound.add(device, Access::Device)?;
        }
        bound.add(&self.objects, Access::Change)?;
        Ok(BuildFiles {
            bound,
            temporary: self.temporary(),
        })
    }

    /// The directory for temporary files: on the disk, as long as the disk lasts.
    pub fn temporary(&self) -> PathBuf {
        self.objects.join(".tmp-of-build")
    }
}

/// What a build needs, open.
#[derive(Debug)]
pub(super) struct BuildFiles {
    bound: BoundFiles,
    temporary: PathBuf,
}

impl BuildFiles {
    /// Fills the working directory, the new root.
    pub(super) fn provide(&self) -> Result<(), JailError> {
        self.bound.provide()?;
        let step = failed_io("make a link");
        let links = [
            ("dev/fd", Path::new("/proc/self/fd")),
            ("dev/stdin", Path::new("/proc/self/fd/0")),
            ("dev/stdout", Path::new("/proc/self/fd/1")),
            ("dev/stderr", Path::new("/proc/self/fd/2")),
            // For scripts that know no other directory. Sources and objects may lie below it.
            ("tmp", &*self.temporary),
        ];
        let make = |(link, target): (&str, &Path)| match symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        };
        fs::create_dir_all("dev")
            .and_then(|()| links.into_iter().try_for_each(make))
            .map_err(step)
    }
}

/// Changes the owner of a directory and of what root made in it: of everything if the directory had
/// another owner, else only of what it holds itself. Follows no link, and skips files with several
/// names.
fn give(directory: &Path, owner: (u32, u32)) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    let depth = if fstat(&directory)?.st_uid == owner.0 {
        0
    } else {
        DEPTH_MAX
    };
    give_below(&directory, owner, depth)
}

fn give_below(directory: &OwnedFd, owner: (u32, u32), depth: usize) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)));
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            if depth > 0 && is_roots(&found) {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = openat(directory, name, flags, Mode::empty())?;
                give_below(&below, owner, depth - 1)?;
            }
        } else if is_roots(&found) && found.st_nlink == 1 {
            chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(fchown(directory, uid, gid)?)
}

fn is_roots(found: &Stat) -> bool {
    found.st_uid == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn roots_files_are_given_without_following_links_or_second_names() {
        if !geteuid().is_root() {
            return tare_vmtest::lacks("only root gives files away");
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("objects/fs/ext4")).unwrap();
        for name in ["secret", "linked", "objects/a.o", "objects/fs/ext4/b.o"] {
            fs::write(path(name), "x").unwrap();
        }
        symlink(path("secret"), path("objects/link")).unwrap();
        fs::hard_link(path("linked"), path("objects/second")).unwrap();
        let owner = |name: &str| fs::symlink_metadata(path(name)).unwrap().uid();
        let user = (1_900_000_100, 1_900_000_100);
        give(&path("objects"), user).unwrap();
        for given in [
            "objects",
            "objects/a.o",
            "objects/fs/ext4",
            "objects/fs/ext4/b.o",
        ] {
            assert_eq!(owner(given), user.0, "{given}");
        }
        for kept in ["secret", "linked", "objects/second"] {
            assert_eq!(owner(kept), 0, "{kept}");
        }
        // What root adds later.
        fs::write(path("objects/.config"), "x").unwrap();
        give(&path("objects"), user).unwrap();
        assert_eq!(owner("objects/.config"), user.0);
        // And back.
        give(&path("objects"), (0, 0)).unwrap();
        assert_eq!(owner("objects"), 0);
    }
}
