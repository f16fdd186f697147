//! Files of a volume in the tree: the mount, and where a node is on it.
//!
//! An inode has one node as long as the program uses it, so that locks, and the file that was
//! unlinked while it is open, are the same for all of its names.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFREG, S_IFSOCK};
use tare_libos::sync::{Mutex, OnceLock, SpinLock};

use super::node::{Listed, Node};
use super::unix::Named;
use super::{Status, VolumeStatus};
use crate::errno::{Errno, Result};
use crate::volume::{Found, Kind, New, Volume};

/// The volume that the program has, if it has one.
static MOUNTED: OnceLock<Mounted> = OnceLock::new();

/// A volume for as long as the program runs.
pub(crate) struct Mounted {
    volume: Arc<dyn Volume>,
    /// What is done before its end.
    before_end: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The program's volume.
pub(crate) fn mounted() -> Option<&'static Mounted> {
    MOUNTED.get()
}

/// Notes the program's volume, once.
pub(crate) fn set_mounted(volume: Arc<dyn Volume>) {
    let before_end = OnceLock::new();
    MOUNTED.set(Mounted { volume, before_end }).ok();
}

impl Mounted {
    /// Sets what is done before the volume's end, once.
    pub(crate) fn before_end(&self, act: impl Fn() + Send + Sync + 'static) {
        self.before_end.set(Box::new(act)).ok();
    }

    /// Makes all durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.volume.sync()
    }

    /// Makes all durable and ends the use.
    pub(crate) fn end(&self) {
        if let Some(act) = self.before_end.get() {
            act();
        }
        self.volume.end();
    }
}

/// A volume in the tree.
pub(crate) struct Mount {
    pub(crate) volume: Arc<dyn Volume>,
    /// Nodes that the program uses, by inode.
    nodes: SpinLock<BTreeMap<u64, Weak<Node>>>,
    /// Names of sockets that are open, with their sockets.
    sockets: SpinLock<Vec<(Named, Arc<Node>)>>,
    /// Held from a look at a name to its node, and while names change: a node is never made for
    /// an inode that has just been freed.
    names: Mutex<()>,
}

/// Where a node is on a volume.
pub(crate) struct Stored {
    mount: Arc<Mount>,
    pub(crate) inode: u64,
}

impl Drop for Stored {
    fn drop(&mut self) {
        let mut nodes = self.mount.nodes.lock();
        let node = nodes.get(&self.inode);
        if node.is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&self.inode);
            drop(nodes);
            self.mount.volume.forget(self.inode);
        }
    }
}

impl Mount {
    pub(crate) fn new(volume: Arc<dyn Volume>) -> Arc<Self> {
        Arc::new(Self {
            volume,
            nodes: SpinLock::new(BTreeMap::new()),
            sockets: SpinLock::new(Vec::new()),
            names: Mutex::new(()),
        })
    }

    /// The node of the volume's top.
    pub(crate) fn root(self: &Arc<Self>) -> Result<Arc<Node>> {
        self.node(Found {
            inode: self.volume.root(),
            kind: Kind::Directory,
        })
    }

    /// The node of an inode that has a name, or is in use.
    fn node(self: &Arc<Self>, found: Found) -> Result<Arc<Node>> {
        let known = self.nodes.lock().get(&found.inode).and_then(Weak::upgrade);
        if let Some(node) = known {
            return Ok(node);
        }
        let target = match found.kind {
            Kind::Link => self.volume.target(found.inode)?,
            _ => String::new(),
        };
        let node = Node::of_volume(self, found.inode, found.kind, target);
        // A caller that was faster has one.
        let mut nodes = self.nodes.lock();
        let known = nodes.get(&found.inode).and_then(Weak::upgrade);
        if let Some(known) = known {
            drop(nodes);
            return Ok(known);
        }
        nodes.insert(found.inode, Arc::downgrade(&node));
        Ok(node)
    }
}

impl Stored {
    pub(super) fn new(mount: &Arc<Mount>, inode: u64) -> Self {
        Self {
            mount: mount.clone(),
            inode,
        }
    }

    pub(crate) fn volume(&self) -> &dyn Volume {
        self.mount.volume.as_ref()
    }

