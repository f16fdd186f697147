//! Counters of an entropy device.

use crate::counters::counters;

counters! {
    /// What an entropy device counts, besides the transport.
    pub struct RngCounters {
        /// Requests answered.
        requests,
        /// Random bytes given.
        bytes,
        /// Requests that got nothing because the source failed.
        source_errors,
    }
}
