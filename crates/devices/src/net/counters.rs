//! Counters of a network device.

use crate::counters::counters;

counters! {
    /// What a network device counts, besides the transport. "rx" is towards
    /// the guest.
    pub struct NetCounters {
        /// Frames given to the guest.
        rx_frames,
        /// Their bytes, without virtio headers.
        rx_bytes,
        /// Frames that the guest's buffers could never hold, or with an offload that the driver did
        /// not accept.
        rx_dropped,
        /// Times that frames waited in the link for receive buffers.
        rx_backpressure,
        /// Times that frames for the guest waited for the limit.
        rx_limited,
        /// Frames given to the link.
        tx_frames,
        /// Their bytes, without virtio headers.
        tx_bytes,
        /// Frames that were too long, empty or for a closed link, or that requested an offload
        /// without negotiation.
        tx_dropped,
        /// Times that frames waited in the guest's queue for the link.
        tx_backpressure,
        /// Times that frames of the guest waited for the limit.
        tx_limited,
        /// Checksums completed on behalf of guest or link.
        checksums,
        /// Frames from the guest with an invalid header.
        malformed,
        /// Failures of the link; after the first it counts as down.
        link_errors,
    }
}
