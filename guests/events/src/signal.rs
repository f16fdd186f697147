//! The two ways to signal.

use tare_libos::sync::{Condvar, Event, Mutex};

/// An auto-reset signal for one waiter.
pub(crate) enum Signal {
    /// The library OS's own.
    Event(Event),
    /// A flag under a lock, with a condition variable.
    Condvar(Mutex<bool>, Condvar),
}

impl Signal {
    pub(crate) fn event() -> Self {
        Self::Event(Event::new())
    }

    pub(crate) fn condvar() -> Self {
        Self::Condvar(Mutex::new(false), Condvar::new())
    }

    /// Signals.
    pub(crate) fn set(&self) {
        match self {
            Self::Event(event) => event.set(),
            Self::Condvar(flag, changed) => {
                *flag.lock() = true;
                changed.notify_one();
            }
        }
    }

    /// Waits for a signal and takes it.
    pub(crate) fn wait(&self) {
        match self {
            Self::Event(event) => event.wait(),
            Self::Condvar(flag, changed) => {
                let mut flag = changed.wait_while(flag.lock(), |flag| !*flag);
                *flag = false;
            }
        }
    }
}
