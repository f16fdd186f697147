//! Counters of a console.

use crate::counters::counters;

counters! {
    /// What a console counts, besides the transport.
    pub struct ConsoleCounters {
        /// Bytes that the host took.
        tx_bytes,
        /// Bytes that no reader takes: a port of input, or its host's end is closed.
        tx_discarded,
        /// Times that output waited for the host.
        tx_backpressure,
        /// Bytes that the driver got.
        rx_bytes,
        /// Times that the driver's buffers for input were used up.
        rx_backpressure,
        /// Control messages from the driver.
        control_received,
        /// Of those, messages of another length, event, port or value than there is.
        control_invalid,
        /// Control messages to the driver.
        control_sent,
        /// Messages to the driver that its buffer was too short for.
        control_dropped,
    }
}
