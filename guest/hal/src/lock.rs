//! Spin locks. [`SpinLock`] is for data that only threads touch; [`IrqLock`]
//! also keeps interrupts off while held, for data that interrupt handlers
//! touch too. Both `pause` while they wait. A thread must not switch away
//! while it holds either: the next thread on its core would spin forever.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::{self, InterruptState};

/// A test-and-set lock that waits with `pause`.
#[derive(Default)]
pub struct SpinLock<T: ?Sized> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: 1. `try_lock` gives out one guard at a time: `held` goes from false to true by one swap,
//    and back only when the guard is dropped. 2. Acquire there and release here order the holders'
//    accesses. 3. So `T: Send` is enough.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: 1. Whoever owns the lock owns the value, and `T` is `Send`.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, when nothing can hold the lock any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.held.load(Ordering::Relaxed) {
                cpu::pause();
            }
        }
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        if self.held.swap(true, Ordering::Acquire) {
            None
        } else {
            Some(SpinGuard { lock: self })
        }
    }

    /// Exclusive access without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("SpinLock").field(&&*guard).finish(),
            None => f.write_str("SpinLock(<held>)"),
        }
    }
}

/// Access to the value of a held [`SpinLock`]; releases it when dropped.
pub struct SpinGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
}

impl<T: ?Sized> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: 1. A guard exists only while its lock is held, by it alone (`try_lock`), so that
        //    no `&mut T` exists but through it. 2. That one would borrow the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. A guard exists only while its lock is held, by it alone (`try_lock`). 2. The
        //    guard is borrowed exclusively, so that it has given out no other reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}

// SAFETY: 1. A shared guard gives out `&T` only, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for SpinGuard<'_, T> {}

/// A spin lock that keeps this core's interrupts off while it is held.
#[derive(Debug, Default)]
pub struct IrqLock<T: ?Sized> {
    lock: SpinLock<T>,
}

impl<T> IrqLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            lock: SpinLock::new(value),
        }
    }
}

impl<T: ?Sized> IrqLock<T> {
    /// Turns interrupts off, then waits for the lock.
    #[inline]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let interrupts = cpu::disable_interrupts();
        IrqGuard {
            guard: core::mem::ManuallyDrop::new(self.lock.lock()),
            interrupts,
        }
    }

    /// The lock with interrupts off, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let interrupts = cpu::disable_interrupts();
        match self.lock.try_lock() {
            Some(guard) => Some(IrqGuard {
                guard: core::mem::ManuallyDrop::new(guard),
                interrupts,
            }),
            None => {
                cpu::restore_interrupts(interrupts);
                None
            }
        }
    }
}

/// Access to the value of a held [`IrqLock`]; when dropped, releases it and
/// puts the interrupt flag back.
pub struct IrqGuard<'a, T: ?Sized> {
    guard: core::mem::ManuallyDrop<SpinGuard<'a, T>>,
    interrupts: InterruptState,
}

impl<T: ?Sized> Deref for IrqGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for IrqGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized> Drop for IrqGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1. The guard was made by `lock` or `try_lock` and is dropped here only, once. 2.
        //    The field is not used afterwards: `self` is being dropped.
        unsafe { core::mem::ManuallyDrop::drop(&mut self.guard) };
        cpu::restore_interrupts(self.interrupts);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn increments_of_many_threads_are_not_lost() {
        let counter = Arc::new(SpinLock::new(0_u32));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || (0..10_000).for_each(|_| *counter.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("thread"));
        assert_eq!(*counter.lock(), 40_000);
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let lock = IrqLock::new(1);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(lock.try_lock().map(|g| *g), Some(1));
    }
}
