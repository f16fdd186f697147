//! Descriptors inherited from `tare`: each is taken once, by number; those that the
//! configuration does not name are closed.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use tare_control::config::Descriptor;
use vmm_sys_util::eventfd::EventFd;

const FIRST: RawFd = 3;

/// Why a descriptor cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The open descriptors cannot be listed.
    #[error("cannot list the inherited descriptors")]
    List(#[source] io::Error),
    /// It is not open, is a standard stream, or has been taken.
    #[error(
        "descriptor {0} of the configuration is not one that the monitor inherited for it alone"
    )]
    NotInherited(RawFd),
    /// It cannot be closed on exec.
    #[error("descriptor {fd} of the configuration cannot be used")]
    Unusable {
        /// Which.
        fd: RawFd,
        /// Why.
        source: io::Error,
    },
}

/// The descriptors that this process was started with, from 3 up.
#[derive(Debug)]
pub struct Inherited {
    open: BTreeSet<RawFd>,
}

impl Inherited {
    /// Takes ownership of all of them. Must be called once, before anything else in the process
    /// owns a descriptor.
    pub fn all() -> Result<Self, InheritError> {
        let mut open = BTreeSet::new();
        let entries = std::fs::read_dir("/proc/self/fd").map_err(InheritError::List)?;
        for entry in entries {
            let name = entry.map_err(InheritError::List)?.file_name();
            let fd = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
            open.extend(fd.filter(|fd| *fd >= FIRST));
        }
        // The descriptor that listed them is closed again.
        open.retain(|fd| is_open(*fd));
        Ok(Self { open })
    }

    /// The descriptor, closed on exec from now on.
    pub fn take(&mut self, descriptor: Descriptor) -> Result<OwnedFd, InheritError> {
        let Descriptor(fd) = descriptor;
        if !self.open.remove(&fd) {
            return Err(InheritError::NotInherited(fd));
        }
        // SAFETY: it was open when the process began, nothing else owns it
        // (`all` came first), and it was taken out of the set just now.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).map_err(|errno| {
            InheritError::Unusable {
                fd,
                source: errno.into(),
            }
        })?;
        Ok(owned)
    }

    /// Closes what was not taken.
    pub(crate) fn close_rest(self) {
        for fd in self.open {
            // SAFETY: as in `take`; dropping the owner closes it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks for a flag of a number, whatever it is.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// An eventfd as a borrowed descriptor: vmm-sys-util's type gives only its number.
pub(crate) fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the number is that of a descriptor that `event` owns, and the
    // result lives no longer than the borrow of `event`.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}
