//! The interface of what executes requests, and the engine that makes one system call after the
//! other.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, fallocate, fdatasync};

use super::raw_io::{self, Buffers};

/// An operation on the file. Offsets and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the buffers.
    Read {
        /// From where.
        offset: u64,
    },
    /// Write the buffers.
    Write {
        /// To where.
        offset: u64,
        /// When it is done.
        durability: Durability,
    },
    /// fdatasync(2).
    Flush,
    /// fallocate(2).
    Allocate {
        /// From where.
        offset: u64,
        /// How much.
        len: u64,
        /// What to do there.
        mode: FallocateFlags,
    },
}

/// When a write has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the host's page cache has it.
    Cached,
    /// When it is on the disk.
    Durable,
}

impl Durability {
    /// The flags of pwritev2(2).
    pub(super) fn flags(self) -> i32 {
        match self {
            Self::Cached => 0,
            Self::Durable => libc::RWF_DSYNC,
        }
    }
}

/// An operation that ended.
#[derive(Debug)]
pub struct Finished {
    /// As given to [`IoEngine::start`].
    pub token: usize,
    /// Bytes, or why not.
    pub result: io::Result<usize>,
    /// As given, not advanced.
    pub buffers: Buffers,
}

/// Executes operations on a disk. Called on the I/O thread; [`drain`](Self::drain)
/// on any.
pub trait IoEngine: Send {
    /// Begins `operation`, at the latest at the next [`submit`](Self::submit). `token` is below
    /// `MAX_IN_FLIGHT` and not in use.
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers);

    /// Submits to the kernel what was started; after an error the rest waits for the next call.
    fn submit(&mut self) -> io::Result<()>;

    /// The next operation that ended, in any order.
    fn finished(&mut self) -> Option<Finished>;

    /// Waits until an operation ended; returns at once when none is in flight.
    fn wait(&mut self);

    /// Waits for everything in flight and forgets how it ended.
    fn drain(&mut self);

    /// Becomes readable when operations end; `None`: they end in `submit`.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Clears the event.
    fn acknowledge(&mut self);

    /// When the next operation that has ended may be reported (by the device's clock), on a
    /// disk with its own latency.
    fn due_ns(&self) -> Option<u64> {
        None
    }
}

/// preadv, pwritev2, fdatasync and fallocate on the calling thread.
pub struct SyncIoEngine {
    file: File,
    started: VecDeque<(usize, Operation, Buffers)>,
    ended: VecDeque<Finished>,
}

impl SyncIoEngine {
    /// An engine on `file`.
    pub fn new(file: File) -> Self {
        Self {
            file,
            started: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    fn execute(&self, operation: Operation, buffers: &Buffers) -> io::Result<usize> {
        match operation {
            Operation::Read { offset } => raw_io::read_at(&self.file, buffers, offset),
            Operation::Write { offset, durability } => {
                raw_io::write_at(&self.file, buffers, offset, durability.flags())
            }
            Operation::Flush => Ok(fdatasync(&self.file).map(|()| 0)?),
            Operation::Allocate { offset, len, mode } => {
                Ok(fallocate(&self.file, mode, offset, len).map(|()| 0)?)
            }
        }
    }
}

impl IoEngine for SyncIoEngine {
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers) {
        self.started.push_back((token, operation, buffers));
    }

    fn submit(&mut self) -> io::Result<()> {
        while let Some((token, operation, buffers)) = self.started.pop_front() {
            let result = self.execute(operation, &buffers);
            self.ended.push_back(Finished {
                token,
                result,
                buffers,
            });
        }
        Ok(())
    }

    fn finished(&mut self) -> Option<Finished> {
        self.ended.pop_front()
    }

    fn wait(&mut self) {}

    fn drain(&mut self) {
        self.started.clear();
        self.ended.clear();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acknowledge(&mut self) {}
}
