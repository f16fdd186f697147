//! Open files and directories of the tree, and devices.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::sync::SpinLock;

use super::tree::Node;
use super::{Bytes, File, Status};
use crate::errno::{Errno, Result};

/// An open regular file.
pub(crate) struct Regular {
    pub(crate) node: Arc<Node>,
    pub(crate) bytes: Bytes,
    pub(crate) position: AtomicU64,
    /// Held from a look at the position to its change: threads that share the file
    /// neither read nor write the same bytes.
    pub(crate) turn: SpinLock<()>,
    pub(crate) appends: bool,
    pub(crate) path: String,
}

impl File for Regular {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let _turn = self.turn.lock();
        let at = self.position.load(Ordering::Relaxed);
        let count = self.bytes.read(at, to);
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        self.node.touch();
        let _turn = self.turn.lock();
        if self.appends {
            let end = self.bytes.append(from)?;
            self.position.store(end, Ordering::Relaxed);
            return Ok(from.len());
        }
        let at = self.position.load(Ordering::Relaxed);
        let count = self.bytes.write(at, from)?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        Ok(self.bytes.read(offset, to))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<usize> {
        self.node.touch();
        self.bytes.write(offset, from)
    }

    fn status(&self) -> Status {
        self.node.status()
    }

    fn name(&self) -> String {
        self.path.clone()
    }
}

/// An open directory.
pub(crate) struct Directory {
    pub(crate) node: Arc<Node>,
    /// How many entries have been listed.
    pub(crate) position: AtomicU64,
    pub(crate) path: String,
}

impl File for Directory {
    fn read(&self, _to: &mut [u8]) -> Result<usize> {
        Err(Errno::EISDIR)
    }

    fn status(&self) -> Status {
        self.node.status()
    }

    fn name(&self) -> String {
        self.path.clone()
    }
}

/// `/dev/zero`.
pub(crate) struct Zero;

impl File for Zero {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        to.fill(0);
        Ok(to.len())
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        Ok(from.len())
    }

    fn status(&self) -> Status {
        Status::device(1, 5)
    }
}

/// `/dev/urandom`.
pub(crate) struct Random;

impl File for Random {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        tare_libos::random::fill(to);
        Ok(to.len())
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        Ok(from.len())
    }

    fn status(&self) -> Status {
        Status::device(1, 9)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Kind;
    use super::*;

    #[test]
    fn threads_that_share_a_file_write_behind_each_other() {
        const WRITES: u64 = 10_000;
        let bytes = Bytes::new(alloc::vec::Vec::new());
        let file = Regular {
            node: Node::new(Kind::File(bytes.clone()), 0o644, 0),
            bytes: bytes.clone(),
            position: AtomicU64::new(0),
            turn: SpinLock::new(()),
            appends: false,
            path: String::new(),
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..WRITES).for_each(|_| assert_eq!(file.write(b"x"), Ok(1))));
            }
        });
        assert_eq!(bytes.len(), 2 * WRITES);
    }
}
