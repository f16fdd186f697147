//! Open files and directories of the tree.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::{O_APPEND, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use tare_libos::sync::Mutex;

use super::held::Held;
use super::inotify;
use super::lock::Lock;
use super::node::{Listed as Named, Node};
use super::{File, Status};
use crate::errno::{Errno, Result};
use crate::volume::Sought;

/// An open regular file.
pub(crate) struct Regular {
    pub(crate) held: Held,
    pub(crate) position: AtomicU64,
    /// Held from a look at the position to its change: threads that share the file
    /// neither read nor write the same bytes.
    pub(crate) turn: Mutex<()>,
    pub(crate) appends: AtomicBool,
}

impl Regular {
    /// At its begin, with flags of `open`.
    pub(crate) fn new(held: Held, flags: u32) -> Self {
        Self {
            held,
            position: AtomicU64::new(0),
            turn: Mutex::new(()),
            appends: AtomicBool::new(flags & O_APPEND != 0),
        }
    }

    /// What of `from` may be written at an offset.
    fn unsealed<'a>(&self, offset: u64, from: &'a [u8]) -> Result<&'a [u8]> {
        if self.held.node.seals.get().is_err() {
            return Ok(from);
        }
        let length = self.held.node.len()?;
        let count = self.held.node.seals.may_write(offset, from.len(), length)?;
        Ok(&from[..count])
    }

    /// Writes at the end; gives where, and how many bytes.
    pub(crate) fn append(&self, from: &[u8]) -> Result<(u64, usize)> {
        self.held.node.touch();
        let from = self.unsealed(self.held.node.len()?, from)?;
        self.held.node.append(from)
    }
}

