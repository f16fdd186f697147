//! [`Ext4Volume`]: the calls, under one lock. It is held while a call waits for the disk; other
//! threads that call meanwhile sleep.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use rsext4::{
    DirectoryCursor, DirectoryEntryType, Ext4, Ext4Error, Ext4ErrorKind, Ext4Result, Ext4Timestamp,
    FileExtentState, FileExtentTarget, FileName, FilePermissions, InodeInfo, InodeMetadataUpdate,
    InodeNumber, MountedServices, MutationContext, NoopObserver, PreallocationOptions,
    RenameOptions, SpecialInodeKind, UnlinkOutcome,
};
use tare_libos::block::Access;
use tare_libos::sync::{Mutex, SpinLock};
use tare_libos::thread::Thread;
use tare_linux::volume::{Attributes, Errno, Found, Kind, New, Result, Sought, Space, Volume};
use tare_program::names;

use crate::cache::Requests;
use crate::device::Device;
use crate::error::errno;

/// The mounted file system.
pub(crate) type Mounted = Ext4<Device, MountedServices<(), NoopObserver, ()>>;

/// Everything is root's; the program's mask is applied before.
const CALLER: MutationContext = MutationContext::new(0, 0, 0, 0);
/// Entries of a directory that are read at a time.
const LISTED: usize = 1024;
/// Longest target of a link.
const PATH_MAX: u64 = 4096;
/// Bytes of a write that are retried one block after the other where there is no room for all.
const BLOCK: usize = 1024;
/// Bytes of a file that are freed together.
const FREED: u64 = 16 << 20;

/// An ext4 file system on a disk.
pub struct Ext4Volume {
    root: u64,
    /// Of the disk.
    bytes: u64,
    access: Access,
    /// None once its use has ended.
    state: Mutex<Option<Mounted>>,
    /// Inodes without a name that the program still uses.
    nameless: SpinLock<BTreeSet<u64>>,
    /// Inodes without a name that it does not use any more.
    forgotten: SpinLock<Vec<u64>>,
    /// Something was changed since the last time that all became durable.
    is_dirty: AtomicBool,
    writer: SpinLock<Option<Thread>>,
    requests: Arc<Requests>,
}

impl Ext4Volume {
    pub(crate) fn new(
        mounted: Mounted,
        bytes: u64,
        access: Access,
        requests: Arc<Requests>,
    ) -> Self {
        Self {
            root: mounted.root_inode().as_u64(),
            bytes,
            access,
            state: Mutex::new(Some(mounted)),
            nameless: SpinLock::new(BTreeSet::new()),
            forgotten: SpinLock::new(Vec::new()),
            is_dirty: AtomicBool::new(false),
            writer: SpinLock::new(None),
            requests,
        }
    }

