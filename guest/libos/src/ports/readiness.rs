//! What can be done with a port without waiting, and within which limits.

/// Bytes that are on their way to the host at most, as in a pipe.
pub const CAPACITY: usize = 64 * 1024;
/// Bytes up to which a write is not divided (`PIPE_BUF`).
pub const ATOMIC: usize = 4096;

/// What can be done with a port without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There are bytes to read.
    pub readable: bool,
    /// There is room for [`ATOMIC`] bytes.
    pub writable: bool,
    /// The host's end is closed: nothing more comes, or no process takes what is written.
    pub closed: bool,
}
