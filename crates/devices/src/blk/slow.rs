//! Requests that are served at once on the I/O thread, through memory of the
//! monitor's own: buffers that O_DIRECT cannot take, and zeros for a file
//! system that cannot make them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::fdatasync;

use super::aligned::Aligned;
use super::io_engine::Durability;
use crate::GuestRam;
use crate::virtio::{Chain, QueueError};

/// Bytes copied at once.
const CHUNK: usize = 256 << 10;

/// Why a slow request failed.
#[derive(Debug)]
pub(super) enum SlowError {
    /// The guest's memory is not what it was.
    Queue(QueueError),
    /// The host's file.
    Host(io::Error),
}

impl From<QueueError> for SlowError {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl From<io::Error> for SlowError {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

/// Bytes after which a turn of the I/O loop ends: they are transferred while the device
/// is locked, and messages, settings and other queues wait.
const BYTES_PER_TURN: u64 = 1 << 20;

/// Aligned memory, made when it is first needed, and what this turn has used.
#[derive(Default)]
pub(super) struct Slow {
    memory: Option<Aligned>,
    bytes: u64,
}

impl Slow {
    /// A turn of the I/O loop begins.
    pub(super) fn begin_turn(&mut self) {
        self.bytes = 0;
    }

    /// Whether this turn has transferred what it may.
    pub(super) fn has_used_its_turn(&self) -> bool {
        self.bytes >= BYTES_PER_TURN
    }

    /// Reads `len` bytes at `offset` into the chain's writable buffers.
    pub(super) fn read(
        &mut self,
        file: &File,
        memory: &GuestRam,
        chain: &Chain,
        (offset, len): (u64, u64),
    ) -> Result<(), SlowError> {
        self.bytes += len;
        for (done, part) in chunks(len) {
            let bytes = &mut self.memory().as_mut_slice()[..part];
            file.read_exact_at(bytes, offset + done)?;
            chain.write(memory, done as usize, bytes)?;
        }
        Ok(())
    }

    /// Writes `len` bytes of the chain's readable buffers, from `skip` on, to
    /// `offset`.
    pub(super) fn write(
        &mut self,
        file: &File,
        memory: &GuestRam,
        (chain, skip): (&Chain, usize),
        (offset, len): (u64, u64),
        durability: Durability,
    ) -> Result<(), SlowError> {
        self.bytes += len;
        for (done, part) in chunks(len) {
            let bytes = &mut self.memory().as_mut_slice()[..part];
            chain.read(memory, skip + done as usize, bytes)?;
            file.write_all_at(bytes, offset + done)?;
        }
        Ok(make_durable(file, durability)?)
    }

    /// Writes `len` zeros to `offset`.
    pub(super) fn zero(
        &mut self,
        file: &File,
        (offset, len): (u64, u64),
        durability: Durability,
    ) -> io::Result<()> {
        let zeros = self.memory();
        zeros.as_mut_slice().fill(0);
        for (done, part) in chunks(len) {
            file.write_all_at(&zeros.as_slice()[..part], offset + done)?;
        }
        make_durable(file, durability)
    }

    fn memory(&mut self) -> &mut Aligned {
        self.memory.get_or_insert_with(|| Aligned::zeroed(CHUNK))
    }
}

fn make_durable(file: &File, durability: Durability) -> io::Result<()> {
    match durability {
        Durability::Cached => Ok(()),
        Durability::Durable => Ok(fdatasync(file)?),
    }
}

/// Parts of `len` bytes: what comes before, and length.
fn chunks(len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len)
        .step_by(CHUNK)
        .map(move |done| (done, (len - done).min(CHUNK as u64) as usize))
}
