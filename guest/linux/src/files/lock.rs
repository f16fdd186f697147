//! Locks of whole files (`flock(2)`): shared or exclusive, of an open file.

use alloc::vec::Vec;

use tare_libos::sync::SpinLock;

use super::Watchers;
use crate::errno::{Errno, Result};

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Shared,
    Exclusive,
}

/// The lock of a file: those who hold it, by what names their open file.
#[derive(Default)]
pub(crate) struct Lock {
    holders: SpinLock<Vec<(usize, How)>>,
    pub(super) watchers: Watchers,
}

impl Lock {
    /// Locks, or changes what `who` holds; EAGAIN while others are in the way, when `who`
    /// has lost what it held.
    pub(crate) fn take(&self, who: usize, how: How) -> Result<()> {
        let mut holders = self.holders.lock();
        let had = holders.len();
        holders.retain(|(holder, _)| *holder != who);
        let is_released = holders.len() < had;
        let is_free = holders
            .iter()
            .all(|(_, other)| *other == How::Shared && how == How::Shared);
        if is_free {
            holders.push((who, how));
        }
        // Only what was given back makes way: a thread that waits here itself would else
        // wake itself at each look.
        drop(holders);
        if is_released {
            self.watchers.wake();
        }
        if is_free { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// Gives back what `who` holds.
    pub(crate) fn give(&self, who: usize) {
        self.holders.lock().retain(|(holder, _)| *holder != who);
        self.watchers.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_locks_keep_an_exclusive_one_away() {
        let lock = Lock::default();
        assert_eq!(lock.take(1, How::Shared), Ok(()));
        assert_eq!(lock.take(2, How::Shared), Ok(()));
        assert_eq!(lock.take(2, How::Exclusive), Err(Errno::EAGAIN));
        lock.give(1);
        assert_eq!(lock.take(2, How::Exclusive), Ok(()));
        assert_eq!(lock.take(1, How::Shared), Err(Errno::EAGAIN));
        assert_eq!(lock.take(2, How::Shared), Ok(()));
        assert_eq!(lock.take(1, How::Shared), Ok(()));
    }
}
