//! Where the kernel reads and writes guest memory: vectors of guest buffers,
//! io_uring, preadv and pwritev2.
//!
//! The only unsafe code of this crate: with the io-uring crate the caller keeps buffers alive until
//! their request has completed, and the vectored system calls take addresses.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::register::Restriction;
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{IoUring, cqueue, opcode, squeue};
use vm_memory::{GuestMemory, Permissions};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::aligned::Aligned;
use super::io_engine::{Finished, IoEngine, Operation};
use crate::GuestRam;
use crate::virtio::{QueueError, Span};

/// Buffers as the kernel takes them: in guest memory, or one in the device's own. Keeps that memory
/// mapped.
#[derive(Debug)]
pub struct Buffers {
    /// The memory that the addresses in `vectors` point to; `None` without vectors.
    _memory: Option<Arc<GuestRam>>,
    vectors: Vec<libc::iovec>,
    /// Vectors before this one are done.
    first: usize,
    /// The device's own buffer, if `vectors` points there.
    own: Option<Aligned>,
}

// SAFETY: the addresses are of guest memory, which every thread may access and
// which `_memory` keeps mapped, or of `own`; they are never dereferenced here, only given to
// the kernel.
unsafe impl Send for Buffers {}

impl Buffers {
    /// No buffers yet.
    pub fn new(memory: &Arc<GuestRam>) -> Self {
        Self {
            _memory: Some(Arc::clone(memory)),
            ..Self::none()
        }
    }

    /// No buffers, for an operation that takes none.
    pub(super) fn none() -> Self {
        Self {
            _memory: None,
            vectors: Vec::new(),
            first: 0,
            own: None,
        }
    }

    /// Uses the first `len` bytes of `own` instead of guest memory.
    pub(super) fn put_own(&mut self, mut own: Aligned, len: usize) {
        self.clear();
        let bytes = own.as_mut_slice();
        self.vectors.push(libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len.min(bytes.len()),
        });
        self.own = Some(own);
    }

    /// The buffer of [`Self::put_own`], once the kernel does not use it any more.
    pub(super) fn take_own(&mut self) -> Option<Aligned> {
        let own = self.own.take()?;
        self.clear();
        Some(own)
    }

    /// Collects `len` bytes of `spans`, from byte `skip` on.
    pub fn gather(&mut self, spans: &[Span], skip: usize, len: usize) -> Result<(), QueueError> {
        self.clear();
        let (mut skip, mut left) = (skip, len);
        let Some(memory) = &self._memory else {
            return Err(QueueError::Broken);
        };
        for span in spans {
            let skipped = skip.min(span.len);
            let take = left.min(span.len - skipped);
            skip -= skipped;
            left -= take;
            if take == 0 {
                continue;
            }
            let address = span.address.0.wrapping_add(skipped as u64);
            let address = vm_memory::GuestAddress(address);
            for slice in GuestMemory::get_slices(&**memory, address, take, Permissions::ReadWrite)?
            {
                let slice = slice?;
                self.vectors.push(libc::iovec {
                    iov_base: slice.ptr_guard_mut().as_ptr().cast(),
                    iov_len: slice.len(),
                });
            }
        }
        Ok(())
    }

    /// Forgets all buffers.
    pub fn clear(&mut self) {
        self.vectors.clear();
        self.first = 0;
        self.own = None;
    }

    /// Whether every buffer begins and ends at a multiple of `align`.
    pub(crate) fn are_aligned(&self, align: usize) -> bool {
        let aligned = |value: usize| value & (align - 1) == 0;
        self.left()
            .iter()
            .all(|it| aligned(it.iov_base as usize) && aligned(it.iov_len))
    }

    /// Skips the first `count` bytes, which are done.
    pub fn advance(&mut self, count: usize) {
        let mut count = count;
        while let Some(vector) = self.vectors.get_mut(self.first) {
            if count < vector.iov_len {
                // Stays within the buffer.
                vector.iov_base = vector.iov_base.wrapping_byte_add(count);
                vector.iov_len -= count;
                return;
            }
            count -= vector.iov_len;
            self.first += 1;
        }
    }

    fn left(&self) -> &[libc::iovec] {
        self.vectors.get(self.first..).unwrap_or_default()
    }
}

