//! Descriptors and what they refer to.
//!
//! A [`File`] never waits: what would block is EAGAIN, and the call that may wait
//! watches the file and tries again (`crate::thread::wait`).

mod data;
mod device;
pub(crate) mod endpoint;
pub(crate) mod epoll;
pub(crate) mod lock;
pub(crate) mod pipe;
pub(crate) mod regular;
#[cfg(target_os = "none")]
pub(crate) mod socket;
mod table;
pub(crate) mod timer;
pub(crate) mod tree;
pub(crate) mod unix;
mod watch;

use core::any::Any;

pub(crate) use data::Bytes;
pub(crate) use device::Device;
pub(crate) use table::{Descriptor, MOST, Open, Table, Uses, Way};
pub(crate) use watch::Watchers;

use linux_raw_sys::general::{POLLIN, POLLOUT, S_IFCHR};
use tare_libos::thread::Thread as Waiter;

use crate::errno::{Errno, Result};

/// What `stat` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) inode: u64,
    /// Kind and permissions.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified_ns: u64,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
}

impl Status {
    /// What has no name and no kind, as event queues, counters and timers.
    pub(crate) const fn anonymous() -> Self {
        Self {
            inode: 0,
            mode: 0o600,
            links: 1,
            bytes: 0,
            modified_ns: 0,
            device: (0, 0),
        }
    }

    /// A device or what behaves so.
    pub(crate) const fn device(major: u32, minor: u32) -> Self {
        Self {
            inode: (major as u64) << 8 | minor as u64,
            mode: S_IFCHR | 0o666,
            links: 1,
            bytes: 0,
            modified_ns: 0,
            device: (major, minor),
        }
    }
}

/// What a descriptor refers to.
pub(crate) trait File: Send + Sync + Any {
    /// Reads at the file's position.
    fn read(&self, _to: &mut [u8]) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Writes at the file's position.
    fn write(&self, _from: &[u8]) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Reads at an offset.
    fn read_at(&self, _offset: u64, _to: &mut [u8]) -> Result<usize> {
        Err(Errno::ESPIPE)
    }

    /// Writes at an offset.
    fn write_at(&self, _offset: u64, _from: &[u8]) -> Result<usize> {
        Err(Errno::ESPIPE)
    }

    /// How many bytes can be read without waiting (`FIONREAD`).
    fn readable_bytes(&self) -> Result {
        Err(Errno::ENOTTY)
    }

    /// Lets writes go to the end, or to the position (`O_APPEND`).
    fn set_appends(&self, _appends: bool) {}

    /// Moves the position; gives where it is then.
    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Err(Errno::ESPIPE)
    }

    /// The socket that it is.
    fn endpoint(&self) -> Option<&dyn endpoint::Endpoint> {
        None
    }

    /// Whether an event queue takes it.
    fn has_events(&self) -> bool {
        true
    }

    /// The node of the tree that it is.
    fn node(&self) -> Option<&alloc::sync::Arc<tree::Node>> {
        None
    }

    /// What can be locked of it.
    fn lock(&self) -> Option<alloc::sync::Arc<lock::Lock>> {
        self.node().map(|node| node.lock())
    }

    /// What `stat` says.
    fn status(&self) -> Status;

    /// What can be done without waiting, as bits of `poll`.
    fn ready(&self) -> u32 {
        POLLIN | POLLOUT
    }

    /// What differs after something more came to be read: an edge of event queues, also
    /// where what was there before has not been read.
    fn arrivals(&self) -> u64 {
        0
    }

    /// Those who look at it when [`ready`](Self::ready) may have changed, where that is all
    /// that watching takes.
    fn watchers(&self) -> Option<&Watchers> {
        None
    }

    /// Lets `waiter` be unparked when [`ready`](Self::ready) may have changed.
    fn watch(&self, waiter: &Waiter) {
        if let Some(watchers) = self.watchers() {
            watchers.add(waiter);
        }
    }

    /// When [`ready`](Self::ready) changes by time, first after `after_ns`.
    fn deadline_ns(&self, _after_ns: u64) -> Option<u64> {
        None
    }

    /// Takes [`watch`](Self::watch) back.
    fn unwatch(&self, waiter: &Waiter) {
        if let Some(watchers) = self.watchers() {
            watchers.remove(waiter);
        }
    }

    /// For `readlink` of `/proc/self/fd`.
    fn name(&self) -> alloc::string::String {
        alloc::string::String::from("anon_inode:[file]")
    }
}

impl dyn File {
    /// The file as what it is.
    pub(crate) fn as_kind<T: File>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}
