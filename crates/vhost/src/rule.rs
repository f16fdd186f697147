//! The coalescing rule that main and I/O thread share, without a lock that I/O holds:
//! settings are read and changed while a request, or the disk, hangs.

use std::sync::{Mutex, PoisonError};

use tare_policy::coalesce::Settings;

/// The rule in force, and whether the I/O thread has to take it over.
#[derive(Debug)]
pub(crate) struct SharedRule(Mutex<(Settings, Change)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Made,
    Wanted,
}

impl SharedRule {
    pub(crate) fn new(rule: Settings) -> Self {
        Self(Mutex::new((rule, Change::Made)))
    }

    /// The rule as last set.
    pub(crate) fn get(&self) -> Settings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sets it; wake the I/O thread afterwards.
    pub(crate) fn set(&self, rule: Settings) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (rule, Change::Wanted);
    }

    /// For the I/O thread: a rule that it has not made its own.
    pub(crate) fn take_change(&self) -> Option<Settings> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let change = std::mem::replace(&mut shared.1, Change::Made);
        (change == Change::Wanted).then_some(shared.0)
    }
}
