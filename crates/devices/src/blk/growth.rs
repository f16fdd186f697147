//! Makes a disk longer while it is served.
//!
//! The file is extended by fallocate(2) of its last sector, through a ring that can do nothing
//! else: what lies between stays a hole, bytes that are there already stay, a full file
//! system says so, and a file system that hangs costs the caller [`TIMEOUT`] at most, for all
//! steps together. A block device, and a file that its owner has extended, are measured by what
//! the kernel knows of them. Of a file on FUSE or the network it may know an old length,
//! and may wait for a server to learn another: there, and on each file system that is not
//! known to keep lengths in the kernel, a second ring asks ([`measure`](super::measure)).
//! Without io_uring those take no new size: only a wait could tell.
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
use super::raw_io::{Buffers, LengthKeeper, Ring, device_bytes, length_keeper};
use super::{Disk, SECTOR_BYTES};

/// How long the file system gets for a new size: to say how long the file is, and to extend it.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The one token of the ring.
const TOKEN: usize = 0;

/// Why a disk keeps its size.
#[derive(Debug, thiserror::Error)]
pub enum GrowthError {
    /// The requested length is below the present one.
    #[error("it has {now} bytes and cannot become shorter")]
    Shorter {
        /// Its length.
        now: u64,
    },
    /// Part of a block at its end.
    #[error("{wanted} bytes are not a multiple of its blocks of {block} bytes")]
    PartOfABlock {
        /// What was requested.
        wanted: u64,
        /// Its logical block.
        block: u64,
    },
    /// The size was not found as requested, and only the owner can extend it.
    #[error("its {kind} has {found} bytes: extend it first")]
    Found {
        /// `device` or `file`.
        kind: &'static str,
        /// How long it is.
        found: u64,
    },
    /// Without io_uring, finding the length may block.
    #[error(
        "its file is on a file system that may have to be waited for, which takes io_uring: \
         extend it and start again"
    )]
    Unmeasured,
    /// The file system does not know fallocate(2).
    #[error("its file system cannot extend it: run `truncate -s` on it, then set the size again")]
    Unsupported,
    /// The file system did not report the length of the file in time. Nothing was begun.
    #[error(
        "its file system did not answer within 1 s how long its file is: the disk and its file \
         keep their size; set the size again later"
    )]
    MeasurementTimeout,
    /// The file system did not extend the file in time, or still works on the previous call.
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
    /// Closed when the process ends: close(2) may wait for the file system too.
    file: ManuallyDrop<File>,
    block: BlockSize,
    kind: StorageKind,
    /// `None` for a device, a read-only disk, or a system without io_uring.
    allocation: Option<Hung<Ring>>,
    /// `None` in the same cases, or if the kernel knows the length.
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
    /// A server may know another length, or may not answer.
    Remote,
}

impl StorageKind {
    fn of(file: &File) -> io::Result<Self> {
        Ok(if file.metadata()?.file_type().is_block_device() {
            Self::Device
        } else {
            match length_keeper(file) {
                LengthKeeper::Kernel => Self::Local,
                LengthKeeper::Server => Self::Remote,
            }
        })
    }
}

impl Growth {
    /// For `disk`, before this thread is confined.
    pub fn new(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        let kind = StorageKind::of(&file)?;
        Ok(Self::of_kind(disk, file, kind))
    }

    fn of_kind(disk: &Disk, file: File, kind: StorageKind) -> Self {
        let extends = kind != StorageKind::Device && disk.is_writable();
        let allocation = extends.then(|| Ring::for_allocation(&file).ok());
        let measurement = (kind == StorageKind::Remote).then(|| Measurement::new(&file).ok());
        Self {
            block: disk.block(),
            allocation: allocation.flatten().map(Hung::new),
            measurement: measurement.flatten().map(Hung::new),
            file: ManuallyDrop::new(file),
            kind,
        }
    }

    /// For a file as on the network.
    #[cfg(test)]
    pub(super) fn of_remote(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        Ok(Self::of_kind(disk, file, StorageKind::Remote))
    }

