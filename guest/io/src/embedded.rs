//! `embedded-io`'s errors: what crates without std that take any reader or writer work with.

use crate::{Error, ErrorKind};

impl embedded_io::Error for Error {
    fn kind(&self) -> embedded_io::ErrorKind {
        self.kind().into()
    }
}

/// Kinds that `embedded-io` does not have become `Other`.
impl From<ErrorKind> for embedded_io::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            ErrorKind::ConnectionReset => Self::ConnectionReset,
            ErrorKind::ConnectionAborted => Self::ConnectionAborted,
            ErrorKind::NotConnected => Self::NotConnected,
            ErrorKind::AddrInUse => Self::AddrInUse,
            ErrorKind::AddrNotAvailable => Self::AddrNotAvailable,
            ErrorKind::BrokenPipe => Self::BrokenPipe,
            ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::InvalidData => Self::InvalidData,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::WriteZero => Self::WriteZero,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::NetworkUnreachable
            | ErrorKind::WouldBlock
            | ErrorKind::UnexpectedEof
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::MessageTooLong
            | ErrorKind::ResourceBusy
            | ErrorKind::Other => Self::Other,
        }
    }
}
