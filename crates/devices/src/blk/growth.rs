//! A disk becomes longer while it is served.
//!
//! The file is extended by fallocate(2) of its last sector, through a ring that can do nothing
//! else: what lies between stays a hole, bytes that are there already stay, a full file
//! system says so, and a file system that hangs makes nobody wait for longer than
//! [`TIMEOUT`]. A block device, and a file that its owner has extended, are measured.
//!
//! Called on the main thread; the device learns the result by
//! [`Blk::set_bytes`](super::Blk::set_bytes). A disk never becomes shorter: what its last
//! sectors hold is the guest's.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileTypeExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::disk::BlockSize;
use super::io_engine::{IoEngine as _, Operation};
use super::raw_io::{Buffers, Ring, waits_at_submission};
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
    /// The file system does not know fallocate(2).
    #[error("its file system cannot extend it: run `truncate -s` on it, then set the size again")]
    Unsupported,
    /// The file system has not answered, or still works on the call before.
    #[error("its file system did not answer within 1 s: set the size again later")]
    Timeout,
    /// The system refused.
    #[error("it cannot be extended")]
    Io(#[from] io::Error),
}

/// Extends the file of one disk.
pub struct Growth {
    file: File,
    block: BlockSize,
    kind: Kind,
    /// `None`: a device, a disk that is only read, or a system without io_uring. Never
    /// dropped: that would wait for a file system that hangs, and no memory depends on it.
    ring: Option<ManuallyDrop<Ring>>,
    /// The file system has a call that it has not answered.
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    /// Its length can be asked for without a wait.
    File,
    /// On FUSE, which has to be asked.
    Remote,
}

impl Growth {
    /// For `disk`, before this thread is confined.
    pub fn new(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        let kind = if file.metadata()?.file_type().is_block_device() {
            Kind::Device
        } else if waits_at_submission(&file) {
            Kind::Remote
        } else {
            Kind::File
        };
        let extends = kind != Kind::Device && disk.is_writable();
        let ring = extends.then(|| Ring::for_allocation(&file).ok()).flatten();
        Ok(Self {
            block: disk.block(),
            ring: ring.map(ManuallyDrop::new),
            file,
            kind,
            waits: false,
        })
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
        if wanted == now || self.kind != Kind::Remote && self.length()? >= wanted {
            return Ok(());
        }
        if self.ring.is_some() {
            return self.allocate_last(wanted);
        }
        Err(GrowthError::Found {
            kind: match self.kind {
                Kind::Device => "device",
                Kind::File | Kind::Remote => "file",
            },
            found: match self.kind {
                Kind::Remote => now,
                Kind::Device | Kind::File => self.length()?,
            },
        })
    }

    fn length(&self) -> Result<u64, GrowthError> {
        let length = seek(&self.file, SeekFrom::End(0));
        Ok(length.map_err(io::Error::from)?)
    }

    /// Lets the file system have a sector at the end of `bytes` bytes.
    fn allocate_last(&mut self, bytes: u64) -> Result<(), GrowthError> {
        // How an earlier call ended was for whoever asked for it.
        let _ = self.finish(Duration::ZERO);
        let Some(ring) = self.ring.as_mut().filter(|_| !self.waits) else {
            return Err(GrowthError::Timeout);
        };
        let last = Operation::Allocate {
            offset: bytes - SECTOR_BYTES,
            len: SECTOR_BYTES,
            mode: FallocateFlags::empty(),
        };
        ring.start(TOKEN, last, Buffers::none());
        self.waits = true;
        self.finish(TIMEOUT).unwrap_or(Err(GrowthError::Timeout))
    }

    /// How the call in flight ended; `None`: there is none, or it has not ended.
    fn finish(&mut self, timeout: Duration) -> Option<Result<(), GrowthError>> {
        let ring = self.ring.as_mut().filter(|_| self.waits)?;
        let began = Instant::now();
        loop {
            ring.acknowledge();
            // What the kernel had no memory for before.
            let _ = ring.submit();
            if let Some(finished) = ring.finished() {
                self.waits = false;
                return Some(finished.result.map(drop).map_err(failed));
            }
            let left = timeout.checked_sub(began.elapsed())?;
            let event = ring.event()?;
            let mut events = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
            let left = Timespec::try_from(left).ok()?;
            match poll(&mut events, Some(&left)) {
                Ok(0) => return None,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Some(Err(io::Error::from(errno).into())),
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
