//! What a coalescer counts: plain numbers that only grow, for the live view.

use super::RATIO_SLOTS;

/// Slots of the distribution of hold times.
pub(crate) const HOLD_SLOTS: usize = 32;

/// Why completions were let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The ratio's cycle says so (always, when R is 1).
    Ratio,
    /// Few commands were in flight.
    Shallow,
    /// The request was so quick that any hold would show.
    Quick,
    /// A thread of the guest waits for the completion that came.
    Urgent,
    /// A completion had been held for the longest time.
    Deadline,
    /// Fewer commands were in flight than when the ratio was chosen.
    Stale,
    /// The driver got an interrupt for, or saw, what had been completed.
    CaughtUp,
    /// Settings changed, or the queue was reset.
    Changed,
}

impl Cause {
    /// Every cause, in the order of the counters' arrays.
    pub const ALL: [Self; 8] = [
        Self::Ratio,
        Self::Shallow,
        Self::Quick,
        Self::Urgent,
        Self::Deadline,
        Self::Stale,
        Self::CaughtUp,
        Self::Changed,
    ];

    /// A short name for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Shallow => "shallow",
            Self::Quick => "quick",
            Self::Urgent => "urgent",
            Self::Deadline => "deadline",
            Self::Stale => "stale",
            Self::CaughtUp => "caught_up",
            Self::Changed => "changed",
        }
    }
}

/// Counts since the coalescer was made. Always: `completions` is `delivered`
/// plus `held`, and `held` is the sum of `released` plus what is held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Completions reported.
    pub completions: u64,
    /// Completions that were delivered as they came.
    pub delivered: u64,
    /// Completions that were held.
    pub held: u64,
    /// Completions delivered as they came, by [`Cause`] (`Cause as usize`).
    pub delivered_by: [u64; Cause::ALL.len()],
    /// Held completions let go, by [`Cause`].
    pub released: [u64; Cause::ALL.len()],
    /// Deliveries without a completion: the longest hold had passed.
    pub expiries: u64,
    /// Runs of held completions that ended, by how long the first of them had
    /// been held, see [`slot_of_hold`].
    pub hold_time: [u64; HOLD_SLOTS],
    /// The longest of these times.
    pub longest_hold_ns: u64,
    /// Completions of requests that were never submitted: an error of the caller.
    pub unmatched: u64,
    /// Epochs that began.
    pub epochs: u64,
    /// Epochs by the R that was chosen for them, see
    /// [`Ratio::slot`](super::Ratio::slot).
    pub ratio_epochs: [u64; RATIO_SLOTS],
    /// Completions by the R of their epoch, once it has ended.
    pub ratio_completions: [u64; RATIO_SLOTS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            completions: 0,
            delivered: 0,
            held: 0,
            delivered_by: [0; Cause::ALL.len()],
            released: [0; Cause::ALL.len()],
            expiries: 0,
            hold_time: [0; HOLD_SLOTS],
            longest_hold_ns: 0,
            unmatched: 0,
            epochs: 0,
            ratio_epochs: [0; RATIO_SLOTS],
            ratio_completions: [0; RATIO_SLOTS],
        }
    }
}

/// The slot of a hold time: slot n holds times from 2^n to below 2^(n+1) ns,
/// the first also 0, the last all longer ones.
pub const fn slot_of_hold(hold_ns: u64) -> usize {
    let slot = (hold_ns | 1).ilog2() as usize;
    if slot < HOLD_SLOTS {
        slot
    } else {
        HOLD_SLOTS - 1
    }
}
