//! The block devices that hold a machine's disks, as cgroups name them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use thiserror::Error;

use crate::disk::OpenDisk;

const DEVICES: &str = "/sys/dev/block";

/// Why a disk's device is unknown.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    /// Its file system is a network's, in memory, or numbers itself (btrfs, overlayfs).
    #[error("cannot limit the I/O of {0}: its file system does not name a block device")]
    Unnamed(String),
    /// Its metadata is unreadable.
    #[error("cannot read the attributes of {0}")]
    Metadata(String, #[source] io::Error),
}

/// `MAJOR:MINOR` of each whole disk that holds one of `disks`, each once.
pub(crate) fn of(disks: &[OpenDisk]) -> Result<Vec<String>, DeviceError> {
    let devices: Result<BTreeSet<String>, DeviceError> = disks
        .iter()
        .map(|disk| device(Path::new(DEVICES), &disk.file, &disk.path))
        .collect();
    Ok(devices?.into_iter().collect())
}

fn device(devices: &Path, disk: &File, path: &str) -> Result<String, DeviceError> {
    let metadata = disk
        .metadata()
        .map_err(|error| DeviceError::Metadata(path.to_owned(), error))?;
    let device = if metadata.file_type().is_block_device() {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let whole = whole(devices, &format!("{major}:{minor}"));
    whole.ok_or_else(|| DeviceError::Unnamed(path.to_owned()))
}

/// The whole disk of a partition: limits apply to whole disks only.
fn whole(devices: &Path, number: &str) -> Option<String> {
    let device = fs::canonicalize(devices.join(number)).ok()?;
    if !device.join("partition").exists() {
        return Some(number.to_owned());
    }
    let text = fs::read_to_string(device.parent()?.join("dev")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_partition_counts_as_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("devices/sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::write(disk.join("dev"), "8:0\n").unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        symlink(&disk, root.path().join("8:0")).unwrap();
        symlink(disk.join("sda1"), root.path().join("8:1")).unwrap();
        for number in ["8:0", "8:1"] {
            assert_eq!(whole(root.path(), number).as_deref(), Some("8:0"));
        }
        assert_eq!(whole(root.path(), "0:21"), None);
    }

    #[test]
    fn a_disk_on_no_block_device_is_refused_by_name() {
        let memory = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let error = device(Path::new(DEVICES), &memory.into(), "mem.img").unwrap_err();
        assert!(error.to_string().contains("mem.img"), "{error}");
    }
}
