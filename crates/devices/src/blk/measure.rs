//! Finds the length of a file whose file system may have to ask a server: statx(2) on a kernel
//! thread, through a ring that can do nothing else.
//!
//! For a read beyond the end that the kernel knows, FUSE does not ask its server (seen with
//! FOPEN_DIRECT_IO on Linux 6.18). Any other call blocks the calling thread.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// One query at a time. Never dropped with a query in flight: the kernel writes to its memory.
pub(super) struct Measurement {
    ring: IoUring,
    event: EventFd,
    file: File,
    /// What the kernel fills.
    found: Box<libc::statx>,
}

// SAFETY: `found` is plain data, which only the kernel and the owner of this access.
unsafe impl Send for Measurement {}

impl Measurement {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder().setup_r_disabled().build(1)?;
        let event = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let submitter = ring.submitter();
        submitter.register_eventfd(event.as_raw_fd())?;
        // The kernel refuses a registered file in this operation.
        let mut allowed = [Restriction::sqe_op(opcode::Statx::CODE)];
        submitter.register_restrictions(&mut allowed)?;
        submitter.register_enable_rings()?;
        // SAFETY: a structure of integers, for which all zeros are valid.
        let found = Box::new(unsafe { std::mem::zeroed() });
        Ok(Self {
            ring,
            event,
            file: file.try_clone()?,
            found,
        })
    }

    /// Begins a query. The caller has taken the answer to the one before.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        let found: *mut libc::statx = &mut *self.found;
        let statx = opcode::Statx::new(
            types::Fd(self.file.as_raw_fd()),
            c"".as_ptr(),
            found.cast::<types::statx>(),
        );
        let statx = statx
            .flags(libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC)
            .mask(libc::STATX_SIZE)
            .build();
        // SAFETY: the path is static, and `found` stays where it is until the answer was seen,
        // because whoever has this keeps it until then.
        let pushed = unsafe { self.ring.submission().push(&statx) };
        pushed.map_err(io::Error::other)
    }

    /// The event that becomes readable with the answer.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the eventfd that is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.event.as_raw_fd()) }
    }

    /// The length, once it is known.
    pub(super) fn answer(&mut self) -> Option<io::Result<u64>> {
        let _ = self.event.read();
        // Submits again what the kernel had no memory for.
        let _ = self.ring.submit();
        let entry = self.ring.completion().next()?;
        Some(match entry.result() {
            0.. => Ok(self.found.stx_size),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        })
    }
}
