//! [`Error`]: a kind and a short reason, without allocation.

use core::fmt;

/// Result of an operation on a socket or file.
pub type Result<T> = core::result::Result<T, Error>;

/// What went wrong, in `std::io::ErrorKind`'s words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or directory.
    NotFound,
    /// The other side answered with a reset when asked to connect.
    ConnectionRefused,
    /// The other side, or a lost path, ended the connection.
    ConnectionReset,
    /// The connection was ended on this side.
    ConnectionAborted,
    /// The socket is not connected.
    NotConnected,
    /// Another socket has the address.
    AddrInUse,
    /// No interface has the address.
    AddrNotAvailable,
    /// There is no route, or no network interface.
    NetworkUnreachable,
    /// Writing after the write half was shut down.
    BrokenPipe,
    /// The operation would block.
    WouldBlock,
    /// A parameter makes no sense.
    InvalidInput,
    /// Data read makes no sense.
    InvalidData,
    /// A time limit passed.
    TimedOut,
    /// `write` accepted no bytes.
    WriteZero,
    /// The data ended early.
    UnexpectedEof,
    /// A path component is not a directory.
    NotADirectory,
    /// A directory was opened as a file.
    IsADirectory,
    /// A datagram is larger than the protocol carries.
    MessageTooLong,
    /// Too many sockets or ports are in use.
    ResourceBusy,
    /// What was requested does not exist here.
    Unsupported,
    /// Anything else.
    Other,
}

impl ErrorKind {
    const fn description(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::ConnectionRefused => "connection refused",
            Self::ConnectionReset => "connection reset",
            Self::ConnectionAborted => "connection aborted",
            Self::NotConnected => "not connected",
            Self::AddrInUse => "address in use",
            Self::AddrNotAvailable => "address not available",
            Self::NetworkUnreachable => "network unreachable",
            Self::BrokenPipe => "broken pipe",
            Self::WouldBlock => "operation would block",
            Self::InvalidInput => "invalid input",
            Self::InvalidData => "invalid data",
            Self::TimedOut => "timed out",
            Self::WriteZero => "write accepted no bytes",
            Self::UnexpectedEof => "unexpected end of data",
            Self::NotADirectory => "not a directory",
            Self::IsADirectory => "is a directory",
            Self::MessageTooLong => "message too long",
            Self::ResourceBusy => "resource busy",
            Self::Unsupported => "unsupported",
            Self::Other => "other error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// Why an operation on a socket or file failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    reason: Option<&'static str>,
}

impl Error {
    /// An error with a reason beside its kind.
    pub const fn new(kind: ErrorKind, reason: &'static str) -> Self {
        Self {
            kind,
            reason: Some(reason),
        }
    }

    /// What went wrong.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, reason: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.unwrap_or(self.kind.description()))
    }
}

impl core::error::Error for Error {}
