//! Which engine a disk gets: io_uring, or system calls one after the other.

use std::io;

use super::io_engine::{IoEngine, SyncIoEngine};
use super::raw_io::Ring;
use super::{Disk, MAX_IN_FLIGHT};

/// An engine, and why it is not io_uring.
pub struct IoEngineChoice {
    /// The engine.
    pub engine: Box<dyn IoEngine>,
    /// Why requests are served one after the other, for people.
    pub refused: Option<io::Error>,
}

/// io_uring where the kernel allows it.
pub fn choose(disk: &Disk) -> io::Result<IoEngineChoice> {
    match Ring::new(disk.file(), MAX_IN_FLIGHT) {
        Ok(ring) => Ok(IoEngineChoice {
            engine: Box::new(ring),
            refused: None,
        }),
        Err(error) => Ok(IoEngineChoice {
            engine: Box::new(SyncIoEngine::new(disk.file().try_clone()?)),
            refused: Some(error),
        }),
    }
}
