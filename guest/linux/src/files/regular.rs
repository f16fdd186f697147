//! Open files and directories of the tree.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use tare_libos::sync::SpinLock;

use super::lock::Lock;
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
    pub(crate) appends: AtomicBool,
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
        if from.is_empty() {
            // The position stays, also of one that appends.
            return Ok(0);
        }
        self.node.touch();
        let _turn = self.turn.lock();
        if self.appends.load(Ordering::Relaxed) {
            let written = self.bytes.append(from)?;
            self.position.store(written.end, Ordering::Relaxed);
            return Ok((written.end - written.start) as usize);
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
        if self.appends.load(Ordering::Relaxed) {
            // As Linux does, against POSIX (`pwrite(2)`, bugs).
            let written = self.bytes.append(from)?;
            return Ok((written.end - written.start) as usize);
        }
        self.bytes.write(offset, from)
    }

    fn seek(&self, offset: i64, whence: u32) -> Result {
        let _turn = self.turn.lock();
        let at = match whence {
            SEEK_SET => moved(0, offset)?,
            SEEK_CUR => moved(self.position.load(Ordering::Relaxed), offset)?,
            SEEK_END => moved(self.bytes.len(), offset)?,
            // A negative offset is behind every end.
            SEEK_DATA => self.bytes.data_from(offset as u64).ok_or(Errno::ENXIO)?,
            SEEK_HOLE => self.bytes.hole_from(offset as u64).ok_or(Errno::ENXIO)?,
            _ => return Err(Errno::EINVAL),
        };
        self.position.store(at, Ordering::Relaxed);
        Ok(at)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn lock(&self) -> Option<Arc<Lock>> {
        Some(self.node.lock())
    }

    fn readable_bytes(&self) -> Result {
        let at = self.position.load(Ordering::Relaxed);
        // Below zero behind the end.
        Ok(self.bytes.len().wrapping_sub(at))
    }

    fn set_appends(&self, appends: bool) {
        self.appends.store(appends, Ordering::Relaxed);
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
    pub(crate) listing: SpinLock<Listing>,
    pub(crate) path: String,
}

/// How far a directory has been listed. Its names are taken at the begin, so that what a
/// program removes on its way moves no other name.
#[derive(Default)]
pub(crate) struct Listing {
    names: Vec<String>,
    /// The next of the names, behind `.` and `..`.
    position: u64,
}

/// An entry as `getdents64` gives it: its name, its node, the position behind it.
pub(crate) type Listed = (String, Arc<Node>, u64);

impl Directory {
    /// Calls `take` with the entries from the position on, until it refuses one; says
    /// whether it refused the first.
    pub(crate) fn list(&self, mut take: impl FnMut(&Listed) -> bool) -> Result<bool> {
        let mut listing = self.listing.lock();
        if listing.position == 0 {
            listing.names = self.node.entries()?.lock().keys().cloned().collect();
        }
        let first = listing.position;
        while let Some(name) = listing.name(listing.position) {
            let node = match listing.position {
                // A node does not know what is above it: its own inode stands for that too.
                0 | 1 => Some(self.node.clone()),
                _ => self.node.entries()?.lock().get(name).cloned(),
            };
            let behind = listing.position + 1;
            if let Some(node) = node
                && !take(&(name.into(), node, behind))
            {
                return Ok(listing.position == first);
            }
            listing.position = behind;
        }
        Ok(false)
    }
}

impl Listing {
    fn name(&self, position: u64) -> Option<&str> {
        match position {
            0 => Some("."),
            1 => Some(".."),
            _ => self.names.get(position as usize - 2).map(String::as_str),
        }
    }
}

impl File for Directory {
    fn read(&self, _to: &mut [u8]) -> Result<usize> {
        Err(Errno::EISDIR)
    }

    fn read_at(&self, _offset: u64, _to: &mut [u8]) -> Result<usize> {
        Err(Errno::EISDIR)
    }

    fn seek(&self, offset: i64, whence: u32) -> Result {
        let mut listing = self.listing.lock();
        let base = match whence {
            SEEK_SET => 0,
            SEEK_CUR => listing.position,
            _ => return Err(Errno::EINVAL),
        };
        listing.position = moved(base, offset)?;
        Ok(listing.position)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn lock(&self) -> Option<Arc<Lock>> {
        Some(self.node.lock())
    }

    fn status(&self) -> Status {
        self.node.status()
    }

    fn name(&self) -> String {
        self.path.clone()
    }
}

/// The position `offset` from `base` on, if Linux has such a one.
fn moved(base: u64, offset: i64) -> Result {
    let at = base.checked_add_signed(offset);
    at.filter(|&at| at <= i64::MAX as u64).ok_or(Errno::EINVAL)
}

/// The node of the tree that a file is, where it is one.
pub(crate) fn node_of(file: &dyn File) -> Option<&Arc<Node>> {
    let regular = file.as_kind::<Regular>().map(|file| &file.node);
    regular.or_else(|| file.as_kind::<Directory>().map(|file| &file.node))
}

#[cfg(test)]
mod tests {
    use super::super::tree::NodeKind;
    use super::*;

    #[test]
    fn threads_that_share_a_file_write_behind_each_other() {
        const WRITES: u64 = 10_000;
        let bytes = Bytes::new(&[]);
        let file = Regular {
            node: Node::new(NodeKind::File(bytes.clone()), 0o644, 0),
            bytes: bytes.clone(),
            position: AtomicU64::new(0),
            turn: SpinLock::new(()),
            appends: AtomicBool::new(false),
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
