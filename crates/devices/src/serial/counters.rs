//! Counters of the serial port.

use crate::counters::counters;

counters! {
    /// What the serial port counts.
    pub struct SerialCounters {
        /// Interrupts raised.
        interrupts,
        /// Bytes that the guest sent.
        tx_bytes,
        /// Of those, bytes that the output refused.
        tx_dropped,
        /// Bytes that the guest got.
        rx_bytes,
        /// Bytes of input refused because the buffer was full; the monitor offers them again.
        rx_backpressure,
        /// Accesses wider than a byte or beyond the eight ports.
        malformed,
    }
}
