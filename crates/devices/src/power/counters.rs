//! Counters of the power ports.

use crate::counters::counters;

counters! {
    /// What the power ports count.
    pub struct PowerCounters {
        /// Writes that end a run.
        events,
        /// Values without a meaning here; they had no effect.
        malformed,
    }
}
