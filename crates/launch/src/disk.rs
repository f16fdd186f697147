//! The machine's disks: opened and locked while planning.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use tare_control::config::{DiskCache, DiskCoalesce};
use tare_control::exit::ExitCode;
use tare_devices::blk::{Access, Disk, DiskError, Problem};
use tare_policy::limit::DiskLimits;

use crate::disk_choice::DiskChoice;
use crate::engine::Engine;
use crate::failure::Explain;

/// An open disk, ready for its machine. The lock goes with the descriptor.
#[derive(Debug)]
pub(crate) struct OpenDisk {
    /// The path it was opened from.
    pub(crate) path: String,
    /// The open, locked file.
    pub(crate) file: File,
    /// What the guest may do.
    pub(crate) access: Access,
    /// When a write counts as done.
    pub(crate) cache: DiskCache,
    /// Serial number.
    pub(crate) serial: String,
    /// Queues.
    pub(crate) queues: u16,
    /// Which completions interrupt the guest.
    pub(crate) coalesce: DiskCoalesce,
    /// Time that each request takes at least, microseconds.
    pub(crate) latency_us: u32,
    /// Requests and bytes a second.
    pub(crate) limits: DiskLimits,
}

/// A disk that cannot be used, or not with these settings.
#[derive(Debug, thiserror::Error)]
pub enum OpenDiskError {
    /// The file.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Coalescing with an engine that does not support it.
    #[error("coalesce= needs Tare's own monitor (--engine tare)")]
    CoalesceWithoutTare,
    /// No file system for a program's files.
    #[error("{0} has no ext4 file system")]
    NoFileSystem(String),
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The disk.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Limits with an engine that does not support them.
    #[error("iops= and bytes_per_s= need Tare's own monitor (--engine tare)")]
    LimitsWithoutTare,
}

impl Explain for OpenDiskError {
    fn code(&self) -> ExitCode {
        match self {
            Self::CoalesceWithoutTare | Self::LimitsWithoutTare => ExitCode::Usage,
            Self::NoFileSystem(_) => ExitCode::DiskUnusable,
            Self::Read { .. } => ExitCode::DiskUnreadable,
            Self::Disk(error) => tare_daemon::disk::code(error),
        }
    }

    fn hint(&self) -> Option<String> {
        let error = match self {
            Self::Disk(error) => error,
            Self::NoFileSystem(path) => return Some(format!("make one: mkfs.ext4 {path}")),
            _ => return None,
        };
        let disk = &error.disk;
        match error.problem {
            Problem::Missing => Some(format!("make one with: truncate -s 1G {disk}")),
            Problem::NotWritable(_) => Some("add ,ro to give it to be read only".to_owned()),
            Problem::Empty => Some(format!("give it a size: truncate -s 1G {disk}")),
            Problem::OddSize { .. } => Some(format!("round it up: truncate -s %512 {disk}")),
            Problem::Format { .. } => Some(
                "if it is a raw disk whose guest wrote that, add ,format=raw; convert only images \
                 that you made yourself, since others can name files of this host as backing files"
                    .to_owned(),
            ),
            Problem::Mounted { .. } => Some("unmount it, or add ,ro".to_owned()),
            Problem::InUse => Some(format!(
                "end that program (fuser -v {disk} names it), or add ,ro in both"
            )),
            _ => None,
        }
    }
}

/// Where the superblock of ext4 has its magic number, and the number
/// (kernel `fs/ext4/ext4.h`).
const MAGIC_AT: u64 = 1024 + 0x38;
const MAGIC: [u8; 2] = 0xef53_u16.to_le_bytes();

/// Refuses a disk without the file system that a program's files are on.
pub(crate) fn check_file_system(disk: &OpenDisk) -> Result<(), OpenDiskError> {
    let mut magic = [0; MAGIC.len()];
    // The same file again: this one takes whole blocks only (O_DIRECT).
    let again = File::open(format!("/proc/self/fd/{}", disk.file.as_raw_fd()));
    match again.and_then(|file| file.read_exact_at(&mut magic, MAGIC_AT)) {
        Ok(()) if magic == MAGIC => Ok(()),
        Err(source) if source.kind() != io::ErrorKind::UnexpectedEof => Err(OpenDiskError::Read {
            path: disk.path.clone(),
            source,
        }),
        _ => Err(OpenDiskError::NoFileSystem(disk.path.clone())),
    }
}

/// Opens, checks and locks the requested disks.
pub(crate) fn open(
    asked: Vec<DiskChoice>,
    cpus: u8,
    engine: &Engine,
) -> Result<Vec<OpenDisk>, OpenDiskError> {
    let tares_own = matches!(engine, Engine::Tare(_));
    let one = |(number, asked): (usize, DiskChoice)| {
        let coalesces = !matches!(asked.coalesce, None | Some(DiskCoalesce::Off));
        if coalesces && !tares_own {
            return Err(OpenDiskError::CoalesceWithoutTare);
        }
        if asked.limits != DiskLimits::default() && !tares_own {
            return Err(OpenDiskError::LimitsWithoutTare);
        }
        let disk = Disk::open_as(&asked.path, asked.access, asked.format)?;
        Ok(OpenDisk {
            path: asked.path.to_string_lossy().into_owned(),
            file: disk.into_file(),
            access: asked.access,
            cache: asked.cache,
            serial: asked.serial.unwrap_or_else(|| format!("tare-disk{number}")),
            queues: asked.queues.unwrap_or(cpus.into()),
            coalesce: asked.coalesce.unwrap_or_default(),
            latency_us: asked.latency_us,
            limits: asked.limits,
        })
    };
    asked.into_iter().enumerate().map(one).collect()
}
