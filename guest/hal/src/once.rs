//! A cell that is written once, for statics that are set during boot or at
//! first use.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::cpu;

const EMPTY: u8 = 0;
const WRITING: u8 = 1;
const FULL: u8 = 2;

/// A value that is set at most once and then shared.
pub struct OnceCell<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: 1. One caller wins EMPTY to WRITING (`claim`) and writes the value. 2. Others read it
//    only after they have seen FULL, with acquire ordering, which pairs with the release in `fill`.
//    3. `T` is `Sync` for those readers, and `Send` since the cell may be filled on one CPU and
//    dropped on another.
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}
// SAFETY: 1. Whoever owns the cell owns the value, and `T` is `Send`.
unsafe impl<T: Send> Send for OnceCell<T> {}

impl<T> OnceCell<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) == FULL {
            // SAFETY: 1. FULL, seen with acquire ordering, comes after the write in `fill`. 2.
            //    Nothing writes a full cell: `claim` needs EMPTY, and `drop` needs the cell for
            //    itself.
            let value = unsafe { &*self.value.get() };
            // SAFETY: 1. FULL means that `fill` has written the value.
            Some(unsafe { value.assume_init_ref() })
        } else {
            None
        }
    }

    /// Sets the value; gives it back if the cell is taken.
    pub fn set(&self, value: T) -> Result<(), T> {
        if !self.claim() {
            return Err(value);
        }
        self.fill(value);
        Ok(())
    }

    /// The value, made by `make` if there is none. Another core that is making
    /// it is waited for with `pause`; `make` must not call back into this cell.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.get_or_init_with(make, cpu::pause)
    }

    /// As [`OnceCell::get_or_init`], calling `wait` while another makes the value.
    #[inline]
    pub fn get_or_init_with(&self, make: impl FnOnce() -> T, wait: impl Fn()) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.init(make, wait),
        }
    }

    #[cold]
    fn init(&self, make: impl FnOnce() -> T, wait: impl Fn()) -> &T {
        if self.claim() {
            self.fill(make());
        }
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            wait();
        }
    }

    fn claim(&self) -> bool {
        self.state
            .compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn fill(&self, value: T) {
        // SAFETY: 1. Only the winner of `claim` calls this, once. 2. No reference to the value
        //    exists: `get` gives one only after FULL, which is stored below.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL, Ordering::Release);
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceCell<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FULL {
            // SAFETY: 1. FULL means that `fill` has written the value. 2. `&mut self`: nothing
            //    shares the cell any more. 3. It is dropped once, with the cell.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays() {
        let cell = OnceCell::new();
        assert!(cell.get().is_none());
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.set(2), Err(2));
        assert_eq!(*cell.get_or_init(|| 3), 1);
    }
}
