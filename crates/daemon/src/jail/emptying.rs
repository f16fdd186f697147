//! Empties the root of a program in its jail, from outside, once the program has opened what it
//! needs.
//!
//! The caller enters the program's namespaces and takes every mount and file out of the root.
//! Libraries that the program has mapped stay mapped. Nothing is touched unless the root is
//! one that [`super::enter_for`] made: it has a mark.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statfs;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};
use rustix::process::{Pid, chdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tare_host::child::ParentDeath;

use super::error::not_restored;
use super::namespaces::{enter_users, is_own, open};
use super::{JailError, failed, failed_io};

/// A directory that marks a root made for a program.
const MARK: &str = ".tare-root";
/// `statfs(2)`: TMPFS_MAGIC.
const TMPFS: i64 = 0x0102_1994;

/// Marks the working directory as a root to be emptied.
pub(super) fn mark() -> Result<(), JailError> {
    fs::create_dir(MARK).map_err(failed_io("mark the root"))
}

/// Whether a root was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// It is empty.
    Yes,
    /// The program has the host's root: the kernel granted no namespaces.
    NoRoot,
}

/// Empties the root of a child that entered its jail by [`super::enter_for`]. To be called by a
/// process of one thread that ends afterwards: it stays in the program's namespaces.
pub fn empty_root_of(child: Pid) -> Result<Emptied, JailError> {
    let tie = ParentDeath::read().map_err(failed("read the end's signal"))?;
    let entered = enter_namespaces_of(child).map_err(failed_io("enter"))?;
    // Another user namespace would undo this.
    tie.restore().map_err(not_restored)?;
    if !entered || !is_marked() {
        return Ok(Emptied::NoRoot);
    }
    let step = "empty the root";
    chdir("/").map_err(failed(step))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let remount = |more| mount_remount("/", MountFlags::BIND | flags | more, c"");
    remount(MountFlags::empty()).map_err(failed(step))?;
    let device = fs::metadata("/").map_err(failed_io(step))?.dev();
    clear(Path::new("/"), device).map_err(failed_io(step))?;
    remount(MountFlags::RDONLY).map_err(failed(step))?;
    Ok(Emptied::Yes)
}

/// Enters the child's mount namespace if it has its own; returns whether it has.
fn enter_namespaces_of(child: Pid) -> io::Result<bool> {
    let child = child.as_raw_nonzero().to_string();
    let (users, mounts) = (open(&child, "user")?, open(&child, "mnt")?);
    if is_own(&mounts, "mnt")? {
        return Ok(false);
    }
    enter_users(&users)?;
    // This is the namespace's root now, with what is mounted over it (setns(2)).
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(true)
}

fn is_marked() -> bool {
    let is_tmpfs = statfs("/").is_ok_and(|root| root.f_type == TMPFS);
    is_tmpfs && Path::new("/").join(MARK).is_dir()
}

/// Removes everything of the file system `device`, and unmounts all others below.
fn clear(directory: &Path, device: u64) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let mut found = fs::symlink_metadata(&path)?;
        if found.dev() != device {
            unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            found = fs::symlink_metadata(&path)?;
        }
        // Never a file of the host.
        if found.dev() != device {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        if found.is_dir() {
            clear(&path, device)?;
            fs::remove_dir(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
