//! The file or block device behind the guest's disk: opens, checks and locks it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags, SeekFrom, StatxFlags, fcntl_getfl, seek, statx};
use rustix::io::Errno;

use super::aligned::Aligned;
use super::raw_io::{self, Exclusive};
use super::{SECTOR_BYTES, format};

/// How long to wait for another process's lock before the disk counts as in use. Of a machine that
/// was killed the last requests hold it, a flush on a busy host for longer than half a second.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// What the guest may do with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write; no other program may have it open.
    ReadWrite,
    /// Read; other readers may have it open as well.
    ReadOnly,
}

/// A disk that cannot be used.
#[derive(Debug)]
pub struct DiskError {
    /// The disk's name, for people.
    pub disk: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk {} {}", self.disk, self.problem)
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.problem)
    }
}

/// What is wrong with a disk.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// No such file.
    #[error("does not exist")]
    Missing,
    /// The user may not write, or the file system is mounted read-only.
    #[error("may not be opened for writing and reading")]
    NotWritable(#[source] io::Error),
    /// The user may not read it.
    #[error("may not be read")]
    NotReadable(#[source] io::Error),
    /// A directory, a pipe, ...
    #[error("is neither a file nor a block device")]
    NotADisk,
    /// The file is empty.
    #[error("is empty")]
    Empty,
    /// Part of a sector at its end.
    #[error("has {bytes} bytes, which is not a multiple of 512")]
    OddSize {
        /// Its length.
        bytes: u64,
    },
    /// An image that is not raw.
    #[error("is a {format} image; only raw images can be used")]
    Format {
        /// What it is.
        format: &'static str,
    },
    /// A block device that the host has mounted.
    #[error("is mounted on {place} by this host")]
    Mounted {
        /// Where.
        place: String,
    },
    /// Another program has it.
    #[error("is already in use by another program")]
    InUse,
    /// The system refused for another reason.
    #[error("could not be {act}")]
    Io {
        /// What was tried.
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// What a disk's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Raw, unless they begin like another format's: then the disk is refused.
    #[default]
    Detect,
    /// Raw, whatever they begin with: a guest may have written that.
    Raw,
}

/// A raw disk that this process holds the lock of. The lock belongs to the open
/// file: a process that inherits the descriptor has it.
#[derive(Debug)]
pub struct Disk {
    file: File,
    bytes: u64,
    access: Access,
    block: BlockSize,
    direct: Direct,
}

/// Bytes of a logical block: every request is of whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSize {
    /// 512: files, and most devices.
    B512,
    /// 4,096: devices that are 4Kn.
    B4096,
}

impl BlockSize {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// Whether the file bypasses the host's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direct {
    /// It does not.
    No,
    /// It does, with buffers aligned to this many bytes.
    Aligned(usize),
}

impl Disk {
    /// Opens the disk at `path`, with O_DIRECT where that works.
    pub fn open(path: &Path, access: Access) -> Result<Self, DiskError> {
        Self::open_as(path, access, Format::Detect)
    }

    /// As [`open`](Self::open), for a disk whose format is known. A block device that
    /// is opened for writing must not be in use by the host (O_EXCL).
    pub fn open_as(path: &Path, access: Access, format: Format) -> Result<Self, DiskError> {
        let name = path.display().to_string();
        let wrong = |problem| DiskError {
            disk: name.clone(),
            problem,
        };
        // Opening a pipe would wait for its other end.
        let kind = fs::metadata(path).map_err(|error| wrong(open_problem(error, access)))?;
        if !kind.is_file() && !kind.file_type().is_block_device() {
            return Err(wrong(Problem::NotADisk));
        }
        let writable = access == Access::ReadWrite;
        let exclusive = if writable && kind.file_type().is_block_device() {
            OFlags::EXCL
        } else {
            OFlags::empty()
        };
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(writable);
            let flags = flags | exclusive;
            options.custom_flags(flags.bits() as i32);
            patiently(libc::EBUSY, || options.open(path))
        };
        let file = open(OFlags::DIRECT)
            .and_then(|file| match direct(&file, block_size(&file)?) {
                Direct::Aligned(_) => Ok(file),
                Direct::No => Err(io::ErrorKind::InvalidInput.into()),
            })
            .or_else(|error| match error.kind() {
                io::ErrorKind::InvalidInput => open(OFlags::empty()),
                _ => Err(error),
            })
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => wrong(match mounted_on(path) {
                    Some(place) => Problem::Mounted { place },
                    None => Problem::InUse,
                }),
                _ => wrong(open_problem(error, access)),
            })?;
        let disk = Self::from_file(file, &name, access)?;
        if format == Format::Detect {
            check_format(&disk.file, disk.block).map_err(wrong)?;
        }
        Ok(disk)
    }

    /// Checks and locks an open file whose format the caller knows; `name` is for messages.
    pub fn from_file(file: File, name: &str, access: Access) -> Result<Self, DiskError> {
        let wrong = |problem| DiskError {
            disk: name.to_owned(),
            problem,
        };
        let block = block_size(&file).map_err(|source| {
            wrong(Problem::Io {
                act: "asked for the size of its blocks",
                source,
            })
        })?;
        let direct = direct(&file, block);
        let bytes = length(&file).map_err(wrong)?;
        check_writable(&file, access).map_err(wrong)?;
        lock(&file, access).map_err(|source| wrong(lock_problem(source)))?;
        Ok(Self {
            file,
            bytes,
            access,
            block,
            direct,
        })
    }

    /// Sectors of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.bytes / SECTOR_BYTES
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the length in bytes, as [`Growth`](super::Growth) reported it.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Whether the guest may write.
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Whether it bypasses the host's page cache.
    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct != Direct::No
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The open file, with the lock.
    pub fn into_file(self) -> File {
        self.file
    }

    pub(super) fn block(&self) -> BlockSize {
        self.block
    }

    /// As a 4Kn device's.
    #[cfg(test)]
    pub(super) fn pretend_4kn(&mut self) {
        self.block = BlockSize::B4096;
    }

    pub(super) fn direct(&self) -> Direct {
        self.direct
    }

    /// Buffers are judged as for O_DIRECT.
    #[cfg(test)]
    pub(super) fn pretend_direct(&mut self) {
        self.direct = Direct::Aligned(SECTOR_BYTES as usize);
    }
}

