//! [`Counters`].

/// What the network has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames that the device delivered.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Frames with lengths or headers that make no sense.
    pub malformed: u64,
    /// Frames with a wrong checksum.
    pub bad_checksum: u64,
    /// IP fragments, which are not put together.
    pub fragments: u64,
    /// Frames that are neither ARP nor IPv4.
    pub other_protocol: u64,
    /// Frames from addresses that cannot be on the wire.
    pub martian: u64,
    /// TCP connections in the table now, in any state.
    pub connections: u64,
    /// Of these, how many the application has closed; they wait for their peers.
    pub orphans: u64,
    /// Closed connections forgotten early, to stay within the limits.
    pub orphans_evicted: u64,
    /// TCP connections accepted into a listener's queue.
    pub accepted: u64,
    /// SYNs dropped because a listener's queue was full.
    pub backlog_full: u64,
    /// Half-open connections given up for newer ones.
    pub half_open_evicted: u64,
    /// SYNs dropped for lack of memory or table space.
    pub refused: u64,
}
