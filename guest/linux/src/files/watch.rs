//! [`Watchers`]: the threads that look at a file when it may have changed.

use alloc::vec::Vec;

use tare_libos::sync::SpinLock;
use tare_libos::thread::{Thread as Waiter, unpark_all};

/// Usually empty or one.
#[derive(Debug, Default)]
pub(crate) struct Watchers(SpinLock<Vec<Waiter>>);

impl Watchers {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    pub(crate) fn add(&self, waiter: &Waiter) {
        let mut waiters = self.0.lock();
        if waiters.iter().all(|other| other.id() != waiter.id()) {
            waiters.push(waiter.clone());
        }
    }

    pub(crate) fn remove(&self, waiter: &Waiter) {
        self.0.lock().retain(|other| other.id() != waiter.id());
    }

    /// Wakes all; each looks for itself and takes itself away.
    pub(crate) fn wake(&self) {
        let waiters = self.0.lock().clone();
        unpark_all(waiters);
    }
}
