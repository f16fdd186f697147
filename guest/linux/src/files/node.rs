//! [`Node`], what is at a path: in memory, or on a volume (`stored`).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFREG, S_IFSOCK};
use tare_libos::sync::SpinLock;
use tare_program::names;
use tare_program::offered::KernelFile;

use super::lock::Lock;
use super::seals::Seals;
use super::stored::{Mount, Stored};
use super::unix::Named;
use super::{Bytes, Device, Status};
use crate::errno::{Errno, Result};
use crate::volume::{Kind, New, Sought, Space};

/// What is at a path.
pub(crate) struct Node {
    inode: u64,
    permissions: AtomicU32,
    modified_ns: AtomicU64,
    /// Names that lead to a file.
    links: AtomicU32,
    /// How often it is open.
    opens: AtomicU32,
    /// Who locked it (`flock(2)`), made by the first who does.
    lock: SpinLock<Option<Arc<Lock>>>,
    pub(crate) seals: Seals,
    pub(crate) kind: NodeKind,
}

/// What a node is.
pub(crate) enum NodeKind {
    File(Content),
    Directory(Entries),
    Link {
        target: String,
        stored: Option<Stored>,
    },
    Device(Device),
    /// A file that is written when it is opened.
    Kernel(KernelFile),
    /// The name of a socket.
    Socket {
        named: Named,
        stored: Option<Stored>,
    },
    /// A device, a pipe or a socket on a volume.
    Special(Stored),
}

impl NodeKind {
    /// An empty directory in memory.
    pub(crate) const fn no_names() -> Self {
        Self::Directory(Entries::Memory(SpinLock::new(BTreeMap::new())))
    }

    /// A link in memory.
    pub(crate) fn link(target: &str) -> Self {
        Self::Link {
            target: target.into(),
            stored: None,
        }
    }
}

/// Where a file's bytes are.
pub(crate) enum Content {
    Memory(Bytes),
    Stored(Stored),
}

/// The entries of a directory in memory.
pub(crate) type Names = BTreeMap<String, Arc<Node>>;

/// Where a directory's entries are.
pub(crate) enum Entries {
    Memory(SpinLock<Names>),
    Stored(Stored),
}

/// A name of a directory, for `getdents64`: its inode, and its kind as in a mode.
pub(crate) type Listed = (String, u64, u32);

