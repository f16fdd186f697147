//! Whom sockets wake: threads, and observers of many sockets.

use alloc::sync::Arc;
use core::fmt;

use tare_net::waiters::Wake;

use crate::thread::Thread;

/// Learns that sockets may have become ready.
pub trait Observer: Send + Sync {
    /// The socket that was watched with `token` may be ready; it is not watched any
    /// more. Called while the network is locked, maybe on another core: an
    /// implementation notes the token and unparks a thread. It must not call the
    /// network, and no lock that it takes may be held while the network is called.
    fn ready(&self, token: u64);
}

/// Whom a socket wakes, once.
#[derive(Clone)]
pub(super) enum Waiter {
    Thread(Thread),
    Observer(Arc<dyn Observer>, u64),
}

impl Wake for Waiter {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Observer(observer, token) => observer.ready(token),
        }
    }

    #[cfg(target_os = "none")]
    #[inline(always)]
    fn of_programs() -> bool {
        tare_hal::memory::runs_programs()
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(one), Self::Thread(other)) => one.id() == other.id(),
            (Self::Observer(one, token), Self::Observer(other, other_token)) => {
                Arc::ptr_eq(one, other) && token == other_token
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => write!(f, "thread {:?}", thread.id()),
            Self::Observer(_, token) => write!(f, "observer of {token}"),
        }
    }
}
