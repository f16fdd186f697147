//! A condition variable.

use alloc::collections::VecDeque;
use core::time::Duration;

use tare_hal::lock::SpinLock;

use super::mutex::MutexGuard;
use crate::thread::{self, Thread};
use crate::time::Instant;

/// Lets threads wait until another one says that something has changed.
///
/// ```
/// use std::sync::Arc;
/// use tare_libos::{sync::{Condvar, Mutex}, thread};
/// let shared = Arc::new((Mutex::new(false), Condvar::new()));
/// let theirs = Arc::clone(&shared);
/// thread::spawn(move || {
///     *theirs.0.lock() = true;
///     theirs.1.notify_one();
/// });
/// let ready = shared.1.wait_while(shared.0.lock(), |ready| !*ready);
/// assert!(*ready);
/// ```
#[derive(Default)]
pub struct Condvar {
    waiters: SpinLock<VecDeque<Thread>>,
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self {
            waiters: SpinLock::new(VecDeque::new()),
        }
    }

    /// Lets go of the lock, waits for a notification, takes the lock again.
    /// May return without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_with(guard, thread::park)
    }

    /// As [`Condvar::wait`], until `condition` is false.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`Condvar::wait`], at most until `deadline`.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> MutexGuard<'a, T> {
        self.wait_with(guard, || thread::park_until(deadline))
    }

    /// As [`Condvar::wait`], at most for `timeout`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.wait_until(guard, Instant::now() + timeout)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        let woken = self.waiters.lock().pop_front();
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Wakes all waiters, their cores by as few interrupts as there can be.
    pub fn notify_all(&self) {
        let woken = core::mem::take(&mut *self.waiters.lock());
        thread::unpark_all(woken);
    }

    fn wait_with<'a, T>(&self, guard: MutexGuard<'a, T>, park: impl FnOnce()) -> MutexGuard<'a, T> {
        let thread = thread::current();
        let mutex = guard.mutex();
        self.waiters.lock().push_back(thread.clone());
        drop(guard);
        park();
        self.waiters
            .lock()
            .retain(|waiter| waiter.id() != thread.id());
        mutex.lock()
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::sync::Mutex;

    #[test]
    fn all_waiters_see_a_broadcast() {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let threads: alloc::vec::Vec<_> = (0..3)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    drop(shared.1.wait_while(shared.0.lock(), |state| *state == 0));
                })
            })
            .collect();
        *shared.0.lock() = 1;
        shared.1.notify_all();
        threads.into_iter().for_each(|thread| thread.join());
    }

    #[test]
    fn a_timeout_ends_the_wait_and_leaves_no_waiter() {
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(3) {
            drop(condition.wait_timeout(lock.lock(), Duration::from_millis(3)));
        }
        assert!(condition.waiters.lock().is_empty());
    }
}
