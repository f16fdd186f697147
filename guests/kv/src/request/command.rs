//! The commands, as they are carried out.

use super::meta::{Key, Meta};
use super::reply::Reply;
use super::words::Words;

/// What the bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A command of that many bytes.
    Command(Command<'a>, usize),
    /// A line that has not ended yet.
    Line,
    /// A storage command whose data is not there yet.
    Data {
        /// Bytes of the command as a whole.
        total: usize,
        /// Its kind.
        verb: Verb,
        /// Its key.
        key: Key<'a>,
    },
    /// An HTTP request for the figures whose fields have not ended yet.
    Fields,
    /// Nothing that could become a command; the connection is to be closed.
    Hopeless,
}

/// A command that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set` and its family.
    Store(Entry<'a>, Reply),
    /// One of them whose value is too long; its data is still to come.
    TooLarge {
        /// Its kind.
        verb: Verb,
        /// Its key.
        key: Key<'a>,
        /// Bytes after the line that are to be skipped.
        data: usize,
        /// Whether to answer.
        reply: Reply,
    },
    /// A storage command that is malformed but for its length; its data is still to come.
    Refused {
        /// What to answer.
        text: &'static [u8],
        /// Bytes after the line that are to be skipped.
        data: usize,
    },
    /// `incr` and `decr`.
    Arithmetic {
        /// The item.
        key: &'a [u8],
        /// Which of the two.
        direction: Direction,
        /// By how much.
        delta: u64,
        /// Whether to answer.
        reply: Reply,
    },
    /// `delete`.
    Delete(&'a [u8], Reply),
    /// `touch`, with its expiry as given.
    Touch(&'a [u8], i32, Reply),
    /// `flush_all`, with its delay as given, else 0.
    FlushAll(i32, Reply),
    /// `stats`, with its group or nothing.
    Stats(&'a [u8]),
    /// `mg` and its family.
    Meta(Meta<'a>),
    /// `version`.
    Version,
    /// `GET /metrics` over HTTP.
    Metrics,
    /// Whatever has only an answer; none is empty.
    Answer(&'static [u8]),
    /// `quit`, or another protocol.
    Close,
}

/// What `get` and its family ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys, each of a valid length.
    pub keys: Words<'a>,
    /// Whether the unique number is shown.
    pub form: Form,
    /// The new expiry, if there is one.
    pub touch: Option<i32>,
}

/// How an item is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Key, flags, length, value.
    Plain,
    /// With its unique number.
    WithCas,
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its kind.
    pub verb: Verb,
    /// Its key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Expiry as given.
    pub exptime: i32,
    /// The value.
    pub value: &'a [u8],
}

/// The kind of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Whatever there was.
    Set,
    /// Only what is new.
    Add,
    /// Only what there is.
    Replace,
    /// Behind what there is.
    Append,
    /// Before what there is.
    Prepend,
    /// Only what still has this number.
    Cas(u64),
}

/// The sign of an arithmetic command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `incr`, modulo 2^64.
    Up,
    /// `decr`, not below 0.
    Down,
}

pub(super) const ERROR: Command<'static> = Command::Answer(b"ERROR\r\n");
pub(super) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub(super) const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(super) const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub(super) const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
