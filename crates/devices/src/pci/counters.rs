//! Counters of the bus.

use crate::counters::counters;

counters! {
    /// Accesses that reached the bus.
    pub struct BusCounters {
        /// Configuration space, by ports or by ECAM.
        config_accesses,
        /// BAR memory.
        memory_accesses,
        /// Accesses that no function answered: reads gave ones.
        unclaimed,
    }
}
