//! Memory that its front-end takes away: who shortens a file that is mapped here
//! makes the next access to it a SIGBUS. The handler puts a page of ones where
//! the missing one was, so that the access comes to an end, and notes it; the
//! session is then ended as that of any front-end that makes no sense.
//!
//! Ones, because nothing in a queue means anything with them: an index too far,
//! an address beyond memory, a request of no known type, a sector beyond the end.
//! Accesses of the kernel's (io_uring, preadv) fail with EFAULT by themselves.
//!
//! Limits: only the thread that maps memory may touch it (seccomp lets no other
//! one map); hardware's memory errors end the process; of a missing huge page, the small
//! pages besides the first that was accessed are zeros.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use tare_control::exit::ExitCode;
use vmm_sys_util::signal::register_signal_handler;

use crate::limits::{MAPPINGS_A_DISK, MOST_DISKS};

/// Mappings at a time: each disk has its share, and cannot take more ([`super::memory`]).
const MOST: usize = MOST_DISKS * MAPPINGS_A_DISK;
const PAGE: usize = 4096;
/// `si_code` of an access beyond the end of a file (`asm-generic/siginfo.h`).
const BUS_ADRERR: libc::c_int = 2;

static MAPPINGS: [Mapping; MOST] = [const { Mapping::free() }; MOST];

/// What the handler knows of a mapping.
struct Mapping {
    taken: AtomicBool,
    start: AtomicUsize,
    /// Zero while it means nothing.
    end: AtomicUsize,
    page: AtomicUsize,
    gone: AtomicBool,
}

impl Mapping {
    const fn free() -> Self {
        Self {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(PAGE),
            gone: AtomicBool::new(false),
        }
    }

    fn has(&self, address: usize) -> bool {
        let end = self.end.load(Ordering::Acquire);
        (self.start.load(Ordering::Relaxed)..end).contains(&address)
    }

    /// The page around `address`, within the mapping.
    fn page(&self, address: usize) -> (usize, usize) {
        let page = self.page.load(Ordering::Relaxed);
        let from = (address & !(page - 1)).max(self.start.load(Ordering::Relaxed));
        let to = (address | (page - 1)).min(self.end.load(Ordering::Relaxed) - 1);
        (from, to - from + 1)
    }
}

/// A mapping whose missing pages are replaced for as long as this lives.
pub(crate) struct Watch(&'static Mapping);

impl Watch {
    /// Watches `bytes` bytes from `start` on, of a file whose blocks have
    /// `block` bytes. Made after the mapping and dropped before it; `None`: there
    /// are too many.
    pub(crate) fn new(start: *const u8, bytes: usize, block: u64) -> Option<Self> {
        let free = |it: &&Mapping| !it.taken.swap(true, Ordering::AcqRel);
        let mapping = MAPPINGS.iter().find(free)?;
        // hugetlbfs replaces whole blocks only.
        let block = usize::try_from(block).unwrap_or(PAGE);
        let page = if block.is_power_of_two() { block } else { PAGE };
        let start = start.expose_provenance();
        mapping.page.store(page.max(PAGE), Ordering::Relaxed);
        mapping.gone.store(false, Ordering::Relaxed);
        mapping.start.store(start, Ordering::Relaxed);
        mapping.end.store(start + bytes, Ordering::Release);
        Some(Self(mapping))
    }

    /// Whether a page of it was missing.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, before any thread is confined.
pub(crate) fn install() -> io::Result<()> {
    register_signal_handler(libc::SIGBUS, replace)
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))
}

/// Async-signal-safe: no allocation, no lock. It runs on the thread that made the
/// access, between two instructions of it.
extern "C" fn replace(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a whole siginfo to a handler that was registered
    // with SA_SIGINFO, as vmm-sys-util does, and writes to it no more.
    let info = unsafe { &*info };
    // SAFETY: a SIGBUS has an address.
    let (code, address) = (info.si_code, unsafe { info.si_addr() }.addr());
    let known = MAPPINGS.iter().find(|mapping| mapping.has(address));
    match known {
        Some(mapping) if code == BUS_ADRERR && cover(mapping.page(address), address) => {
            mapping.gone.store(true, Ordering::Relaxed);
        }
        _ => {
            let sentence = b"tare blk: memory of this process cannot be read (SIGBUS)\n";
            let _ = rustix::io::write(rustix::stdio::stderr(), sentence);
            // SAFETY: ends the process at once, as a handler may.
            unsafe { libc::_exit(ExitCode::Internal as i32) }
        }
    }
}

