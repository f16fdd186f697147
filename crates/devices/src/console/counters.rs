//! Counters of a console.

use crate::counters::counters;

counters! {
    /// What a console counts, besides the transport.
    pub struct ConsoleCounters {
        /// Bytes that the host took.
        tx_bytes,
        /// Bytes that no reader takes: written to an input port, or to a port whose host end is
        /// closed.
        tx_discarded,
        /// Times that output waited for the host.
        tx_backpressure,
        /// Bytes that the driver got.
        rx_bytes,
        /// Times that the driver's buffers for input were used up.
        rx_backpressure,
        /// Control messages from the driver.
        control_received,
        /// Of those, messages with an invalid length, event, port or value.
        control_invalid,
        /// Control messages to the driver.
        control_sent,
        /// Messages that were too long for the driver's buffer.
        control_dropped,
    }
}
