//! Block devices behind a machine's disks, as control groups name them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use crate::disk::OpenDisk;

const DEVICES: &str = "/sys/dev/block";

/// `MAJOR:MINOR` of each whole disk that holds one of `disks`, each once. A file system without
/// a block device (tmpfs, a network's) has none.
pub(crate) fn of(disks: &[OpenDisk]) -> io::Result<Vec<String>> {
    let mut devices = Vec::new();
    for disk in disks {
        let metadata = disk.file.metadata()?;
        let device = if metadata.file_type().is_block_device() {
            metadata.rdev()
        } else {
            metadata.dev()
        };
        let number = format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        devices.extend(whole(Path::new(DEVICES), &number));
    }
    devices.sort();
    devices.dedup();
    Ok(devices)
}

/// The disk that a partition is on: limits are kept for whole disks only.
fn whole(devices: &Path, number: &str) -> Option<String> {
    let device = fs::canonicalize(devices.join(number)).ok()?;
    if !device.join("partition").exists() {
        return Some(number.to_owned());
    }
    let text = fs::read_to_string(device.parent()?.join("dev")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
}
