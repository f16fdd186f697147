//! Which completions of a storage queue are worth an interrupt (vIC).
//!
//! The rule of vIC 2011 (`docs/background.md`): the deeper the queue, the more
//! completions may be held back without draining the pipeline, and the
//! decision rides on completions that arrive anyway. What was added to it and
//! why is in `docs/adr/0010-interrupt-coalescing.md`.
//!
//! One [`Coalescer`] belongs to one queue and is used from one thread:
//!
//! ```
//! use tare_policy::coalesce::{Coalescer, Decision, RequestKind, Settings};
//!
//! let mut coalescer = Coalescer::new(Settings::default());
//! coalescer.submitted(RequestKind::Read); // a request went to the backend
//! let now_ns = 1_000; // read once for each batch of completions
//! let mut wanted = Decision::Hold;
//! // For each completion of the batch, after its used entry is written:
//! let latency_ns = 800; // since its submission
//! wanted = wanted.or(coalescer.completed(now_ns, RequestKind::Read, latency_ns));
//! if wanted == Decision::Deliver {
//!     // `Virtqueue::decide`, perhaps an interrupt, and then:
//!     coalescer.caught_up(now_ns);
//! }
//! // Otherwise: have `expired` called when this time is reached.
//! assert_eq!(coalescer.deadline(), None);
//! ```
//!
//! The clock: any monotonic nanoseconds, read by the caller once a turn of its
//! event loop. A time that is a little stale only makes a hold shorter.
//!
//! The timer: a hold begins and ends much more often than it expires. Arm a
//! timer only when none is armed; when it fires, call
//! [`Coalescer::expired`], and arm it again if [`Coalescer::deadline`] is some
//! later time.

mod coalescer;
mod counters;
mod epoch;
mod in_flight;
mod ratio;
mod settings;
#[cfg(test)]
mod tests;
mod trial;

pub use coalescer::Coalescer;
pub use counters::{Cause, Counters, slot_of_hold};
pub use ratio::{RATIO_SLOTS, Ratio};
pub use settings::{Mode, Parameters, Settings, SettingsError};

/// What a request is to those who may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A read: urgent while few reads are in flight.
    Read,
    /// A write into a cache: urgent while few writes are in flight and the
    /// driver flushes.
    Write,
    /// A write that is durable when it completes (write-through, FUA): urgent.
    WriteThrough,
    /// A flush: urgent.
    Flush,
    /// Anything rare (discard, write-zeroes, get-id, a request in error):
    /// urgent.
    Control,
}

/// What to do about a completion's interrupt.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let the driver know now, of this completion and of all held ones.
    Deliver,
    /// Raise no interrupt yet.
    Hold,
}

impl Decision {
    /// The decision about both: one that must be delivered takes the other along.
    pub const fn or(self, other: Self) -> Self {
        match self {
            Self::Deliver => Self::Deliver,
            Self::Hold => other,
        }
    }
}