impl File for Regular {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let _turn = self.turn.lock();
        let at = self.position.load(Ordering::Relaxed);
        let count = self.held.node.read(at, to)?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        if from.is_empty() {
            // The position stays, also of one that appends.
            return Ok(0);
        }
        self.held.node.touch();
        let _turn = self.turn.lock();
        if self.appends.load(Ordering::Relaxed) {
            let (start, count) = self.append(from)?;
            self.position.store(start + count as u64, Ordering::Relaxed);
            return Ok(count);
        }
        let at = self.position.load(Ordering::Relaxed);
        let count = self.held.node.write(at, self.unsealed(at, from)?)?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.held.node.read(offset, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<usize> {
        self.held.node.touch();
        if self.appends.load(Ordering::Relaxed) {
            // As Linux does, against POSIX (`pwrite(2)`, bugs).
            return self.append(from).map(|(_, count)| count);
        }
        self.held.node.write(offset, self.unsealed(offset, from)?)
    }

    fn sync(&self) -> Result<()> {
        self.held.node.sync()
    }

    fn seek(&self, offset: i64, whence: u32) -> Result {
        let _turn = self.turn.lock();
        // A negative offset is behind every end.
        let seek = |sought| {
            self.held
                .node
                .seek(offset as u64, sought)?
                .ok_or(Errno::ENXIO)
        };
        let at = match whence {
            SEEK_SET => moved(0, offset)?,
            SEEK_CUR => moved(self.position.load(Ordering::Relaxed), offset)?,
            SEEK_END => moved(self.held.node.len()?, offset)?,
            SEEK_DATA => seek(Sought::Data)?,
            SEEK_HOLE => seek(Sought::Hole)?,
            _ => return Err(Errno::EINVAL),
        };
        self.position.store(at, Ordering::Relaxed);
        Ok(at)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn lock(&self) -> Option<Arc<Lock>> {
        Some(self.held.node.lock())
    }

    fn readable_bytes(&self) -> Result {
        let at = self.position.load(Ordering::Relaxed);
        // Below zero behind the end.
        Ok(self.held.node.len()?.wrapping_sub(at))
    }

    fn set_appends(&self, appends: bool) {
        self.appends.store(appends, Ordering::Relaxed);
    }

    fn status(&self) -> Result<Status> {
        self.held.node.status()
    }

    fn name(&self) -> String {
        self.held.path.clone()
    }
}

/// An open directory.
pub(crate) struct Directory {
    pub(crate) held: Held,
    pub(crate) listing: Mutex<Listing>,
}

/// How far a directory has been listed. Its names are taken at the begin, so that what a
/// program removes on its way moves no other name.
#[derive(Default)]
pub(crate) struct Listing {
    names: Vec<Named>,
    /// The next of the names, behind `.` and `..`.
    position: u64,
}

/// An entry as `getdents64` gives it: its name, inode and kind, and the position behind it.
pub(crate) type Listed<'a> = (&'a str, u64, u32, u64);

impl Directory {
    /// Calls `take` with the entries from the position on, until it refuses one; says
    /// whether it refused the first.
    pub(crate) fn list(&self, mut take: impl FnMut(Listed<'_>) -> bool) -> Result<bool> {
        let mut listing = self.listing.lock();
        if listing.position == 0 {
            listing.names = self.held.node.list()?;
        }
        let first = listing.position;
        while let Some((name, inode, kind)) = listing.entry(&self.held.node) {
            let behind = listing.position + 1;
            // In memory it costs little to leave out what was removed meanwhile.
            let is_gone = listing.position > 1
                && self.held.node.stored().is_none()
                && self.held.node.child(name)?.is_none();
            if !is_gone && !take((name, inode, kind, behind)) {
                return Ok(listing.position == first);
            }
            listing.position = behind;
        }
        Ok(false)
    }
}

impl Listing {
    /// The entry at the position.
    fn entry(&self, node: &Node) -> Option<(&str, u64, u32)> {
        // A node does not know what is above it: its own inode stands for that too.
        let own = (node.number(), node.mode_kind());
        match self.position {
            0 => Some((".", own.0, own.1)),
            1 => Some(("..", own.0, own.1)),
            _ => {
                let (name, inode, kind) = self.names.get(self.position as usize - 2)?;
                Some((name, *inode, *kind))
            }
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

    fn sync(&self) -> Result<()> {
        self.held.node.sync()
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
        Some(self.held.node.lock())
    }

    fn status(&self) -> Result<Status> {
        self.held.node.status()
    }

    fn name(&self) -> String {
        self.held.path.clone()
    }
}

/// The position `offset` from `base` on, if Linux has such a one.
fn moved(base: u64, offset: i64) -> Result {
    let at = base.checked_add_signed(offset);
    at.filter(|&at| at <= i64::MAX as u64).ok_or(Errno::EINVAL)
}

/// What an open file has of the tree, where it is of that.
pub(crate) fn held_of(file: &dyn File) -> Option<&Held> {
    let regular = file.as_kind::<Regular>().map(|file| &file.held);
    regular.or_else(|| file.as_kind::<Directory>().map(|file| &file.held))
}

/// Reports an event of an open file to its watches and those of its directory.
#[inline]
pub(crate) fn notify(file: &dyn File, event: u32) {
    if inotify::is_watching() {
        notify_watching(file, event);
    }
}

#[cold]
fn notify_watching(file: &dyn File, event: u32) {
    if let Some(held) = held_of(file) {
        held.notify(event);
    }
}

/// The node of the tree that a file is, where it is one.
pub(crate) fn node_of(file: &dyn File) -> Option<&Arc<Node>> {
    held_of(file).map(|held| &held.node)
}

#[cfg(test)]
mod tests {
    use super::super::Bytes;
    use super::*;

    #[test]
    fn threads_that_share_a_file_write_behind_each_other() {
        const WRITES: u64 = 10_000;
        let bytes = Bytes::new(&[]);
        let node = Node::file(bytes.clone(), 0o644);
        let file = Regular::new(Held::new(node, String::new(), None), 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..WRITES).for_each(|_| assert_eq!(file.write(b"x"), Ok(1))));
            }
        });
        assert_eq!(bytes.len(), 2 * WRITES);
    }
}
