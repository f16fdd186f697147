//! Readiness: what sockets can do without waiting, and learning when that may
//! have changed. [`poll`] waits for several sockets in one thread; an event queue
//! such as epoll's is built from [`Source::watch`].
//!
//! ```
//! use tare_libos::net::{Interests, PollItem, UdpSocket, poll};
//!
//! let (one, two) = (UdpSocket::bind("0.0.0.0:0")?, UdpSocket::bind("0.0.0.0:0")?);
//! one.send_to(b"hello", ("127.0.0.1", two.local_addr()?.port()))?;
//! let mut items = [
//!     PollItem::new(&one, Interests::READ),
//!     PollItem::new(&two, Interests::READ),
//! ];
//! assert_eq!(poll(&mut items, None)?, 1);
//! assert!(items[1].readiness().readable && !items[0].readiness().readable);
//! # Ok::<(), tare_libos::io::Error>(())
//! ```

use alloc::sync::Arc;
use core::time::Duration;

use tare_net::readiness::{Interest, Interests, Readiness};

use super::system::{SystemStack, lock};
use super::waiter::{Observer, Waiter};
use crate::io::Result;
use crate::thread;
use crate::time::Instant;

/// A socket as the stack knows it.
pub(super) trait Watched {
    fn state(&self, stack: &mut SystemStack) -> Readiness;
    fn add(&self, stack: &mut SystemStack, interest: Interest, waiter: Waiter);
    fn remove(&self, stack: &mut SystemStack, interest: Interest, waiter: &Waiter);
}

/// A socket whose readiness can be asked and waited for: a
/// [`TcpListener`](super::TcpListener), a [`TcpStream`](super::TcpStream), or a
/// [`UdpSocket`](super::UdpSocket).
#[allow(private_bounds)] // sockets of this module only
pub trait Source: Watched {
    /// What it can do now.
    fn readiness(&self) -> Readiness {
        self.state(&mut lock())
    }

    /// Calls [`Observer::ready`] with `token` once, when the socket may be ready for
    /// one of `interests`; the readiness now, which nothing is called for. Watching
    /// twice with the same token is watching once.
    fn watch(&self, interests: Interests, observer: &Arc<dyn Observer>, token: u64) -> Readiness {
        let mut stack = lock();
        for interest in interests.queues() {
            let waiter = Waiter::Observer(Arc::clone(observer), token);
            self.add(&mut stack, interest, waiter);
        }
        self.state(&mut stack)
    }

    /// Takes [`watch`](Self::watch) back. A call that is under way may still come.
    fn unwatch(&self, observer: &Arc<dyn Observer>, token: u64) {
        let waiter = Waiter::Observer(Arc::clone(observer), token);
        let mut stack = lock();
        for interest in Interests::BOTH.queues() {
            self.remove(&mut stack, interest, &waiter);
        }
    }
}

impl<T: Watched + ?Sized> Source for T {}

/// A socket in a call of [`poll`].
pub struct PollItem<'a> {
    source: &'a dyn Source,
    interests: Interests,
    readiness: Readiness,
}

impl<'a> PollItem<'a> {
    /// Waits for `interests` of `source`, and for its end.
    pub fn new(source: &'a dyn Source, interests: Interests) -> Self {
        Self {
            source,
            interests,
            readiness: Readiness::default(),
        }
    }

    /// What the last [`poll`] found.
    pub fn readiness(&self) -> Readiness {
        self.readiness
    }
}

/// Waits until one of `items` is ready; how many are, 0 after `timeout`.
pub fn poll(items: &mut [PollItem<'_>], timeout: Option<Duration>) -> Result<usize> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let waiter = Waiter::Thread(thread::current());
    loop {
        let mut stack = lock();
        let mut ready = 0;
        for item in items.iter_mut() {
            item.readiness = item.source.state(&mut stack);
            ready += usize::from(item.readiness.matches(item.interests));
        }
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        for item in items.iter() {
            for interest in item.interests.queues() {
                if ready > 0 || is_late {
                    item.source.remove(&mut stack, interest, &waiter);
                } else {
                    item.source.add(&mut stack, interest, waiter.clone());
                }
            }
        }
        drop(stack);
        if ready > 0 || is_late {
            return Ok(ready);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => thread::park_until(deadline),
        }
    }
}