    /// Requests to the disk since the mount.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Acquire)
    }

    pub(crate) fn set_writer(&self, thread: Thread) {
        *self.writer.lock() = Some(thread);
    }

    /// Runs a call that changes nothing, except a time of access.
    fn with<R>(&self, act: impl FnOnce(&mut Mounted) -> Ext4Result<R>) -> Result<R> {
        let mut state = self.state.lock();
        let mounted = state.as_mut().ok_or(Errno::EIO)?;
        act(mounted).map_err(noted)
    }

    /// Runs a call that changes something.
    fn change<R>(&self, act: impl FnOnce(&mut Mounted) -> Ext4Result<R>) -> Result<R> {
        if self.access == Access::ReadOnly {
            return Err(Errno::EROFS);
        }
        let changed = self.with(|mounted| {
            self.free_forgotten(mounted);
            act(mounted)
        });
        self.note_change();
        changed
    }

    fn note_change(&self) {
        if !self.is_dirty.swap(true, Ordering::AcqRel) {
            let writer = self.writer.lock().clone();
            if let Some(writer) = writer {
                writer.unpark();
            }
        }
    }

    /// The inode of a directory. One that is damaged may be longer than the disk, and a search of
    /// its billions of missing blocks would take as long as the program's life.
    fn directory(&self, mounted: &mut Mounted, inode: u64) -> Ext4Result<InodeNumber> {
        let inode = number(inode)?;
        if mounted.inode(inode)?.size > self.bytes {
            return Err(Ext4Error::corrupted().with_operation("directory:longer_than_disk"));
        }
        Ok(inode)
    }

    /// The inode of a directory that gets a name, ENOENT if it was removed.
    fn named_directory(&self, mounted: &mut Mounted, inode: u64) -> Ext4Result<InodeNumber> {
        if self.nameless.lock().contains(&inode) {
            return Err(Ext4Error::not_found());
        }
        self.directory(mounted, inode)
    }

    /// Frees what has no name and is not used any more.
    fn free_forgotten(&self, mounted: &mut Mounted) {
        let forgotten = core::mem::take(&mut *self.forgotten.lock());
        forgotten.into_iter().for_each(|inode| free(mounted, inode));
    }

    fn note_unlinked(&self, outcome: UnlinkOutcome) {
        if outcome.requires_reap() {
            self.nameless.lock().insert(outcome.inode.as_u64());
        }
    }
}

fn free(mounted: &mut Mounted, inode: u64) {
    let freed = number(inode).and_then(|inode| {
        empty(mounted, inode)?;
        mounted.reap_unlinked_inode(inode)
    });
    if let Err(error) = freed {
        log::warn!("cannot free inode {inode}, which has no name: {error}");
    }
}

/// Takes the blocks of a file in steps. `rsext4` 0.9.2 frees those of an inode by the reader's view,
/// which has no preallocated ones, keeps a record of each in memory and frees all in one transaction
/// of the journal, which a file in many block groups does not fit.
fn empty(mounted: &mut Mounted, inode: InodeNumber) -> Ext4Result<()> {
    let info = mounted.inode(inode)?;
    if info.file_type() != DirectoryEntryType::RegularFile || info.blocks == 0 {
        return Ok(());
    }
    let mut bytes = info.size;
    if bytes == 0 {
        // Blocks behind its end: a change to the same length takes none.
        bytes = 1;
        mounted.truncate_inode(inode, bytes)?;
    }
    while bytes > FREED {
        bytes -= FREED;
        mounted.truncate_inode(inode, bytes)?;
    }
    mounted.truncate_inode(inode, 0)
}

