//! What a client may ask of the server, and for how long it may hold on.

use core::time::Duration;

use tare_web::body::BodyLimits;

/// Longest request head in bytes; beyond it 431, or 414 if it is the target.
pub const MAX_HEAD: usize = 16 * 1024;
/// Longest request target in bytes; beyond it 414.
pub(crate) const MAX_TARGET: usize = 8 * 1024;
/// Most header fields of a request; beyond it 431.
pub(crate) const MAX_FIELDS: usize = 100;
/// Most bytes of a request body that are read and thrown away; if more are to come, 413. No
/// resource of a static server has a use for a body.
pub const MAX_BODY: u64 = 64 * 1024;
/// What a body that is thrown away may have.
pub(crate) const DISCARDED: BodyLimits = BodyLimits {
    content: MAX_BODY,
    framing: MAX_HEAD,
};
/// Buffer of a connection as long as its requests fit in.
pub const BUFFER: usize = 1024;

/// How long a connection may stay quiet between requests.
pub const IDLE: Duration = Duration::from_secs(60);
/// Time for a request head as a whole, from its first byte to its end.
pub const HEAD: Duration = Duration::from_secs(10);
/// Time for a request body as a whole.
pub const BODY: Duration = Duration::from_secs(10);
/// How long a single write may wait for the client's window.
pub const WRITE: Duration = Duration::from_secs(20);
/// Slowest client in bytes a second, as a shift: a response of `n` bytes gets
/// [`WRITE`] and one second for each `1 << MIN_RATE_SHIFT` bytes.
pub(crate) const MIN_RATE_SHIFT: u32 = 12;
/// How long a refused client's remaining bytes are awaited, so that it gets
/// to read the answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// The same for a connection beyond the limit, whose thread is the one that
/// accepts the others.
pub(crate) const REFUSED_LINGER: Duration = Duration::from_millis(10);

/// Requests served in a row before other threads get a turn.
pub const BATCH: u32 = 16;