    /// Whether both are on one volume.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mount, &other.mount)
    }

    pub(super) fn status(&self) -> Result<Status> {
        let attributes = self.volume().attributes(self.inode)?;
        Ok(Status {
            inode: self.inode,
            mode: attributes.mode,
            links: attributes.links,
            bytes: attributes.bytes,
            allocated: attributes.allocated,
            modified_ns: attributes.times_ns[1],
            volume: Some(VolumeStatus {
                owner: attributes.owner,
                accessed_ns: attributes.times_ns[0],
                changed_ns: attributes.times_ns[2],
            }),
            ..Status::default()
        })
    }

    pub(super) fn child(&self, name: &str) -> Result<Option<Arc<Node>>> {
        let _turn = self.mount.names.lock();
        self.child_in_turn(name)
    }

    /// The same for who holds `names`.
    fn child_in_turn(&self, name: &str) -> Result<Option<Arc<Node>>> {
        let found = self.volume().look_up(self.inode, name)?;
        found.map(|found| self.mount.node(found)).transpose()
    }

    pub(super) fn child_or_new(&self, name: &str, permissions: u32) -> Result<(Arc<Node>, bool)> {
        let _turn = self.mount.names.lock();
        if let Some(found) = self.volume().look_up(self.inode, name)? {
            return Ok((self.mount.node(found)?, false));
        }
        let found = self
            .volume()
            .make(self.inode, name, New::File(permissions))?;
        Ok((self.mount.node(found)?, true))
    }

    pub(super) fn make(&self, name: &str, new: New<'_>) -> Result<()> {
        let _turn = self.mount.names.lock();
        self.volume().make(self.inode, name, new).map(drop)
    }

    pub(super) fn bind(&self, name: &str, permissions: u32, named: Named) -> Result<()> {
        let _turn = self.mount.names.lock();
        let new = New::Socket(permissions);
        let found = self.volume().make(self.inode, name, new)?;
        let node = Node::of_socket(&self.mount, found.inode, named.clone());
        let weak = Arc::downgrade(&node);
        self.mount.nodes.lock().insert(found.inode, weak);
        // Names go with their sockets: here, where new ones come; behind the lock.
        let mut closed = Vec::new();
        let mut sockets = self.mount.sockets.lock();
        sockets.push((named, node));
        for socket in core::mem::take(&mut *sockets) {
            let list = if socket.0.is_open() {
                &mut *sockets
            } else {
                &mut closed
            };
            list.push(socket);
        }
        drop(sockets);
        Ok(())
    }

    pub(super) fn add_link(&self, name: &str, node: &Self) -> Result<()> {
        if !self.is_beside(node) {
            return Err(Errno::EXDEV);
        }
        let _turn = self.mount.names.lock();
        self.volume().link(node.inode, self.inode, name)
    }

    /// Removes a name, after `check` of the node that has it now.
    pub(crate) fn unlink(
        &self,
        name: &str,
        is_directory: bool,
        check: impl FnOnce(&Arc<Node>) -> Result<()>,
    ) -> Result<()> {
        let _turn = self.mount.names.lock();
        // Held: the end of its node frees an inode without a name.
        let node = self.child_in_turn(name)?.ok_or(Errno::ENOENT)?;
        check(&node)?;
        if is_directory {
            self.volume().remove_directory(self.inode, name)
        } else {
            self.volume().unlink(self.inode, name)
        }
    }

    /// Renames if `check` of what has the new name now says so; that is replaced.
    pub(crate) fn rename(
        &self,
        name: &str,
        to: &Self,
        new_name: &str,
        check: impl FnOnce(Option<&Arc<Node>>) -> Result<bool>,
    ) -> Result<()> {
        let _turn = self.mount.names.lock();
        // Held, as for `unlink`.
        let replaced = to.child_in_turn(new_name)?;
        if !check(replaced.as_ref())? {
            return Ok(());
        }
        let (from, to) = ((self.inode, name), (to.inode, new_name));
        self.volume().rename(from, to)
    }

    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        let listed = self.volume().list(self.inode)?.into_iter();
        let entry = |(name, found): (String, Found)| {
            let kind = match found.kind {
                Kind::File => S_IFREG,
                Kind::Directory => S_IFDIR,
                Kind::Link => S_IFLNK,
                Kind::Other => S_IFSOCK,
            };
            (name, found.inode, kind)
        };
        Ok(listed.map(entry).collect())
    }
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
