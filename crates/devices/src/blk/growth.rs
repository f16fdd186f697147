//! A disk becomes longer while it is served.
//!
//! The file is extended by fallocate(2) of its last sector, through a ring that can do nothing
//! else: what lies between stays a hole, bytes that are there already stay, a full file
//! system says so, and a file system that hangs makes nobody wait for longer than
//! [`TIMEOUT`]. A block device, and a file that its owner has extended, are measured by what
//! the kernel knows of them. Of a file on FUSE or the network it may know an old length,
//! and may wait for a server to learn another: there, a second ring asks ([`measure`](super::measure)).
//!
//! Called on the main thread; the device learns the result by
//! [`Blk::set_bytes`](super::Blk::set_bytes). A disk never becomes shorter: what its last
//! sectors hold is the guest's.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::disk::BlockSize;
use super::io_engine::{Finished, IoEngine as _, Operation};
use super::measure::Measurement;
use super::raw_io::{Buffers, Ring, device_bytes, is_local};
use super::{Disk, SECTOR_BYTES};

/// How long the file system gets.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The one token of the ring.
const TOKEN: usize = 0;

/// Why a disk keeps its size.
#[derive(Debug, thiserror::Error)]
pub enum GrowthError {
    /// It is longer now.
    #[error("it has {now} bytes and cannot become shorter")]
    Shorter {
        /// Its length.
        now: u64,
    },
    /// Part of a block at its end.
    #[error("{wanted} bytes are not a multiple of its blocks of {block} bytes")]
    PartOfABlock {
        /// What was asked for.
        wanted: u64,
        /// Its logical block.
        block: u64,
    },
    /// Only its owner can extend it.
    #[error("its {kind} has {found} bytes: extend it first")]
    Found {
        /// `device` or `file`.
        kind: &'static str,
        /// How long it is.
        found: u64,
    },
    /// Without io_uring nothing but a wait can tell how long it is.
    #[error(
        "its file is on a file system that may have to be waited for, which takes io_uring: \
         extend it and start again"
    )]
    Unmeasured,
    /// The file system does not know fallocate(2).
    #[error("its file system cannot extend it: run `truncate -s` on it, then set the size again")]
    Unsupported,
    /// The file system has not answered, or still works on the call before.
    #[error(
        "its file system did not answer within 1 s: the disk keeps its size, although its file \
         may still become longer; set the size again later"
    )]
    Timeout,
    /// The system refused.
    #[error("it cannot be extended")]
    Io(#[from] io::Error),
}

/// Extends the file of one disk.
pub struct Growth {
    file: File,
    block: BlockSize,
    kind: StorageKind,
    /// `None`: a device, a disk that is only read, or a system without io_uring.
    allocation: Option<Hung<Ring>>,
    /// The same, or the kernel knows how long the file is.
    measurement: Option<Hung<Measurement>>,
}

/// A ring with one call, which may never be answered. Never dropped: that would wait for a file
/// system that hangs, or free memory that the kernel may still write.
struct Hung<R> {
    ring: ManuallyDrop<R>,
    /// The file system has a call that it has not answered.
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageKind {
    Device,
    /// The kernel knows its length.
    Local,
    /// A server may know another length, or not answer.
    Remote,
}

impl Growth {
    /// For `disk`, before this thread is confined.
    pub fn new(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        let kind = if file.metadata()?.file_type().is_block_device() {
            StorageKind::Device
        } else if is_local(&file) {
            StorageKind::Local
        } else {
            StorageKind::Remote
        };
        Ok(Self::of_kind(disk, file, kind))
    }

    fn of_kind(disk: &Disk, file: File, kind: StorageKind) -> Self {
        let extends = kind != StorageKind::Device && disk.is_writable();
        let allocation = extends.then(|| Ring::for_allocation(&file).ok());
        let asks = kind == StorageKind::Remote;
        let measurement = asks.then(|| Measurement::new(&file).ok());
        Self {
            block: disk.block(),
            allocation: allocation.flatten().map(Hung::new),
            measurement: measurement.flatten().map(Hung::new),
            file,
            kind,
        }
    }