/// Whether a new name of a file in the same directory may have met a directory that had to grow.
/// `rsext4` 0.9.2 looks the old name up before and removes it at that place, from which the growth
/// has moved it.
fn may_have_grown(
    mounted: &mut Mounted,
    source: (InodeNumber, FileName<'_>),
    target: (InodeNumber, FileName<'_>),
) -> bool {
    source.0 == target.0 && matches!(mounted.lookup_child(target.0, target.1), Ok(None))
}

/// Makes a directory as large as it must be for a name: the name is there for a moment.
fn grow(mounted: &mut Mounted, directory: InodeNumber, name: FileName<'_>) -> Ext4Result<()> {
    let bits = permissions(0o600)?;
    let kind = SpecialInodeKind::Fifo;
    mounted.create_special_inode(CALLER, directory, name, bits, kind)?;
    let outcome = mounted.unlink(directory, name)?;
    if outcome.requires_reap() {
        mounted.reap_unlinked_inode(outcome.inode)?;
    }
    Ok(())
}

/// The number that a program gets, with a warning where the disk is at fault.
fn noted(error: Ext4Error) -> Errno {
    if error.is_corruption() || error.kind() == Ext4ErrorKind::Io {
        log::warn!("the disk's file system: {error}");
    }
    errno(error)
}

fn number(inode: u64) -> Ext4Result<InodeNumber> {
    InodeNumber::from_u64(inode)
}

fn name(bytes: &[u8]) -> Ext4Result<FileName<'_>> {
    FileName::new(bytes)
}

fn kind(of: DirectoryEntryType) -> Kind {
    match of {
        DirectoryEntryType::RegularFile => Kind::File,
        DirectoryEntryType::Directory => Kind::Directory,
        DirectoryEntryType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

fn found(info: &InodeInfo) -> Found {
    Found {
        inode: info.number.as_u64(),
        kind: kind(info.file_type()),
    }
}

fn permissions(bits: u32) -> Ext4Result<FilePermissions> {
    FilePermissions::new((bits & 0o7777) as u16)
}

fn timestamp(ns: u64) -> Ext4Timestamp {
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    Ext4Timestamp::new(seconds as i64, ns as u32)
}

impl Volume for Ext4Volume {
    fn root(&self) -> u64 {
        self.root
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn look_up(&self, directory: u64, text: &str) -> Result<Option<Found>> {
        self.with(|mounted| {
            let directory = self.directory(mounted, directory)?;
            let info = mounted.lookup_child(directory, name(&names::bytes(text))?)?;
            Ok(info.as_ref().map(found))
        })
    }

    fn attributes(&self, inode: u64) -> Result<Attributes> {
        self.with(|mounted| {
            let info = mounted.inode(number(inode)?)?;
            let ns = |seconds: u32| u64::from(seconds) * 1_000_000_000;
            Ok(Attributes {
                mode: info.mode.into(),
                links: info.links.into(),
                owner: (info.uid, info.gid),
                bytes: info.size,
                allocated: info.blocks.saturating_mul(512),
                times_ns: [ns(info.atime), ns(info.mtime), ns(info.ctime)],
            })
        })
    }

    fn target(&self, link: u64) -> Result<String> {
        self.with(|mounted| {
            let link = number(link)?;
            let bytes = mounted.inode(link)?.size;
            if bytes > PATH_MAX {
                // Before `rsext4` takes memory for it; the upper half of the length is not known.
                return Err(Ext4Error::corrupted().with_operation("link:length"));
            }
            let mut target = vec![0; bytes as usize];
            let count = mounted.read_inode(link, 0, &mut target)?;
            target.truncate(count);
            Ok(names::text(target))
        })
    }

    fn list(&self, directory: u64) -> Result<Vec<(String, Found)>> {
        self.with(|mounted| {
            let directory = self.directory(mounted, directory)?;
            let mut listed = Vec::new();
            let mut cursor = DirectoryCursor::Start;
            loop {
                let entries = mounted.read_directory(directory, cursor, LISTED)?;
                let Some(last) = entries.last() else {
                    return Ok(listed);
                };
                cursor = last.next_cursor;
                for entry in entries {
                    let found = Found {
                        inode: entry.inode.as_u64(),
                        kind: kind(entry.file_type),
                    };
                    if !matches!(entry.name.as_slice(), b"." | b"..") {
                        listed.push((names::text(entry.name), found));
                    }
                }
                if cursor == DirectoryCursor::End {
                    return Ok(listed);
                }
            }
        })
    }

    fn make(&self, directory: u64, text: &str, new: New<'_>) -> Result<Found> {
        self.change(|mounted| {
            let bytes = names::bytes(text);
            let name = name(&bytes)?;
            let directory = self.named_directory(mounted, directory)?;
            if mounted.lookup_child(directory, name)?.is_some() {
                return Err(Ext4Error::already_exists());
            }
            let info = match new {
                New::File(bits) => {
                    mounted.create_regular_file(CALLER, directory, name, permissions(bits)?)
                }
                New::Directory(bits) => {
                    mounted.create_directory(CALLER, directory, name, permissions(bits)?)
                }
                New::Link(target) => {
                    mounted.create_symlink(CALLER, directory, name, &names::bytes(target))
                }
                New::Socket(bits) => {
                    let (bits, kind) = (permissions(bits)?, SpecialInodeKind::Socket);
                    mounted.create_special_inode(CALLER, directory, name, bits, kind)
                }
            };
            info.as_ref().map(found).map_err(|error| *error)
        })
    }

    fn link(&self, inode: u64, directory: u64, text: &str) -> Result<()> {
        self.change(|mounted| {
            if self.nameless.lock().contains(&inode) {
                return Err(Ext4Error::not_found());
            }
            let directory = self.named_directory(mounted, directory)?;
            mounted.hard_link(number(inode)?, directory, name(&names::bytes(text))?)?;
            Ok(())
        })
    }

    fn unlink(&self, directory: u64, text: &str) -> Result<()> {
        self.change(|mounted| {
            let directory = self.directory(mounted, directory)?;
            let outcome = mounted.unlink(directory, name(&names::bytes(text))?)?;
            self.note_unlinked(outcome);
            Ok(())
        })
    }

    fn remove_directory(&self, directory: u64, text: &str) -> Result<()> {
        self.change(|mounted| {
            let directory = self.directory(mounted, directory)?;
            let outcome = mounted.remove_empty_directory(directory, name(&names::bytes(text))?)?;
            self.note_unlinked(outcome);
            Ok(())
        })
    }

    fn rename(&self, from: (u64, &str), to: (u64, &str)) -> Result<()> {
        self.change(|mounted| {
            let options = RenameOptions::REPLACE;
            let [old, new] = [from.1, to.1].map(names::bytes);
            let source = (self.directory(mounted, from.0)?, name(&old)?);
            let target = (self.named_directory(mounted, to.0)?, name(&new)?);
            let renamed = mounted.rename(source.0, source.1, target.0, target.1, options);
            let outcome = match renamed {
                Err(_) if may_have_grown(mounted, source, target) => {
                    grow(mounted, target.0, target.1)?;
                    mounted.rename(source.0, source.1, target.0, target.1, options)?
                }
                outcome => outcome?,
            };
            if let Some(replaced) = outcome.replaced {
                self.note_unlinked(replaced);
            }
            Ok(())
        })
    }

    fn read(&self, inode: u64, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.with(|mounted| {
            let inode = number(inode)?;
            let rest = mounted.inode(inode)?.size.saturating_sub(offset);
            let count = rest.min(to.len() as u64) as usize;
            if count == 0 {
                return Ok(0);
            }
            mounted.read_inode(inode, offset, &mut to[..count])
        })
    }

    fn write(&self, inode: u64, offset: u64, from: &[u8]) -> Result<usize> {
        self.change(|mounted| write(mounted, number(inode)?, offset, from))
    }

    fn append(&self, inode: u64, from: &[u8]) -> Result<(u64, usize)> {
        self.change(|mounted| {
            let inode = number(inode)?;
            let end = mounted.inode(inode)?.size;
            Ok((end, write(mounted, inode, end, from)?))
        })
    }

    fn set_len(&self, inode: u64, bytes: u64) -> Result<()> {
        self.change(|mounted| mounted.truncate_inode(number(inode)?, bytes))
    }

    fn allocate(&self, inode: u64, offset: u64, bytes: u64) -> Result<()> {
        self.change(|mounted| {
            let options = PreallocationOptions::EXTEND_SIZE;
            mounted.preallocate_inode(number(inode)?, offset, bytes, options)
        })
    }

    fn seek(&self, inode: u64, offset: u64, sought: Sought) -> Result<Option<u64>> {
        self.with(|mounted| {
            let inode = number(inode)?;
            let end = mounted.inode(inode)?.size;
            if offset >= end {
                return Ok(None);
            }
            let length = end - offset;
            let target = FileExtentTarget::Data;
            let map = mounted.inode_extents(inode, offset, length, target, usize::MAX)?;
            let mut at = offset;
            for extent in map.extents {
                if extent.state == FileExtentState::Unwritten {
                    continue;
                }
                let extent_end = extent.logical_start.saturating_add(extent.length);
                if extent_end <= at {
                    continue;
                }
                match sought {
                    Sought::Data => return Ok(Some(extent.logical_start.max(at).min(end))),
                    Sought::Hole if extent.logical_start > at => break,
                    Sought::Hole => at = extent_end,
                }
            }
            Ok((sought == Sought::Hole).then_some(at.min(end)))
        })
    }

    fn set_permissions(&self, inode: u64, bits: u32) -> Result<()> {
        self.update(inode, || {
            Ok(InodeMetadataUpdate {
                permissions: Some(permissions(bits)?),
                ..InodeMetadataUpdate::default()
            })
        })
    }

    fn set_owner(&self, inode: u64, owner: (u32, u32)) -> Result<()> {
        self.update(inode, || {
            Ok(InodeMetadataUpdate {
                owner: Some(owner),
                ..InodeMetadataUpdate::default()
            })
        })
    }

    fn set_times(&self, inode: u64, accessed: Option<u64>, modified: Option<u64>) -> Result<()> {
        self.update(inode, || {
            Ok(InodeMetadataUpdate {
                atime: accessed.map(timestamp),
                mtime: modified.map(timestamp),
                ..InodeMetadataUpdate::default()
            })
        })
    }

    fn space(&self) -> Result<Space> {
        self.with(|mounted| {
            let stats = mounted.statfs();
            Ok(Space {
                block_bytes: stats.block_size,
                blocks: (stats.total_blocks, stats.free_blocks),
                inodes: (stats.total_inodes.into(), stats.free_inodes.into()),
            })
        })
    }

    fn sync(&self) -> Result<()> {
        self.with(|mounted| {
            if self.access == Access::ReadWrite {
                self.free_forgotten(mounted);
            }
            // Before: what changes from now on waits for the lock, and is noted behind it.
            self.is_dirty.store(false, Ordering::Release);
            mounted.sync()
        })
    }

    fn forget(&self, inode: u64) {
        if self.nameless.lock().remove(&inode) {
            self.forgotten.lock().push(inode);
            self.note_change();
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        let Some(mut mounted) = state.take() else {
            return;
        };
        if self.access == Access::ReadWrite {
            self.free_forgotten(&mut mounted);
            // The program has ended, and with it the use of all.
            let nameless = core::mem::take(&mut *self.nameless.lock());
            nameless
                .into_iter()
                .for_each(|inode| free(&mut mounted, inode));
            // An unmount that is refused, as with an inode that could not be freed, writes nothing.
            if let Err(error) = mounted.sync() {
                log::warn!("cannot write the disk: {error}");
            }
        }
        if let Err(error) = mounted.unmount() {
            log::warn!("cannot unmount the disk: {error}");
        }
    }
}

impl Ext4Volume {
    fn update(
        &self,
        inode: u64,
        update: impl FnOnce() -> Ext4Result<InodeMetadataUpdate>,
    ) -> Result<()> {
        self.change(|mounted| {
            mounted.update_inode_metadata(number(inode)?, update()?)?;
            Ok(())
        })
    }
}

/// Writes as far as there is room; gives how many bytes.
fn write(mounted: &mut Mounted, inode: InodeNumber, offset: u64, from: &[u8]) -> Ext4Result<usize> {
    let no_space = match mounted.write_inode(inode, offset, from) {
        Ok(()) => return Ok(from.len()),
        Err(error) if error.kind() == Ext4ErrorKind::NoSpace => error,
        Err(error) => return Err(error),
    };
    // As Linux does: what fits is written. Parts end where blocks end.
    let mut done = 0;
    while done < from.len() {
        let at = offset + done as u64;
        let part = (BLOCK - (at % BLOCK as u64) as usize).min(from.len() - done);
        match mounted.write_inode(inode, at, &from[done..done + part]) {
            Ok(()) => done += part,
            Err(_) if done > 0 => break,
            Err(_) => return Err(no_space),
        }
    }
    Ok(done)
}