/// preadv(2) into guest memory.
pub(super) fn read_at(file: &File, buffers: &Buffers, offset: u64) -> io::Result<usize> {
    let (vectors, count) = (buffers.left().as_ptr(), buffers.left().len());
    // SAFETY: each vector is of memory that `buffers` keeps; the
    // guest sees what changes there at any time, and so do its own accesses.
    let done = unsafe { libc::preadv(file.as_raw_fd(), vectors, count as i32, offset as i64) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// pwritev2(2) from guest memory, with flags such as `RWF_DSYNC`.
pub(super) fn write_at(
    file: &File,
    buffers: &Buffers,
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let (vectors, count) = (buffers.left().as_ptr(), buffers.left().len());
    let (fd, offset) = (file.as_raw_fd(), offset as i64);
    // SAFETY: as in `read_at`; the kernel only reads.
    let done = unsafe { libc::pwritev2(fd, vectors, count as i32, offset, flags) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Locks the whole file for its open file description (`F_OFD_SETLK`), so that
/// QEMU, Cloud Hypervisor and other machines of Tare see that it is in use.
pub(super) fn lock(file: &File, exclusive: Exclusive) -> io::Result<()> {
    let kind = match exclusive {
        Exclusive::Yes => libc::F_WRLCK,
        Exclusive::No => libc::F_RDLCK,
    };
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: F_OFD_SETLK reads a `struct flock` behind its argument.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a block device is read-only. The kernel lets it be opened for writing all the same, and
/// then refuses each write.
pub(super) fn is_read_only(device: &File) -> io::Result<bool> {
    let mut read_only: libc::c_int = 0;
    // SAFETY: BLKROGET writes an int behind its argument.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET, &mut read_only) };
    match done {
        0 => Ok(read_only != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a block device's logical block: it takes no smaller request.
pub(super) fn logical_block_bytes(device: &File) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes an int behind its argument.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET, &mut bytes) };
    match done {
        0 => Ok(bytes.unsigned_abs()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Length of a block device. Unlike lseek(2), which takes the lock that a call on
/// the device may hold while it waits, this waits for nothing.
pub(super) fn device_bytes(device: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes 64 bits behind its argument.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
    match done {
        0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `_IO(0x12, 94)`, `_IO(0x12, 104)` and `_IOR(0x12, 114, size_t)` (`linux/fs.h`).
const BLKROGET: libc::c_ulong = 0x125e;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

/// Whether others may hold a lock as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusive {
    Yes,
    No,
}

/// io_uring over one file. It can do nothing else: the ring is restricted to
/// five operations on that file before it is enabled, so that a thread which may
/// call io_uring_enter(2) gains no more than these.
pub struct Ring {
    ring: IoUring,
    event: EventFd,
    /// Buffers of requests that the kernel has, by token.
    flying: Vec<Option<Buffers>>,
    in_flight: usize,
    /// Flags of every request.
    flags: squeue::Flags,
}

/// The disk in the ring's table of files.
const DISK: Fixed = Fixed(0);

impl Ring {
    /// A ring for `slots` requests at once on `file`.
    pub fn new(file: &File, slots: usize) -> io::Result<Self> {
        let operations = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        Self::restricted_to(&operations, file, slots)
    }

    /// A ring that can do nothing but [`Operation::Allocate`], one at a time.
    pub(super) fn for_allocation(file: &File) -> io::Result<Self> {
        Self::restricted_to(&[opcode::Fallocate::CODE], file, 1)
    }

    fn restricted_to(operations: &[u8], file: &File, slots: usize) -> io::Result<Self> {
        let ring: IoUring = IoUring::<squeue::Entry, cqueue::Entry>::builder()
            .setup_r_disabled()
            .build(slots as u32)?;
        let event = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let submitter = ring.submitter();
        submitter.register_files(&[file.as_raw_fd()])?;
        submitter.register_eventfd(event.as_raw_fd())?;
        let mut allowed: Vec<_> = operations
            .iter()
            .map(|code| Restriction::sqe_op(*code))
            .collect();
        let mut flags = squeue::Flags::FIXED_FILE;
        if waits_at_submission(file) {
            flags |= squeue::Flags::ASYNC;
        }
        allowed.push(Restriction::sqe_flags_required(flags.bits()));
        submitter.register_restrictions(&mut allowed)?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            event,
            flying: (0..slots).map(|_| None).collect(),
            in_flight: 0,
            flags,
        })
    }
}

/// Whether requests to the file's file system can block at submission, although that must not
/// happen: FUSE does so (seen on Linux 6.18, with read-ahead and with FOPEN_DIRECT_IO). Kernel
/// threads submit such requests. A file system that does not report its type counts as FUSE.
fn waits_at_submission(file: &File) -> bool {
    /// `FUSE_SUPER_MAGIC` (`linux/magic.h`).
    const FUSE: u32 = 0x6573_5546;
    file_system(file).is_none_or(|kind| kind == FUSE)
}

/// Who keeps a file's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LengthKeeper {
    /// This kernel: the answer to how long the file is needs no server and no lock that is held
    /// across I/O.
    Kernel,
    /// Perhaps a server: FUSE, NFS and others, overlayfs over one of them, and each file system
    /// that is not listed or does not report its type.
    Server,
}

pub(super) fn length_keeper(file: &File) -> LengthKeeper {
    file_system(file).map_or(LengthKeeper::Server, length_keeper_of)
}

fn length_keeper_of(file_system: u32) -> LengthKeeper {
    /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, tmpfs, ramfs, FAT, exFAT, JFS, NTFS3 and ZFS
    /// (`linux/magic.h`, the file systems' own headers).
    const KERNEL: [u32; 12] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0xca45_1a4e,
        0x0102_1994,
        0x8584_58f6,
        0x4d44,
        0x2011_bab0,
        0x3153_464a,
        0x7366_746e,
        0x2fc1_2fc1,
    ];
    if KERNEL.contains(&file_system) {
        LengthKeeper::Kernel
    } else {
        LengthKeeper::Server
    }
}

fn file_system(file: &File) -> Option<u32> {
    let found = rustix::fs::fstatfs(file).ok()?;
    Some(found.f_type as u32)
}

impl IoEngine for Ring {
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers) {
        let (vectors, count) = (buffers.left().as_ptr(), buffers.left().len() as u32);
        let entry = match operation {
            Operation::Read { offset } => opcode::Readv::new(DISK, vectors, count)
                .offset(offset)
                .build(),
            Operation::Write { offset, durability } => opcode::Writev::new(DISK, vectors, count)
                .offset(offset)
                .rw_flags(durability.flags())
                .build(),
            Operation::Flush => opcode::Fsync::new(DISK).flags(FsyncFlags::DATASYNC).build(),
            Operation::Allocate { offset, len, mode } => opcode::Fallocate::new(DISK, len)
                .offset(offset)
                .mode(mode.bits() as i32)
                .build(),
        };
        let entry = entry.user_data(token as u64).flags(self.flags);
        // Tokens are below the number of entries and each is used once at a
        // time, so that neither place is missing.
        let Some(place @ None) = self.flying.get_mut(token) else {
            return;
        };
        *place = Some(buffers);
        // SAFETY: the vectors and the memory behind them belong to `buffers`,
        // which stays in `flying` until the request's completion was seen
        // (`finished`), also when the ring is dropped (`drop` waits).
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            self.in_flight += 1;
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        loop {
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn finished(&mut self) -> Option<Finished> {
        let entry = self.ring.completion().next()?;
        let token = entry.user_data() as usize;
        let buffers = self.flying.get_mut(token)?.take()?;
        self.in_flight -= 1;
        Some(Finished {
            token,
            result: match entry.result() {
                done @ 0.. => Ok(done as usize),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            },
            buffers,
        })
    }

    fn wait(&mut self) {
        // Completions arrive whether or not this call succeeds: after an error the loop merely does
        // not sleep.
        if self.in_flight > 0 && self.ring.submit_and_wait(1).is_err() {
            std::thread::yield_now();
        }
    }

    fn drain(&mut self) {
        while self.in_flight > 0 {
            while self.finished().is_some() {}
            self.wait();
        }
        let _ = self.event.read();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the eventfd that is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(self.event.as_raw_fd()) })
    }

    fn acknowledge(&mut self) {
        let _ = self.event.read();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Otherwise the kernel would write to memory that is no longer the guest's.
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_with_a_server_are_told_from_others() {
        let of = |numbers: &[u32]| {
            let keepers = numbers.iter().map(|number| length_keeper_of(*number));
            keepers.collect::<Vec<_>>()
        };
        // FUSE, NFS, CIFS, SMB2, 9p and Ceph.
        let remote = [
            0x6573_5546,
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0xc3_6400,
        ];
        assert_eq!(of(&remote), [LengthKeeper::Server; 6]);
        // overlayfs may lie over one of these; an unlisted file system may be anything.
        assert_eq!(of(&[0x794c_7630, 0x1234_5678]), [LengthKeeper::Server; 2]);
        // ext4, tmpfs, ZFS, FAT, exFAT and JFS.
        let local = [
            0xef53,
            0x0102_1994,
            0x2fc1_2fc1,
            0x4d44,
            0x2011_bab0,
            0x3153_464a,
        ];
        assert_eq!(of(&local), [LengthKeeper::Kernel; 6]);
    }
}
