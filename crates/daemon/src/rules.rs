//! Rules of a device that the main thread sets and the I/O thread applies.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rules of a device that the main and the I/O thread share. The I/O thread may hold the device's
/// mutex for as long as a disk takes, so the main thread never takes that: it leaves the rules
/// here, under a lock that is not held across I/O.
#[derive(Debug)]
pub struct SharedRules<R>(Mutex<(R, Change)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Made,
    Wanted,
}

impl<R: Copy> SharedRules<R> {
    /// The rules that the device has at the start.
    pub fn new(rules: R) -> Self {
        Self(Mutex::new((rules, Change::Made)))
    }

    /// The rules as last set.
    pub fn get(&self) -> R {
        self.lock().0
    }

    /// Sets them; wake the I/O thread afterwards.
    pub fn set(&self, rules: R) {
        *self.lock() = (rules, Change::Wanted);
    }

    /// For the I/O thread: rules that it has not applied yet.
    pub fn take_change(&self) -> Option<R> {
        let mut shared = self.lock();
        let change = std::mem::replace(&mut shared.1, Change::Made);
        (change == Change::Wanted).then_some(shared.0)
    }

    fn lock(&self) -> MutexGuard<'_, (R, Change)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_taken_over_once_and_read_without_the_device() {
        let shared = SharedRules::new(1);
        assert_eq!(shared.take_change(), None);
        shared.set(2);
        assert_eq!(shared.get(), 2);
        assert_eq!(shared.take_change(), Some(2));
        assert_eq!(shared.take_change(), None);
    }
}
