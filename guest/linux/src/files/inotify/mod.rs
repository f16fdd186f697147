//! Watches of files (`inotify(7)`).
//!
//! An instance is a file with a queue of events; the watches of all instances are in one table, by the
//! node that is watched. A node knows nothing of them: without a watch, a call tests one number.

mod queue;
mod watches;

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use linux_raw_sys::general::POLLIN;

use super::node::Node;
use super::{File, Status, Watchers};
use crate::errno::{Errno, Result};

pub(crate) use queue::MOST_EVENTS;
use queue::Queue;
pub(crate) use watches::{
    Removed, is_watching, limit, notify_child, notify_entry, notify_gone, notify_moved, notify_node,
};

/// Most instances, as Linux has it for each user.
pub(crate) const MOST_INSTANCES: usize = 128;

static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// An instance.
pub(crate) struct Inotify(Arc<Queue>);

impl Inotify {
    /// One without watches; EMFILE where there are too many instances.
    pub(crate) fn new() -> Result<Self> {
        let instance = Self(Arc::default());
        // Counted first, so that its end counts back.
        if INSTANCES.fetch_add(1, Ordering::Relaxed) >= MOST_INSTANCES {
            return Err(Errno::EMFILE);
        }
        Ok(instance)
    }

    /// Watches a node for the events of `flags`; gives the number of the watch.
    pub(crate) fn watch_node(&self, node: &Arc<Node>, flags: u32) -> Result<i32> {
        watches::add(&self.0, node, flags)
    }

    /// Takes a watch back.
    pub(crate) fn unwatch_node(&self, number: i32) -> Result<()> {
        watches::remove(&self.0, number)
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        watches::remove_all(&self.0);
        INSTANCES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl File for Inotify {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.0.read(to)
    }

    fn readable_bytes(&self) -> Result {
        Ok(self.0.bytes() as u64)
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn ready(&self) -> u32 {
        if self.0.bytes() > 0 { POLLIN } else { 0 }
    }

    fn arrivals(&self) -> u64 {
        self.0.arrivals()
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.0.watchers)
    }

    fn name(&self) -> String {
        String::from("anon_inode:inotify")
    }
}
