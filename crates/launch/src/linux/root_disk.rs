//! `--root-disk`: the root of a Linux guest on a separate ext4 disk. The first process, in the
//! initramfs, switches to it.
//!
//! The open file has no name: it disappears with the machine, however that ends.

use std::io;

use tare_control::config::{DiskCache, DiskCoalesce};
use tare_control::exit::ExitCode;
use tare_devices::blk::{Access, Disk};
use tare_rootfs::directory::WriteError;
use tare_rootfs::ext4::{self, DiskError};
use tare_rootfs::{Root, Tree};

use crate::disk::{OpenDisk, OpenDiskError};
use crate::failure::{Explain, Failure};

/// The file system, and its module if it is one.
pub(super) const FILE_SYSTEM: &str = "ext4";
/// The first virtio disk.
const DEVICE: &str = "/dev/vda";
const SERIAL: &str = "tare-root";

/// A disk to be made.
#[derive(Debug)]
pub(crate) struct RootDisk {
    /// Its files.
    pub(super) tree: Tree,
    /// Its size.
    pub(super) bytes: u64,
}

/// A root disk that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot put the root on a disk of {} MiB", bytes >> 20)]
struct RootDiskError {
    bytes: u64,
    source: DiskError,
}

impl Explain for RootDiskError {
    fn code(&self) -> ExitCode {
        match &self.source {
            DiskError::Write(WriteError::Pack(error)) => error.code(),
            error if error.may_be_too_small() => ExitCode::RootTooLarge,
            DiskError::Name(_) => ExitCode::RootImage,
            DiskError::Write(_)
            | DiskError::Layout(_)
            | DiskError::NoProgram(_)
            | DiskError::Failed { .. } => ExitCode::Output,
        }
    }

    fn hint(&self) -> Option<String> {
        self.source
            .may_be_too_small()
            .then(|| "make it larger with --root-disk".to_owned())
    }
}

/// Arguments for the first process.
pub(super) fn root() -> Root {
    Root::Disk {
        device: DEVICE.to_owned(),
        filesystem: FILE_SYSTEM.to_owned(),
    }
}

impl RootDisk {
    /// Makes it, with a queue for each CPU.
    pub(crate) fn make(&self, cpus: u8) -> Result<OpenDisk, Failure> {
        let failed = |source| RootDiskError {
            bytes: self.bytes,
            source,
        };
        let layout = |error: io::Error| failed(DiskError::Layout(error));
        let place = tempfile::tempdir().map_err(layout)?;
        let path = place.path().join("root");
        ext4::make(&self.tree, &path, self.bytes).map_err(failed)?;
        let disk = Disk::open(&path, Access::ReadWrite).map_err(OpenDiskError::from)?;
        Ok(OpenDisk {
            path: "the root's".to_owned(),
            file: disk.into_file(),
            access: Access::ReadWrite,
            cache: DiskCache::default(),
            serial: SERIAL.to_owned(),
            queues: cpus.into(),
            coalesce: DiskCoalesce::default(),
            latency_us: 0,
            limits: Default::default(),
        })
    }
}
