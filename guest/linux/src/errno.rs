//! Error numbers, as system calls return them.

use linux_raw_sys::errno;
use tare_libos::io::{Error, ErrorKind};

/// A system call's error (kernel `include/uapi/asm-generic/errno.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

/// A system call's result: what RAX gets.
pub type Result<T = u64> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(dead_code)] // the numbers that calls may return
        impl Errno {
            $(#[allow(missing_docs)] pub const $name: Self = Self(errno::$name);)*
        }
    };
}

errnos!(EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS
    EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP EOVERFLOW ENOTSOCK
    EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE
    EADDRNOTAVAIL ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
    ECONNREFUSED EALREADY EINPROGRESS EUCLEAN EBADMSG EDQUOT);

impl Errno {
    /// What RAX gets.
    pub(crate) const fn to_rax(self) -> u64 {
        -(self.0 as i64) as u64
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::ENOENT,
            ErrorKind::ConnectionRefused => Self::ECONNREFUSED,
            ErrorKind::ConnectionReset => Self::ECONNRESET,
            ErrorKind::ConnectionAborted => Self::ECONNABORTED,
            ErrorKind::NotConnected => Self::ENOTCONN,
            ErrorKind::AddrInUse => Self::EADDRINUSE,
            ErrorKind::AddrNotAvailable => Self::EADDRNOTAVAIL,
            ErrorKind::NetworkUnreachable => Self::ENETUNREACH,
            ErrorKind::BrokenPipe => Self::EPIPE,
            ErrorKind::WouldBlock => Self::EAGAIN,
            ErrorKind::InvalidInput | ErrorKind::InvalidData => Self::EINVAL,
            ErrorKind::TimedOut => Self::ETIMEDOUT,
            ErrorKind::NotADirectory => Self::ENOTDIR,
            ErrorKind::IsADirectory => Self::EISDIR,
            ErrorKind::MessageTooLong => Self::EMSGSIZE,
            ErrorKind::ResourceBusy => Self::ENOBUFS,
            ErrorKind::Unsupported => Self::EOPNOTSUPP,
            _ => Self::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rax_gets_the_negative_number() {
        assert_eq!(Errno::EPERM.to_rax(), u64::MAX);
        assert_eq!(Errno::ENOSYS.to_rax(), (-38_i64) as u64);
    }
}
