//! [`Memory`]: how much of the heap the stack may take.

/// The memory that a stack may fill on behalf of its peers.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its size, bytes: bounds of tables and of all buffers together follow from it.
    pub total: u64,
    /// Whether this many bytes more may be allocated now on behalf of a peer.
    pub has_room: fn(usize) -> bool,
}

impl Memory {
    /// The heap of a host, whose size is not known: bounds as in 64 MiB, and always room.
    pub const UNLIMITED: Self = Self {
        total: 64 << 20,
        has_room: |_| true,
    };
}
