//! Signals: sets of them, and what each does (`sigaction(2)`).

use linux_raw_sys::general::{SIGKILL, SIGSTOP};

use crate::errno::{Errno, Result};

/// Number behind the last signal.
pub(crate) const END: u32 = 65;
/// What a signal does where the program has set nothing.
pub(crate) const DEFAULT: u64 = 0;
/// A signal that does nothing.
pub(crate) const IGNORE: u64 = 1;

/// A set of signals, bit by number from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) u64);

impl Mask {
    /// The set with one signal.
    pub(crate) const fn of(signal: u32) -> Self {
        Self(1 << (signal - 1))
    }

    /// Without those that cannot be blocked.
    pub(crate) const fn blockable(self) -> Self {
        Self(self.0 & !(Self::of(SIGKILL).0 | Self::of(SIGSTOP).0))
    }
}

/// What a signal does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

/// What each signal does.
pub(crate) struct Actions([Action; END as usize]);

impl Actions {
    pub(crate) const fn new() -> Self {
        let none = Action {
            handler: DEFAULT,
            flags: 0,
            restorer: 0,
            mask: 0,
        };
        Self([none; END as usize])
    }

    /// Takes all handlers away: what is ignored stays so (`flush_signal_handlers` of kernel
    /// kernel/signal.c).
    pub(crate) fn forget_handlers(&mut self) {
        for action in &mut self.0 {
            let is_ignored = action.handler == IGNORE;
            *action = Action {
                handler: if is_ignored { IGNORE } else { DEFAULT },
                flags: 0,
                restorer: 0,
                mask: 0,
            };
        }
    }

    pub(crate) fn get(&self, signal: u32) -> Action {
        self.0[(signal % END) as usize]
    }

    /// Sets an action; gives the old one.
    pub(crate) fn set(&mut self, signal: u32, action: Action) -> Result<Action> {
        if signal == SIGKILL || signal == SIGSTOP {
            return Err(Errno::EINVAL);
        }
        Ok(core::mem::replace(
            &mut self.0[(signal % END) as usize],
            action,
        ))
    }
}
