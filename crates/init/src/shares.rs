//! Directories that the host shares with the guest (virtio-fs, Linux
//! `Documentation/filesystems/virtiofs.rst`).

use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use tare_init::Share;

/// The kernel's name for it.
const KIND: &str = "virtiofs";

/// Mounts one; a command that was to have it does not run without.
pub(crate) fn mount_one(
    Share {
        tag,
        path,
        is_read_only,
    }: &Share,
) -> Result<(), String> {
    fs::create_dir_all(path)
        .map_err(|error| format!("cannot make {path} for a shared directory: {error}"))?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if *is_read_only {
        flags |= MountFlags::RDONLY;
    }
    mount(tag, path, KIND, flags, None).map_err(|errno| {
        let why = match errno {
            Errno::NODEV => "this kernel has no virtio-fs (CONFIG_VIRTIO_FS)".to_owned(),
            Errno::INVAL => format!("the machine has no device {tag}"),
            other => other.to_string(),
        };
        format!("cannot mount the shared directory at {path}: {why}")
    })
}
