//! [`ForwardCounters`].

use tare_devices::counters;

counters! {
    /// What a table counts. "in" is towards the guest.
    pub struct ForwardCounters {
        /// Connections of clients that were accepted.
        forward_opened,
        /// Of these, the ones that both sides ended.
        forward_closed,
        /// Of these, the ones that the guest refused, reset, or no longer answered.
        forward_lost,
        /// Of these, the ones that the client reset.
        forward_aborted,
        /// Clients whose connection had no place, or an address that the guest cannot answer.
        forward_refused,
        /// Times that no client was accepted for a while: no descriptor or memory was left for one.
        forward_pauses,
        /// Bytes from clients.
        forward_in_bytes,
        /// Bytes to clients.
        forward_out_bytes,
        /// Segments to the guest that were sent again.
        forward_resent,
        /// Segments of the guest for no connection.
        forward_strays,
        /// Datagrams from clients of UDP ports.
        forward_datagrams_in,
        /// The guest's answers to them.
        forward_datagrams_out,
        /// Datagrams that were dropped: by IPv6 longer than a packet, from an address that the guest cannot answer, or not
        /// taken by the host's socket.
        forward_datagrams_dropped,
        /// Fragments of answers that were dropped: they contradict each other, others were missing for 30 s, or there were too many.
        forward_fragments_dropped,
        /// Frames of the guest that are neither TCP nor a client's datagram nor a question for the gateway's address,
        /// where no passt is on the wire, or none that they would start.
        forward_unclaimed,
        /// Times that passt was started: with the machine, or by a frame of the guest.
        forward_passt_started,
        /// Times that it ended, or did not start.
        forward_passt_ended,
        /// Frames of the guest that passt did not get: longer than it takes, or segments cut from a longer one that it
        /// had no room for.
        forward_passt_dropped,
        /// Frames of the guest that contradict themselves.
        forward_malformed,
    }
}
