//! [`File`], what a descriptor refers to, and what a socket adds to it.

use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;

use linux_raw_sys::general::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFCHR};
use tare_libos::thread::Thread as Waiter;

use super::Watchers;
use super::endpoint::{Address, Half, Received, SocketKind};
use super::lock::Lock;
use super::watch::Item;
use crate::errno::{Errno, Result};

/// What `stat` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) inode: u64,
    /// SocketKind and permissions.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) bytes: u64,
    /// Bytes of the pages that it has.
    pub(crate) allocated: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified_ns: u64,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    /// What a volume knows beyond that.
    pub(crate) volume: Option<VolumeStatus>,
}

/// What only a volume knows of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeStatus {
    /// Owner and group.
    pub(crate) owner: (u32, u32),
    /// Nanoseconds since 1970.
    pub(crate) accessed_ns: u64,
    /// Nanoseconds since 1970 of the last change of the inode.
    pub(crate) changed_ns: u64,
}

impl Status {
    /// What has no name and no kind, as event queues, counters and timers.
    pub(crate) const fn anonymous() -> Self {
        Self {
            inode: 0,
            mode: 0o600,
            links: 1,
            bytes: 0,
            allocated: 0,
            modified_ns: 0,
            device: (0, 0),
            volume: None,
        }
    }

    /// A device or what behaves so.
    pub(crate) const fn device(major: u32, minor: u32) -> Self {
        Self {
            inode: (major as u64) << 8 | minor as u64,
            mode: S_IFCHR | 0o666,
            links: 1,
            bytes: 0,
            allocated: 0,
            modified_ns: 0,
            device: (major, minor),
            volume: None,
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
    fn endpoint(&self) -> Option<&dyn Endpoint> {
        None
    }

    /// Whether an event queue takes it.
    fn has_events(&self) -> bool {
        true
    }

    /// What can be locked of it.
    fn lock(&self) -> Option<Arc<Lock>> {
        None
    }

    /// What `stat` says.
    fn status(&self) -> Result<Status>;

    /// Makes durable what was written.
    fn sync(&self) -> Result<()> {
        Err(Errno::EINVAL)
    }

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

    /// Lets `item` be noted once when [`ready`](Self::ready) may have changed; gives what is ready
    /// now, for which it is not noted. `None` where the file does not tell of each change, so that a
    /// queue asks at each look: what changes by time, or is not the same for each thread.
    fn arm(&self, item: &Arc<Item>) -> Option<u32> {
        self.watchers()?.arm(item);
        Some(self.ready())
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

    /// Whether `poll` says of data that it is normal data too (`POLLRDNORM`, `POLLWRNORM`).
    fn has_normal_data(&self) -> bool {
        true
    }

    /// For `readlink` of `/proc/self/fd`.
    fn name(&self) -> String {
        String::from("anon_inode:[file]")
    }
}

impl dyn File {
    /// The file as what it is.
    pub(crate) fn as_kind<T: File>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Bits of [`ready`](File::ready) as a program sees them.
    pub(crate) fn shown(&self, ready: u32) -> u32 {
        if !self.has_normal_data() {
            return ready;
        }
        let normal = |bit: u32, normal: u32| if ready & bit != 0 { normal } else { 0 };
        ready | normal(POLLIN, POLLRDNORM) | normal(POLLOUT, POLLWRNORM)
    }
}

/// A socket.
pub(crate) trait Endpoint: File {
    /// AF_INET, AF_INET6 or AF_UNIX.
    fn family(&self) -> u32;
    fn kind(&self) -> SocketKind;
    fn listen(&self, backlog: usize) -> Result<()>;
    fn is_listening(&self) -> bool;
    /// A connection that waits, or EAGAIN.
    fn accept(&self) -> Result<(Arc<dyn File>, Address)>;
    fn shutdown(&self, half: Half) -> Result<()>;
    fn local(&self) -> Result<Address>;
    fn peer(&self) -> Result<Address>;
    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received>;
    /// Sends to the peer, or to an address.
    fn send(&self, from: &[u8], to: Option<&Address>) -> Result<usize>;
    /// The error that waits to be reported (`SO_ERROR`).
    fn take_error(&self) -> u32 {
        0
    }
}

/// Waiting for a lock is waiting for a file.
impl File for Lock {
    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.watchers)
    }
}
