//! What the transport counts, besides the device.

tare_devices::counters! {
    /// What happens between the daemon and its front-end.
    pub struct VhostCounters {
        /// Front-ends that came.
        frontends,
        /// Front-ends that went, or were sent away.
        disconnects,
        /// Front-ends that were sent away because they did not send a message, or did not
        /// read their replies, in time.
        silent,
        /// Times that the system refused to accept a front-end.
        accept_failures,
        /// Messages that were executed.
        messages,
        /// Messages that are invalid or ask for an unsupported feature; each ends
        /// its connection.
        protocol_errors,
        /// Memory that could not be mapped: beyond its file's end, overlapping,
        /// too many regions.
        memory_refused,
        /// Front-ends that took memory away which they had shared; each is sent
        /// away.
        memory_lost,
        /// Times that the driver chose a cache mode.
        cache_changes,
        /// Attempts to change other device configuration, which cannot be changed.
        config_writes_refused,
        /// Times that the front-end was notified to read the configuration again.
        config_changes,
        /// Times that it could not be notified, since it did not read its channel.
        config_changes_lost,
        /// Queues that were started.
        queue_starts,
        /// Requests that an earlier process took and did not answer, done again.
        resubmitted,
        /// Times that the driver notified a queue.
        notifications,
        /// Descriptors for notifications that stopped working as eventfds.
        bad_notifiers,
        /// Interrupts that were sent.
        interrupts,
        /// Interrupts that the driver did not want.
        interrupts_suppressed,
        /// Interrupts that were held back by coalescing.
        interrupts_held,
        /// Broken queues: invalid chains or rings.
        malformed,
    }
}
