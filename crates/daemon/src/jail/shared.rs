//! The mounts of a process that serves a directory to a guest (virtiofsd): the directory, bound where
//! nothing else is shared, and read-only by its mount where the guest may not write. What the
//! program does with `pivot_root(2)` and its filter comes on top.
//!
//! Root serves as root, so that files keep their owners. Another user becomes root of a user
//! namespace in which only this user exists.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;
use rustix::mount::mount_bind_recursive;
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, set_no_new_privs, unshare_unsafe};

use super::error::{JailError, failed, failed_io};
use super::namespaces::{Granted, map_ids};
use super::{ASSEMBLY, restricted, separate_mounts};

/// What a guest may do to the files of a shared directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedAccess {
    /// Read them.
    Read,
    /// Change them.
    Change,
}

/// Gives this process separate mounts, in which the directory is at the path that this gives; to
/// be called by a process with one thread. Where the kernel makes no namespaces this is an
/// error, since nothing else would hold back the guest.
pub fn enter_for_shared(
    directory: impl AsFd,
    access: SharedAccess,
) -> Result<&'static str, JailError> {
    let namespaces = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        make(namespaces)?;
    } else {
        make(namespaces | UnshareFlags::NEWUSER)?;
        map_ids(uid, gid, (0, 0)).map_err(failed_io("map the users"))?;
    }
    if separate_mounts()? == Granted::No {
        return Err(failed("separate the mounts")(Errno::PERM));
    }
    // `/proc` leads to the mount that the descriptor is of, in whatever namespace that is; a
    // copy can be made of one of this namespace alone.
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()))
        .map_err(failed_io("find the directory"))?;
    check_same(&path, &directory).map_err(failed_io("find the directory"))?;
    mount_bind_recursive(&path, ASSEMBLY).map_err(failed("mount the directory"))?;
    check_same(ASSEMBLY.as_ref(), &directory).map_err(failed_io("mount the directory"))?;
    let place = ASSEMBLY.as_ref();
    match access {
        SharedAccess::Read => restricted::make(place),
        SharedAccess::Change => restricted::make_changeable(place),
    }
    .map_err(failed("restrict the directory"))?;
    set_no_new_privs(true).map_err(failed("forbid new privileges"))?;
    Ok(ASSEMBLY)
}

fn make(flags: UnshareFlags) -> Result<(), JailError> {
    // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
    unsafe { unshare_unsafe(flags) }.map_err(failed("make"))
}

/// Whether the path still leads to the directory that was opened.
fn check_same(path: &std::path::Path, directory: &impl AsFd) -> io::Result<()> {
    let (found, opened) = (
        rustix::fs::stat(path)?,
        rustix::fs::fstat(directory.as_fd())?,
    );
    if (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino) {
        return Ok(());
    }
    Err(io::Error::other("another directory is in its place"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::thread;

    use super::*;

    /// What is at the place of a thread that entered, and whether it can be written to; `None` where
    /// the kernel lets this process make no mounts.
    fn entered(access: SharedAccess) -> Option<(String, bool)> {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "shared").unwrap();
        let directory = File::open(place.path()).unwrap();
        let body = || {
            let shared = Path::new(enter_for_shared(&directory, access).ok()?);
            let writes = fs::write(shared.join("b"), "").is_ok();
            Some((fs::read_to_string(shared.join("a")).unwrap(), writes))
        };
        let seen = thread::scope(|scope| scope.spawn(body).join()).unwrap();
        assert_eq!(place.path().join("b").exists(), seen.as_ref()?.1);
        seen
    }

    #[test]
    fn a_bound_directory_is_read_only_by_its_mount() {
        let Some(seen) = entered(SharedAccess::Change) else {
            return tare_vmtest::lacks("this process may make no mount namespace");
        };
        assert_eq!(seen, ("shared".to_owned(), true));
        let seen = entered(SharedAccess::Read).unwrap();
        assert_eq!(seen, ("shared".to_owned(), false));
    }

    #[test]
    fn another_directory_in_its_place_is_not_shared() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("shared");
        fs::create_dir(&path).unwrap();
        let directory = File::open(&path).unwrap();
        assert!(check_same(&path, &directory).is_ok());
        fs::rename(&path, place.path().join("away")).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(check_same(&path, &directory).is_err());
    }
}
