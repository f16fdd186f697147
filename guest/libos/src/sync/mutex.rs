//! A lock whose waiters sleep.

use alloc::collections::VecDeque;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use tare_hal::lock::{SpinGuard, SpinLock};

use crate::thread::{self, Thread};

/// Mutual exclusion between threads. A thread that must wait parks, so other
/// threads of its core run, and it may hold the lock across anything that
/// blocks. There is no poisoning: a panic ends the image.
///
/// ```
/// use tare_libos::sync::Mutex;
/// let hits = Mutex::new(0);
/// *hits.lock() += 1;
/// assert_eq!(hits.into_inner(), 1);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    waiters: Waiters,
    value: SpinLock<T>,
}

impl<T> Mutex<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            waiters: Waiters::new(),
            value: SpinLock::new(value),
        }
    }

    /// The value, when no thread can hold the lock any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard {
            guard: self.value.try_lock()?,
            _release: Release(&self.waiters),
            mutex: self,
        })
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        let thread = thread::current();
        loop {
            self.waiters.add(thread.clone());
            // The holder may have let go before it could see us in the queue.
            let mut guard = self.try_lock();
            if guard.is_none() {
                thread::park();
                guard = self.try_lock();
            }
            self.waiters.remove(&thread);
            if let Some(guard) = guard {
                return guard;
            }
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mutex").field(&&self.value).finish()
    }
}

/// Access to the value of a held [`Mutex`]; releases it when dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    // Fields are dropped in this order: first the lock, then the wake-up.
    guard: SpinGuard<'a, T>,
    _release: Release<'a>,
    mutex: &'a Mutex<T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The lock that this guard holds.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Wakes the next waiter when the lock has been let go.
struct Release<'a>(&'a Waiters);

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        // The unlocking store must be visible before the queue is looked at;
        // a waiter does the reverse (`Waiters::add`, then `try_lock`).
        fence(Ordering::SeqCst);
        if self.0.count.load(Ordering::Relaxed) != 0 {
            self.0.wake_one();
        }
    }
}

#[derive(Default)]
struct Waiters {
    /// Length of `queue`, readable without its lock.
    count: AtomicUsize,
    queue: SpinLock<VecDeque<Thread>>,
}

impl Waiters {
    const fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            queue: SpinLock::new(VecDeque::new()),
        }
    }

    fn add(&self, thread: Thread) {
        let mut queue = self.queue.lock();
        queue.push_back(thread);
        self.count.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        fence(Ordering::SeqCst);
    }

    fn remove(&self, thread: &Thread) {
        let mut queue = self.queue.lock();
        queue.retain(|waiter| waiter.id() != thread.id());
        self.count.store(queue.len(), Ordering::Relaxed);
    }

    #[cold]
    fn wake_one(&self) {
        let woken = {
            let mut queue = self.queue.lock();
            let woken = queue.pop_front();
            self.count.store(queue.len(), Ordering::Relaxed);
            woken
        };
        if let Some(thread) = woken {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn increments_of_many_threads_are_not_lost() {
        let counter = Arc::new(Mutex::new(0_u32));
        let threads: alloc::vec::Vec<_> = (0..4)
            .map(|_| {
                let counter = Arc::clone(&counter);
                crate::thread::spawn(move || {
                    for _ in 0..2_000 {
                        let mut guard = counter.lock();
                        let old = *guard;
                        crate::thread::yield_now();
                        *guard = old + 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join());
        assert_eq!(*counter.lock(), 8_000);
        assert_eq!(counter.waiters.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let lock = Mutex::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }
}
