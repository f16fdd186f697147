//! What a client may ask of the server, and for how long it may hold on.

use core::time::Duration;

/// Longest key in bytes.
pub const MAX_KEY: usize = 250;
/// Longest value in bytes. Memcached counts key and header in this limit; here
/// a value may be a full mebibyte.
pub const MAX_VALUE: usize = 1 << 20;
/// Longest command line other than of `get` and `gets`, as far as it has come
/// without an end; beyond it the connection is closed.
pub const MAX_LINE: usize = 2048;
/// Longest line of a `get` or `gets`; beyond it the connection is closed.
pub(crate) const MAX_GET_LINE: usize = 1 << 20;
/// Buffer of a connection as long as its requests fit in.
pub const BUFFER: usize = 2048;
/// Largest buffer that a connection keeps while it waits.
pub(crate) const KEPT_BUFFER: usize = 16 * 1024;
/// Answers are sent when they have come to this, or nothing is left to do.
pub(crate) const SEND_AT: usize = 16 * 1024;
/// Longest relative expiry; a larger number is a time since 1970.
pub(crate) const MAX_RELATIVE_S: i32 = 60 * 60 * 24 * 30;
/// How long a client may refuse to take its answers.
pub const WRITE: Duration = Duration::from_secs(30);
/// Commands served in a row before other threads get a turn.
pub const BATCH: u32 = 64;