/// Where the block device at `path` is mounted, by `/proc/self/mountinfo`.
fn mounted_on(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.rdev();
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        // Mount, parent, device, root, place.
        let mut fields = line.split(' ');
        (fields.nth(2)? == number).then(|| fields.nth(1).map(str::to_owned))?
    })
}

fn open_problem(error: io::Error, access: Access) -> Problem {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    match (error.kind(), access) {
        (NotFound, _) => Problem::Missing,
        (PermissionDenied | ReadOnlyFilesystem, Access::ReadWrite) => Problem::NotWritable(error),
        (PermissionDenied, Access::ReadOnly) => Problem::NotReadable(error),
        _ => Problem::Io {
            act: "opened",
            source: error,
        },
    }
}

fn lock(file: &File, access: Access) -> io::Result<()> {
    patiently(libc::EAGAIN, || raw_io::lock(file, exclusive(access)))
}

/// Repeats `act` for a short time while it fails with `errno`. The kernel takes an io_uring apart,
/// and so releases the file, shortly after its process has ended: a machine that is started again
/// at once finds its disk free.
fn patiently<T>(errno: i32, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match act() {
            Err(error) if error.raw_os_error() == Some(errno) && began.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

fn exclusive(access: Access) -> Exclusive {
    match access {
        Access::ReadWrite => Exclusive::Yes,
        Access::ReadOnly => Exclusive::No,
    }
}

fn lock_problem(source: io::Error) -> Problem {
    match source.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Problem::InUse,
        Some(libc::EBADF) => Problem::NotWritable(source),
        _ => Problem::Io {
            act: "locked",
            source,
        },
    }
}

fn length(file: &File) -> Result<u64, Problem> {
    let measure = |source: io::Error| Problem::Io {
        act: "measured",
        source,
    };
    let kind = file.metadata().map_err(measure)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Problem::NotADisk);
    }
    let bytes = seek(file, SeekFrom::End(0)).map_err(|errno| measure(errno.into()))?;
    match bytes {
        0 => Err(Problem::Empty),
        bytes if !bytes.is_multiple_of(SECTOR_BYTES) => Err(Problem::OddSize { bytes }),
        bytes => Ok(bytes),
    }
}

fn check_writable(file: &File, access: Access) -> Result<(), Problem> {
    let block = file.metadata().map(|it| it.file_type().is_block_device());
    if access == Access::ReadOnly || !block.unwrap_or(false) {
        return Ok(());
    }
    let unknown = |source| Problem::Io {
        act: "checked for being read-only",
        source,
    };
    if raw_io::is_read_only(file).map_err(unknown)? {
        Err(Problem::NotWritable(Errno::ROFS.into()))
    } else {
        Ok(())
    }
}

/// The logical block size of a device. A file may have been written for any block size, and 512
/// fits all.
fn block_size(file: &File) -> io::Result<BlockSize> {
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(BlockSize::B512);
    }
    match raw_io::logical_block_bytes(file)? {
        512 => Ok(BlockSize::B512),
        4096 => Ok(BlockSize::B4096),
        other => Err(io::Error::other(format!(
            "its logical blocks have {other} bytes; 512 and 4096 can be served"
        ))),
    }
}

fn check_format(file: &File, block: BlockSize) -> Result<(), Problem> {
    let mut start = Aligned::zeroed(format::LOOKED_AT.max(block.bytes() as usize));
    let start = start.as_mut_slice();
    file.read_exact_at(start, 0).map_err(|source| Problem::Io {
        act: "read",
        source,
    })?;
    match format::of(start) {
        Some(format) => Err(Problem::Format { format }),
        None => Ok(()),
    }
}

/// Whether `file` is open with O_DIRECT and takes single blocks with it.
fn direct(file: &File, block: BlockSize) -> Direct {
    let opened = fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
    let Ok(found) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Direct::No;
    };
    let memory = found.stx_dio_mem_align as usize;
    let offset = u64::from(found.stx_dio_offset_align);
    let told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let fits = memory.is_power_of_two() && (1..=block.bytes()).contains(&offset);
    if opened && told && fits {
        Direct::Aligned(memory.max(block.bytes() as usize))
    } else {
        Direct::No
    }
}
