//! What sockets can do without waiting, and what of it threads wait for.

/// What a socket can do without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is data, a connection, the end, or an error to fetch.
    pub readable: bool,
    /// There is room for data, or an error to fetch. A connection that is being
    /// opened is not writable.
    pub writable: bool,
    /// The peer has finished sending.
    pub peer_finished: bool,
    /// Nothing more can come or go.
    pub closed: bool,
    /// The connection was lost or refused.
    pub failed: bool,
}

impl Readiness {
    /// Whether this says anything about `interests`: an end or a failure
    /// concerns each of them.
    pub fn matches(&self, interests: Interests) -> bool {
        self.closed
            || self.failed
            || (interests.read && self.readable)
            || (interests.write && self.writable)
    }
}

/// What to wait for on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interests {
    read: bool,
    write: bool,
}

impl Interests {
    /// [`Readiness::readable`].
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// [`Readiness::writable`].
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    /// Both.
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };
    /// Only ends and failures.
    pub const NONE: Self = Self {
        read: false,
        write: false,
    };

    /// The queues of waiters to be in. Ends and failures wake both.
    pub fn queues(self) -> impl Iterator<Item = Interest> {
        let reads = (self.read || !self.write).then_some(Interest::Readable);
        let writes = self.write.then_some(Interest::Writable);
        reads.into_iter().chain(writes)
    }
}

/// What a thread waits for on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, the end, or a loss.
    Readable,
    /// Room for data, a completed handshake, or a loss.
    Writable,
}
