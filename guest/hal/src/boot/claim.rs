//! [`Claim`]: whether a value is shared forever, with any number of users, or moved to
//! one of them.

use core::sync::atomic::{AtomicU8, Ordering};

/// Neither shared nor moved.
const UNUSED: u8 = 0;
const LENT: u8 = 1;
const TAKEN: u8 = 2;

/// Shared forever, or moved once, whichever comes first.
pub(super) struct Claim(AtomicU8);

impl Claim {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(UNUSED))
    }

    /// Whether it is lent from now on, or was before.
    pub(super) fn lend(&self) -> bool {
        matches!(self.begin(LENT), Ok(_) | Err(LENT))
    }

    /// Whether it is the caller's alone from now on.
    pub(super) fn take(&self) -> bool {
        self.begin(TAKEN).is_ok()
    }

    fn begin(&self, state: u8) -> Result<u8, u8> {
        let relaxed = Ordering::Relaxed;
        self.0.compare_exchange(UNUSED, state, relaxed, relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_lent_again_and_never_taken() {
        let claim = Claim::new();
        assert!(claim.lend() && claim.lend());
        assert!(!claim.take());
        assert!(claim.lend());
    }

    #[test]
    fn what_is_taken_is_neither_lent_nor_taken_again() {
        let claim = Claim::new();
        assert!(claim.take());
        assert!(!claim.take() && !claim.lend());
    }
}
