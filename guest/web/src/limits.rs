//! What a client may send, and for how long it may hold on.

use core::time::Duration;

use crate::body::BodyLimits;

/// Longest request head in bytes; beyond it 431.
pub const MAX_HEAD: usize = 16 * 1024;
/// Most header fields of a request; beyond it 431.
pub const MAX_FIELDS: usize = 64;
/// Longest request body in bytes; beyond it 413.
pub const MAX_BODY: usize = 1024 * 1024;
/// Most bytes of chunk extensions and trailers; beyond it 431.
pub const MAX_FRAMING: usize = 16 * 1024;
/// What a request's body may have.
pub(crate) const REQUEST_BODY: BodyLimits = BodyLimits {
    content: MAX_BODY as u64,
    framing: MAX_FRAMING,
};
/// Most connections at a time; beyond it 503. Memory may allow fewer.
pub const MAX_CONNECTIONS: usize = 1024;

/// How long a connection may be quiet between requests.
pub const IDLE: Duration = Duration::from_secs(60);
/// Time for a request head as a whole; beyond it 408.
pub const HEAD: Duration = Duration::from_secs(10);
/// Time for a request body as a whole; beyond it 408.
pub const BODY: Duration = Duration::from_secs(30);
/// How long a response may wait for the client, besides one second for each 4 KiB.
pub const WRITE: Duration = Duration::from_secs(20);
/// How long a refused client's remaining bytes are awaited: closing with bytes unread
/// resets the connection and may take the answer with it.
pub const LINGER: Duration = Duration::from_secs(2);

/// Requests answered in a row before other connections get a turn.
pub(crate) const BATCH: u32 = 16;
/// Buffer of a connection between requests, bytes.
pub(crate) const BUFFER: usize = 1024;
/// Slowest client, bytes a second.
pub(crate) const LEAST_RATE: usize = 4096;
