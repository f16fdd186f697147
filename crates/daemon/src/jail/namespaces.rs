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

/// Moves the calling thread into the network namespace of a child in its jail. Where the kernel
/// granted the child none, the thread stays where it is. Needs CAP_SYS_ADMIN.
pub fn enter_network_of(child: Pid) -> Result<(), JailError> {
    let enter = || -> io::Result<()> {
        let network = open(&child.as_raw_nonzero().to_string(), "net")?;
        if is_own(&network, "net")? {
            return Ok(());
        }
        Ok(move_into_link_name_space(
            network.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    };
    enter().map_err(failed_io("enter"))
}