impl Node {
    pub(crate) fn new(kind: NodeKind, permissions: u32, modified_ns: u64) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(2);
        Arc::new(Self {
            inode: NEXT.fetch_add(1, Ordering::Relaxed),
            permissions: AtomicU32::new(permissions & 0o7777),
            modified_ns: AtomicU64::new(modified_ns),
            links: AtomicU32::new(1),
            opens: AtomicU32::new(0),
            lock: SpinLock::new(None),
            seals: Seals::none(),
            kind,
        })
    }

    pub(crate) fn directory() -> Arc<Self> {
        Self::new(NodeKind::no_names(), 0o755, 0)
    }

    /// An empty file in memory that was made now.
    pub(crate) fn file(bytes: Bytes, permissions: u32) -> Arc<Self> {
        let kind = NodeKind::File(Content::Memory(bytes));
        Self::new(kind, permissions, tare_hal::clock::wall_ns())
    }

    /// Where it is on a volume.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        match &self.kind {
            NodeKind::File(Content::Stored(stored))
            | NodeKind::Directory(Entries::Stored(stored))
            | NodeKind::Special(stored) => Some(stored),
            NodeKind::Link { stored, .. } | NodeKind::Socket { stored, .. } => stored.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn status(&self) -> Result<Status> {
        if let Some(stored) = self.stored() {
            return stored.status();
        }
        let (kind, bytes, allocated, links) = match &self.kind {
            NodeKind::File(Content::Memory(bytes)) => {
                let links = self.links.load(Ordering::Relaxed);
                (S_IFREG, bytes.len(), bytes.allocated(), links)
            }
            NodeKind::Directory(Entries::Memory(entries)) => {
                (S_IFDIR, 4096, 4096, 2 + entries.lock().len() as u32)
            }
            NodeKind::Link { target, .. } => (S_IFLNK, names::bytes(target).len() as u64, 0, 1),
            NodeKind::Device(device) => {
                let (major, minor) = device.numbers();
                return Ok(Status::device(major, minor));
            }
            NodeKind::Kernel(_) => (S_IFREG, 0, 0, 1),
            _ => (S_IFSOCK, 0, 0, 1),
        };
        Ok(Status {
            inode: self.inode,
            mode: kind | self.permissions.load(Ordering::Relaxed),
            links,
            bytes,
            allocated,
            modified_ns: self.modified_ns.load(Ordering::Relaxed),
            ..Status::default()
        })
    }

    pub(crate) fn set_permissions(&self, permissions: u32) -> Result<()> {
        if let Some(stored) = self.stored() {
            return stored.volume().set_permissions(stored.inode, permissions);
        }
        let was = self.permissions.load(Ordering::Relaxed);
        self.seals.may_change_mode(was, permissions)?;
        self.permissions
            .store(permissions & 0o7777, Ordering::Relaxed);
        Ok(())
    }

    /// Owner and group, each where given; in memory everything is root's.
    pub(crate) fn set_owner(&self, owner: Option<u32>, group: Option<u32>) -> Result<()> {
        let Some(stored) = self.stored() else {
            return Ok(());
        };
        let was = stored.volume().attributes(stored.inode)?.owner;
        let owner = (owner.unwrap_or(was.0), group.unwrap_or(was.1));
        stored.volume().set_owner(stored.inode, owner)
    }

    /// Notes that its content changes; a volume does that by itself.
    pub(crate) fn touch(&self) {
        if self.stored().is_none() {
            let now = tare_hal::clock::wall_ns();
            self.modified_ns.store(now, Ordering::Relaxed);
        }
    }

    /// Sets times of access and change, nanoseconds since 1970, where given; in memory there
    /// is only that of change.
    pub(crate) fn set_times(&self, accessed: Option<u64>, modified: Option<u64>) -> Result<()> {
        if let Some(stored) = self.stored() {
            let volume = stored.volume();
            return volume.set_times(stored.inode, accessed, modified);
        }
        if let Some(ns) = modified {
            self.modified_ns.store(ns, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that a name of it in memory came.
    pub(crate) fn link(&self) {
        self.links.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a name of it in memory went.
    pub(crate) fn unlink(&self) {
        self.links.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes that it was opened once more.
    pub(crate) fn open(&self) {
        self.opens.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes one [`open`](Self::open) back.
    pub(crate) fn close(&self) {
        self.opens.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    /// Whether a name leads to it; so where a volume does not know.
    pub(crate) fn has_name(&self) -> bool {
        match self.stored() {
            Some(stored) => stored.status().map_or(true, |status| status.links > 0),
            None => self.links.load(Ordering::Acquire) > 0,
        }
    }

    /// Its lock.
    pub(crate) fn lock(&self) -> Arc<Lock> {
        self.lock.lock().get_or_insert_with(Arc::default).clone()
    }

    /// May it be executed?
    pub(crate) fn is_executable(&self) -> Result<bool> {
        Ok(self.is_directory() || self.status()?.mode & 0o111 != 0)
    }

    /// EROFS for what is on a volume that only may be read.
    pub(crate) fn may_change(&self) -> Result<()> {
        match self.stored() {
            Some(stored) if stored.volume().is_read_only() => Err(Errno::EROFS),
            _ => Ok(()),
        }
    }

    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.kind, NodeKind::Directory(_))
    }

    /// The entries of a directory in memory; EXDEV for one of a volume.
    pub(crate) fn names(&self) -> Result<&SpinLock<Names>> {
        match &self.kind {
            NodeKind::Directory(Entries::Memory(entries)) => Ok(entries),
            NodeKind::Directory(Entries::Stored(_)) => Err(Errno::EXDEV),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What a name of a directory leads to.
    pub(crate) fn child(&self, name: &str) -> Result<Option<Arc<Self>>> {
        match &self.kind {
            NodeKind::Directory(Entries::Memory(entries)) => Ok(entries.lock().get(name).cloned()),
            NodeKind::Directory(Entries::Stored(stored)) => stored.child(name),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What a name leads to, or a new file with these permissions; whether it is new.
    pub(crate) fn child_or_new(&self, name: &str, permissions: u32) -> Result<(Arc<Self>, bool)> {
        if let NodeKind::Directory(Entries::Stored(stored)) = &self.kind {
            return stored.child_or_new(name, permissions);
        }
        // Under one lock: of several threads, one makes the file.
        let mut entries = self.names()?.lock();
        if let Some(node) = entries.get(name) {
            return Ok((node.clone(), false));
        }
        let node = Self::file(Bytes::new(&[]), permissions);
        entries.insert(name.into(), node.clone());
        self.touch();
        Ok((node, true))
    }

    /// Makes something new; EEXIST if the name is there, also if another thread made it
    /// meanwhile.
    pub(crate) fn make(&self, name: &str, new: New<'_>) -> Result<()> {
        if let NodeKind::Directory(Entries::Stored(stored)) = &self.kind {
            return stored.make(name, new);
        }
        let now = tare_hal::clock::wall_ns();
        let node = match new {
            New::File(permissions) => Self::file(Bytes::new(&[]), permissions),
            New::Directory(permissions) => {
                let node = Self::directory();
                node.permissions
                    .store(permissions & 0o7777, Ordering::Relaxed);
                node.touch();
                node
            }
            New::Link(target) => Self::new(NodeKind::link(target), 0o777, now),
            New::Socket(_) => return Err(Errno::EINVAL), // it has a socket behind it: `bind`
        };
        self.add(name, node)
    }

    /// Adds the name of a socket; EEXIST if the name is there.
    pub(crate) fn bind(&self, name: &str, permissions: u32, named: Named) -> Result<()> {
        if let NodeKind::Directory(Entries::Stored(stored)) = &self.kind {
            return stored.bind(name, permissions, named);
        }
        let kind = NodeKind::Socket {
            named,
            stored: None,
        };
        self.add(name, Self::new(kind, permissions, 0))
    }

    /// Adds a node in memory to a directory in memory; EEXIST if the name is there.
    pub(crate) fn add(&self, name: &str, node: Arc<Self>) -> Result<()> {
        let mut entries = self.names()?.lock();
        if entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        entries.insert(name.into(), node);
        self.touch();
        Ok(())
    }

    /// Adds a name of a node other than a directory.
    pub(crate) fn add_link(&self, name: &str, node: &Arc<Self>) -> Result<()> {
        match (self.stored(), node.stored()) {
            (Some(here), Some(there)) => here.add_link(name, there),
            (None, None) => {
                self.add(name, node.clone())?;
                node.link();
                Ok(())
            }
            _ => Err(Errno::EXDEV),
        }
    }

    /// The names of a directory.
    pub(crate) fn list(&self) -> Result<Vec<Listed>> {
        match &self.kind {
            NodeKind::Directory(Entries::Memory(entries)) => {
                let entries = entries.lock();
                let names = entries.iter();
                Ok(names
                    .map(|(name, node)| (name.clone(), node.number(), node.mode_kind()))
                    .collect())
            }
            NodeKind::Directory(Entries::Stored(stored)) => stored.list(),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Its inode's number.
    pub(crate) fn number(&self) -> u64 {
        match (&self.kind, self.stored()) {
            (_, Some(stored)) => stored.inode,
            (NodeKind::Device(device), None) => {
                let (major, minor) = device.numbers();
                Status::device(major, minor).inode
            }
            _ => self.inode,
        }
    }

    /// Its kind, as in a mode.
    pub(crate) fn mode_kind(&self) -> u32 {
        match &self.kind {
            NodeKind::File(_) | NodeKind::Kernel(_) => S_IFREG,
            NodeKind::Directory(_) => S_IFDIR,
            NodeKind::Link { .. } => S_IFLNK,
            NodeKind::Device(_) => linux_raw_sys::general::S_IFCHR,
            NodeKind::Socket { .. } | NodeKind::Special(_) => S_IFSOCK,
        }
    }

    fn content(&self) -> Result<&Content> {
        match &self.kind {
            NodeKind::File(content) => Ok(content),
            NodeKind::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A file's length.
    pub(crate) fn len(&self) -> Result<u64> {
        match self.content()? {
            Content::Memory(bytes) => Ok(bytes.len()),
            Content::Stored(stored) => Ok(stored.volume().attributes(stored.inode)?.bytes),
        }
    }

    /// Copies from `offset`; gives how many bytes there were.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        match self.content()? {
            Content::Memory(bytes) => Ok(bytes.read(offset, to)),
            Content::Stored(stored) => stored.volume().read(stored.inode, offset, to),
        }
    }

    /// Writes at `offset`, as far as there is room; gives how many bytes.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<usize> {
        match self.content()? {
            Content::Memory(bytes) => bytes.write(offset, from),
            Content::Stored(_) if from.is_empty() => Ok(0),
            Content::Stored(stored) => stored.volume().write(stored.inode, offset, from),
        }
    }

    /// Writes at the end; gives where, and how many bytes.
    pub(crate) fn append(&self, from: &[u8]) -> Result<(u64, usize)> {
        match self.content()? {
            Content::Memory(bytes) => {
                let written = bytes.append(from)?;
                Ok((written.start, (written.end - written.start) as usize))
            }
            Content::Stored(stored) => stored.volume().append(stored.inode, from),
        }
    }

    /// Cuts, or adds zeros.
    pub(crate) fn set_len(&self, length: u64) -> Result<()> {
        match self.content()? {
            Content::Memory(bytes) => {
                self.seals.may_resize(bytes.len(), length)?;
                bytes.set_len(length)
            }
            Content::Stored(stored) => stored.volume().set_len(stored.inode, length),
        }
    }

    /// Takes room for a range that is not empty (`fallocate(2)`).
    pub(crate) fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        match self.content()? {
            Content::Memory(bytes) => {
                let before = bytes.len();
                let end = offset + length;
                self.seals.may_resize(before, before.max(end))?;
                bytes.allocate(&(offset..end))
            }
            Content::Stored(stored) => stored.volume().allocate(stored.inode, offset, length),
        }
    }

    /// Where data or a hole begins, from `offset` on.
    pub(crate) fn seek(&self, offset: u64, sought: Sought) -> Result<Option<u64>> {
        match (self.content()?, sought) {
            (Content::Memory(bytes), Sought::Data) => Ok(bytes.data_from(offset)),
            (Content::Memory(bytes), Sought::Hole) => Ok(bytes.hole_from(offset)),
            (Content::Stored(stored), sought) => stored.volume().seek(stored.inode, offset, sought),
        }
    }

    /// The bytes of a file in memory.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.kind {
            NodeKind::File(Content::Memory(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Makes durable what was changed; what is in memory is lost at the end anyway.
    pub(crate) fn sync(&self) -> Result<()> {
        match self.stored() {
            Some(stored) => stored.volume().sync(),
            None => Ok(()),
        }
    }

    /// How much room there is where it is; none in memory.
    pub(crate) fn space(&self) -> Result<Option<Space>> {
        let stored = self.stored();
        stored.map(|stored| stored.volume().space()).transpose()
    }

    /// Whether it is the directory at the top of a volume.
    pub(crate) fn is_mounted(&self) -> bool {
        let stored = self.stored();
        stored.is_some_and(|stored| stored.inode == stored.volume().root())
    }

    /// Whether another node is of the same file system.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some(one), Some(other)) => one.is_beside(other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The node of a socket's name on a volume.
    pub(super) fn of_socket(mount: &Arc<Mount>, inode: u64, named: Named) -> Arc<Self> {
        let stored = Some(Stored::new(mount, inode));
        Self::new(NodeKind::Socket { named, stored }, 0, 0)
    }

    /// The node of an inode of a volume; `target` is a link's.
    pub(super) fn of_volume(
        mount: &Arc<Mount>,
        inode: u64,
        kind: Kind,
        target: String,
    ) -> Arc<Self> {
        let stored = Stored::new(mount, inode);
        let kind = match kind {
            Kind::File => NodeKind::File(Content::Stored(stored)),
            Kind::Directory => NodeKind::Directory(Entries::Stored(stored)),
            Kind::Link => NodeKind::Link {
                target,
                stored: Some(stored),
            },
            Kind::Other => NodeKind::Special(stored),
        };
        Self::new(kind, 0, 0)
    }
}
