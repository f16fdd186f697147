//! Namespaces of a child that entered its jail.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::{JailError, failed_io};

/// A namespace of a process, by its name in `/proc/PID/ns`.
pub(super) fn open(process: &str, name: &str) -> io::Result<File> {
    File::open(format!("/proc/{process}/ns/{name}"))
}

/// Whether this process is in it.
pub(super) fn is_own(namespace: &File, name: &str) -> io::Result<bool> {
    let (own, other) = (open("self", name)?.metadata()?, namespace.metadata()?);
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// Moves this process into a user namespace, in which it has all capabilities then, unless it is
/// in it. Needs a process of one thread.
pub(super) fn enter_users(users: &File) -> io::Result<()> {
    if !is_own(users, "user")? {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    Ok(())
}

/// Moves this process into the network namespace of a child in its jail. Where the kernel
/// granted the child none, it stays where it is. Needs CAP_SYS_ADMIN; without it a user namespace
/// of the child's, made by this user, and one thread.
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