    /// As for a file on the network.
    #[cfg(test)]
    pub(super) fn of_remote(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        Ok(Self::of_kind(disk, file, StorageKind::Remote))
    }

    /// Makes a disk of `now` bytes `wanted` bytes long. On success there are as many.
    pub fn grow(&mut self, now: u64, wanted: u64) -> Result<(), GrowthError> {
        let block = self.block.bytes();
        if wanted < now {
            return Err(GrowthError::Shorter { now });
        }
        if !wanted.is_multiple_of(block) {
            return Err(GrowthError::PartOfABlock { wanted, block });
        }
        if wanted == now {
            return Ok(());
        }
        let (kind, found) = match self.kind {
            StorageKind::Device => ("device", device_bytes(&self.file)?),
            StorageKind::Local => {
                let bytes = seek(&self.file, SeekFrom::End(0)).map_err(io::Error::from)?;
                ("file", bytes)
            }
            StorageKind::Remote => ("file", self.measure()?),
        };
        if found >= wanted {
            return Ok(());
        }
        match &mut self.allocation {
            Some(allocation) => allocation.allocate_last(wanted),
            None => Err(GrowthError::Found { kind, found }),
        }
    }

    fn measure(&mut self) -> Result<u64, GrowthError> {
        let measurement = self.measurement.as_mut();
        let measurement = measurement.ok_or(GrowthError::Unmeasured)?;
        measurement.call(
            |ring| ring.ask(),
            |ring| ring.answer(),
            |ring| Some(ring.event()),
        )
    }
}

impl Hung<Ring> {
    /// Lets the file system have a sector at the end of `bytes` bytes.
    fn allocate_last(&mut self, bytes: u64) -> Result<(), GrowthError> {
        let last = Operation::Allocate {
            offset: bytes - SECTOR_BYTES,
            len: SECTOR_BYTES,
            mode: FallocateFlags::empty(),
        };
        let start = |ring: &mut Ring| {
            ring.start(TOKEN, last, Buffers::none());
            Ok(())
        };
        let finished = |ring: &mut Ring| {
            ring.acknowledge();
            // What the kernel had no memory for before.
            let _ = ring.submit();
            ring.finished().map(|Finished { result, .. }| result)
        };
        self.call(start, finished, |ring| ring.event()).map(drop)
    }
}

impl<R> Hung<R> {
    fn new(ring: R) -> Self {
        Self {
            ring: ManuallyDrop::new(ring),
            waits: false,
        }
    }

    /// Makes a call, unless the one before has not ended, and waits for its end.
    fn call<T>(
        &mut self,
        start: impl FnOnce(&mut R) -> io::Result<()>,
        finished: impl Fn(&mut R) -> Option<io::Result<T>>,
        event: impl Fn(&R) -> Option<BorrowedFd<'_>>,
    ) -> Result<T, GrowthError> {
        // How an earlier call ended was for whoever asked for it.
        if self.waits && finished(&mut self.ring).is_none() {
            return Err(GrowthError::Timeout);
        }
        self.waits = false;
        start(&mut self.ring)?;
        self.waits = true;
        let began = Instant::now();
        loop {
            if let Some(result) = finished(&mut self.ring) {
                self.waits = false;
                return result.map_err(failed);
            }
            let left = TIMEOUT.checked_sub(began.elapsed());
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let (Some(left), Some(event)) = (left, event(&self.ring)) else {
                return Err(GrowthError::Timeout);
            };
            let mut events = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
            match poll(&mut events, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}

fn failed(error: io::Error) -> GrowthError {
    match error.kind() {
        io::ErrorKind::Unsupported => GrowthError::Unsupported,
        _ => GrowthError::Io(error),
    }
}