/// Maps ones around `address`, and zeros in what else of a larger page is missing with it: they
/// take no memory, so that an access costs the process 4 KiB, whatever page the front-end took.
/// Shared, for huge pages made of private memory would be filled at once.
fn cover((start, bytes): (usize, usize), address: usize) -> bool {
    let end = start + bytes;
    let ones = (address & !(PAGE - 1)).max(start)..((address | (PAGE - 1)) + 1).min(end);
    let start = ptr::with_exposed_provenance_mut::<libc::c_void>(start);
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the range lies in a mapping of guest memory (`Watch` lives), whose
    // bytes may change at any time; all accesses to them are volatile.
    let covered = unsafe { mmap_anonymous(start, bytes, access, flags) }.is_ok();
    if covered {
        let first = ptr::with_exposed_provenance_mut::<u8>(ones.start);
        // SAFETY: the call above mapped the range, which these lie in, for writing, and nothing
        // else refers to the new pages by a Rust reference.
        unsafe { ptr::write_bytes(first, 0xff, ones.len()) };
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::memory_file;
    use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

    #[test]
    fn a_missing_page_reads_as_ones_and_the_others_stay() {
        install().unwrap();
        let file = memory_file(4 * PAGE as u64);
        let copy = FileOffset::new(file.try_clone().unwrap(), 0);
        let region = MmapRegion::<()>::from_file(copy, 4 * PAGE).unwrap();
        let watch = Watch::new(region.as_ptr(), 4 * PAGE, 4096).unwrap();
        let all = region.as_volatile_slice();
        all.write_slice(&[7; 4 * PAGE], 0).unwrap();
        assert!(!watch.is_gone());
        file.set_len(2 * PAGE as u64).unwrap();
        let read = |at: usize| all.read_obj::<u64>(at).unwrap();
        assert_eq!(read(0), 0x0707_0707_0707_0707);
        assert!(!watch.is_gone());
        assert_eq!(read(3 * PAGE), u64::MAX);
        assert!(watch.is_gone());
        assert_eq!(read(PAGE), 0x0707_0707_0707_0707);
        all.write_obj(5u64, 2 * PAGE).unwrap();
        assert_eq!(read(2 * PAGE), 5);
        assert_eq!(file.metadata().unwrap().len(), 2 * PAGE as u64);
    }

    #[test]
    fn a_missing_huge_page_costs_a_small_one() {
        install().unwrap();
        let huge = 2 << 20;
        let bytes = 3 * huge;
        let file = memory_file(bytes as u64);
        let copy = FileOffset::new(file.try_clone().unwrap(), 0);
        let region = MmapRegion::<()>::from_file(copy, bytes).unwrap();
        let watch = Watch::new(region.as_ptr(), bytes, huge as u64).unwrap();
        file.set_len(0).unwrap();
        let all = region.as_volatile_slice();
        // hugetlbfs begins a mapping at a huge page; this file's begins anywhere.
        let first = region.as_ptr().addr().next_multiple_of(huge) - region.as_ptr().addr();
        let read = |at: usize| all.read_obj::<u64>(first + at).unwrap();
        assert_eq!(read(PAGE + 8), u64::MAX);
        assert!(watch.is_gone());
        // What is read there was not written by the handler.
        assert_eq!([read(0), read(2 * PAGE), read(3 * PAGE)], [0; 3]);
        assert_eq!(read(huge), u64::MAX, "in the next huge page");
    }

    /// The tests beside this one have the last disk's share.
    #[test]
    fn each_disk_has_mappings_whatever_the_others_take() {
        let bytes = [0; 16];
        let others = (MOST_DISKS - 1) * MAPPINGS_A_DISK;
        let watches: Vec<_> = (0..others)
            .map_while(|_| Watch::new(bytes.as_ptr(), bytes.len(), 4096))
            .collect();
        assert_eq!(watches.len(), others);
    }

    #[test]
    fn replaced_pages_stay_within_the_mapping() {
        let mapping = Mapping::free();
        mapping.page.store(1 << 21, Ordering::Relaxed);
        mapping.start.store(0x10_0000, Ordering::Relaxed);
        mapping.end.store(0x30_1000, Ordering::Relaxed);
        assert_eq!(mapping.page(0x10_0008), (0x10_0000, 0x10_0000));
        assert_eq!(mapping.page(0x30_0fff), (0x20_0000, 0x10_1000));
        assert!(mapping.has(0x30_0fff) && !mapping.has(0x30_1000));
    }
}
