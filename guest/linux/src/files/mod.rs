//! Descriptors and what they refer to.
//!
//! A [`File`] never waits: what would block is EAGAIN, and the call that may wait
//! watches the file and tries again (`crate::thread::wait`).

mod bound;
mod channel;
mod data;
mod device;
pub(crate) mod endpoint;
pub(crate) mod epoll;
mod file;
pub(crate) mod held;
pub(crate) mod inotify;
pub(crate) mod keep_alive;
pub(crate) mod lock;
pub(crate) mod netlink;
mod node;
pub(crate) mod pipe;
pub(crate) mod regular;
mod seals;
pub(crate) mod signal;
#[cfg(target_os = "none")]
pub(crate) mod socket;
pub(crate) mod stored;
pub(crate) mod stream;
mod table;
pub(crate) mod timer;
pub(crate) mod tree;
pub(crate) mod unix;
mod watch;

pub(crate) use data::Bytes;
pub(crate) use device::Device;
pub(crate) use file::{Endpoint, File, Status, VolumeStatus};
pub(crate) use table::{Descriptor, MOST, Open, Table, Uses, Way};
pub(crate) use watch::Watchers;
