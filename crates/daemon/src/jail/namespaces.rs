//! Namespaces: making those of a jail, and entering those of a child that is in one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, getegid, geteuid};
use rustix::thread::{
    Gid, LinkNameSpaceType, Uid, UnshareFlags, move_into_link_name_space, unshare_unsafe,
};
use serde::{Deserialize, Serialize};

use super::error::{JailError, failed, failed_io};

/// Namespaces of every jail, beside that for processes.
pub(super) const NAMESPACES: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWNET);

/// A namespace of a process, by its name in `/proc/PID/ns`.
pub(super) fn open(process: &str, name: &str) -> io::Result<File> {
    File::open(format!("/proc/{process}/ns/{name}"))
}

/// Whether this process is in it.
pub(super) fn is_own(namespace: &File, name: &str) -> io::Result<bool> {
    let (own, other) = (open("self", name)?.metadata()?, namespace.metadata()?);
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// Moves this process into a user namespace, in which it then has all capabilities, unless it is in
/// it already. Needs a process of one thread.
pub(super) fn enter_users(users: &File) -> io::Result<()> {
    if !is_own(users, "user")? {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    Ok(())
}

/// Moves this process into the network namespace of a child in its jail. Where the kernel granted
/// the child none, it stays. Needs CAP_SYS_ADMIN; without that, a user namespace of the child's,
/// made by this user, and one thread.
pub fn enter_network_of(child: Pid) -> Result<(), JailError> {
    let enter = || -> io::Result<()> {
        let child = child.as_raw_nonzero().to_string();
        let (users, network) = (open(&child, "user")?, open(&child, "net")?);
        if is_own(&network, "net")? {
            return Ok(());
        }
        enter_users(&users)?;
        Ok(move_into_link_name_space(
            network.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    };
    enter().map_err(failed_io("enter"))
}

/// The loopback interface of a program's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loopback {
    /// As in every new namespace.
    Down,
    /// The program listens at it. Needs CAP_NET_ADMIN, or a user namespace.
    Up,
}

/// Whether the kernel grants namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    Yes,
    No,
}

pub(super) fn make_namespaces(
    flags: UnshareFlags,
    loopback: Loopback,
) -> Result<Granted, JailError> {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        return unshare(flags);
    }
    // Users that cannot be mapped have no capabilities in the other namespaces. What listens
    // keeps the host's then: its own interface would stay down.
    let (with_users, later) = match loopback {
        Loopback::Down => (flags, UnshareFlags::empty()),
        Loopback::Up => (UnshareFlags::empty(), flags),
    };
    if unshare(UnshareFlags::NEWUSER | with_users)? == Granted::No {
        return Ok(Granted::No);
    }
    // Or granted and of no use: AppArmor lets a program without a profile make a user
    // namespace and takes its capabilities there (Ubuntu 24.04), Landlock forbids mounts.
    match map_ids(uid, gid, (uid.as_raw(), gid.as_raw())) {
        Ok(()) => unshare(later),
        Err(error) if Errno::from_io_error(&error).is_some_and(is_forbidden) => Ok(Granted::No),
        Err(source) => {
            let step = "map the users";
            Err(JailError::Namespace { step, source })
        }
    }
}

/// Makes these namespaces; without flags none.
fn unshare(flags: UnshareFlags) -> Result<Granted, JailError> {
    // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
    match unsafe { unshare_unsafe(flags) } {
        Ok(()) => Ok(Granted::Yes),
        // Not granted: a container without CAP_SYS_ADMIN, or a host that keeps user
        // namespaces to itself.
        Err(Errno::NOSPC | Errno::USERS | Errno::INVAL | Errno::NOSYS) => Ok(Granted::No),
        Err(errno) if is_forbidden(errno) => Ok(Granted::No),
        Err(errno) => Err(failed("make")(errno)),
    }
}

pub(super) const fn is_forbidden(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS)
}

/// This user with these numbers of a user and a group; no other user exists in the namespace.
pub(super) fn map_ids(uid: Uid, gid: Gid, (user, group): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {gid} 1"))
}