    /// For a file as on a file system whose kernel keeps the length.
    #[cfg(test)]
    pub(super) fn of_local(disk: &Disk) -> io::Result<Self> {
        let file = disk.file().try_clone()?;
        Ok(Self::of_kind(disk, file, StorageKind::Local))
    }

    /// For a file system that has not answered an earlier measurement or extension.
    #[cfg(test)]
    pub(super) fn waiting(mut self, measures: bool) -> Self {
        if let Some(measurement) = self.measurement.as_mut().filter(|_| measures) {
            measurement.waits = true;
        } else if let Some(allocation) = &mut self.allocation {
            allocation.waits = true;
        }
        self
    }

    /// For a kernel without io_uring.
    #[cfg(test)]
    pub(super) fn without_rings(mut self) -> Self {
        (self.allocation, self.measurement) = (None, None);
        self
    }

    /// Extends a disk of `now` bytes to `wanted` bytes; success means exactly that length.
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
        let deadline = Instant::now() + TIMEOUT;
        let (kind, found) = match self.kind {
            StorageKind::Device => ("device", device_bytes(&self.file)?),
            _ => ("file", self.file_bytes(deadline)?),
        };
        if found >= wanted {
            return Ok(());
        }
        match &mut self.allocation {
            Some(allocation) => allocation.allocate_last(wanted, deadline),
            None => Err(GrowthError::Found { kind, found }),
        }
    }

    fn file_bytes(&mut self, deadline: Instant) -> Result<u64, GrowthError> {
        let measurement = match (&mut self.measurement, self.kind) {
            (Some(measurement), _) => measurement,
            (None, StorageKind::Remote) => return Err(GrowthError::Unmeasured),
            (None, _) => {
                let bytes = seek(&*self.file, SeekFrom::End(0)).map_err(io::Error::from)?;
                return Ok(bytes);
            }
        };
        let bytes = measurement.call(
            deadline,
            |ring| ring.ask(),
            |ring| ring.answer(),
            |ring| Some(ring.event()),
        )?;
        bytes.ok_or(GrowthError::MeasurementTimeout)
    }
}

impl Hung<Ring> {
    /// Allocates the last sector of `bytes` bytes.
    fn allocate_last(&mut self, bytes: u64, deadline: Instant) -> Result<(), GrowthError> {
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
            // Submits again what the kernel had no memory for.
            let _ = ring.submit();
            ring.finished().map(|Finished { result, .. }| result)
        };
        let done = self.call(deadline, start, finished, |ring| ring.event())?;
        done.map(drop).ok_or(GrowthError::Timeout)
    }
}

impl<R> Hung<R> {
    fn new(ring: R) -> Self {
        Self {
            ring: ManuallyDrop::new(ring),
            waits: false,
        }
    }

    /// Makes a call, unless the previous one has not ended, and waits for its result; `None` if
    /// there is none before the deadline.
    fn call<T>(
        &mut self,
        deadline: Instant,
        start: impl FnOnce(&mut R) -> io::Result<()>,
        finished: impl Fn(&mut R) -> Option<io::Result<T>>,
        event: impl Fn(&R) -> Option<BorrowedFd<'_>>,
    ) -> Result<Option<T>, GrowthError> {
        // The result of the previous call belonged to an earlier request.
        if self.waits && finished(&mut self.ring).is_none() {
            return Ok(None);
        }
        self.waits = false;
        start(&mut self.ring)?;
        self.waits = true;
        loop {
            if let Some(result) = finished(&mut self.ring) {
                self.waits = false;
                return result.map(Some).map_err(failed);
            }
            let left = deadline
                .checked_duration_since(Instant::now())
                .and_then(|left| Timespec::try_from(left).ok());
            let (Some(left), Some(event)) = (left, event(&self.ring)) else {
                return Ok(None);
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_call_has_what_earlier_ones_left_of_the_time() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty());
        let mut hung = Hung::new(event.expect("an event"));
        let passed = Instant::now();
        let ended = hung.call(
            passed,
            |_| Ok(()),
            |_| None::<io::Result<()>>,
            |event| Some(event.as_fd()),
        );
        assert!(matches!(ended, Ok(None)));
        assert!(hung.waits, "the call may still be answered");
    }
}
