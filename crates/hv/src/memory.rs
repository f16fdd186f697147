//! Guest memory: anonymous, private, without reserved swap, in up to two
//! regions around the hole for devices ([`tare_abi::layout`]). Files can be mapped into it.
//!
//! Reference: Linux `Documentation/admin-guide/mm/transhuge.rst`, `madvise(2)`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::ptr;

use tare_abi::layout::{KIB, MIB, MMIO_GAP_END, MMIO_GAP_START};
use thiserror::Error;
use vm_memory::mmap::{FromRangesError, MmapRegionError};
use vm_memory::{
    GuestAddress, GuestMemoryBackend as _, GuestMemoryRegion as _, GuestRegionMmap, MmapRegion,
};

/// Bytes of a transparent huge page on this architecture.
const HUGE_PAGE: usize = 2 * MIB as usize;

/// Guest memory as all crates use it: no dirty bitmap.
pub type GuestMemoryMmap = vm_memory::GuestMemoryMmap<()>;

/// Why there is no guest memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// Zero, or not a multiple of the page size.
    #[error("guest memory of {size_bytes} bytes is not a positive multiple of 4 KiB")]
    Size {
        /// What was requested.
        size_bytes: u64,
    },
    /// The host refused the mapping.
    #[error(
        "the host cannot give {} MiB of guest memory: ask for less",
        size_bytes >> 20
    )]
    Map {
        /// What was requested.
        size_bytes: u64,
        /// The host's reason.
        #[source]
        source: FromRangesError,
    },
}

/// Whether the kernel should use transparent huge pages for guest memory. It uses them where it
/// finds some, and small pages elsewhere, so none of these settings fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// As the host is set (`/sys/kernel/mm/transparent_hugepage/enabled`).
    #[default]
    AsHost,
    /// Wherever the host allows it (`MADV_HUGEPAGE`).
    Wanted,
    /// Never (`MADV_NOHUGEPAGE`).
    Refused,
}

/// Maps `size_bytes` of guest memory; no page is touched.
pub fn guest_memory(size_bytes: u64) -> Result<GuestMemoryMmap, MemoryError> {
    check_size(size_bytes)?;
    GuestMemoryMmap::from_ranges(&ranges(size_bytes))
        .map_err(|source| MemoryError::Map { size_bytes, source })
}

/// The same for a machine, in pages of a wanted size. It stays mapped until the process ends.
pub fn machine_memory(
    size_bytes: u64,
    huge_pages: HugePages,
) -> Result<GuestMemoryMmap, MemoryError> {
    let memory = match huge_pages {
        // A guest may ask for some ([`advise_huge_page`]).
        HugePages::Wanted | HugePages::AsHost => aligned_memory(size_bytes)?,
        HugePages::Refused => guest_memory(size_bytes)?,
    };
    for region in memory.iter() {
        advise(region, huge_pages);
    }
    Ok(memory)
}

/// Has the kernel back 2 MiB of guest memory from `address` on by a huge page if it can, where the
/// host leaves that to advice. False where there is no such memory that begins at a multiple of
/// 2 MiB in the guest and on the host, and where the kernel refuses.
pub fn advise_huge_page(memory: &GuestMemoryMmap, address: GuestAddress) -> bool {
    // A slice of one region, or an error.
    let Ok(place) = memory.get_slice(address, HUGE_PAGE) else {
        return false;
    };
    let place = place.ptr_guard_mut();
    let is_aligned = address.0.is_multiple_of(HUGE_PAGE as u64)
        && place.as_ptr().addr().is_multiple_of(HUGE_PAGE);
    if !is_aligned || place.len() != HUGE_PAGE {
        return false;
    }
    // SAFETY: the range is mapped, and the advice changes no content.
    let refused = unsafe { libc::madvise(place.as_ptr().cast(), HUGE_PAGE, libc::MADV_HUGEPAGE) };
    refused == 0
}

/// Puts a file's bytes into guest memory from `start` on, a multiple of 4 KiB, by mapping them: a
/// page costs memory when the guest uses it, and then the host's one copy of it, until the guest
/// writes to it. Behind the end of the file its last page is zero. What was at these addresses
/// is gone.
///
/// The file must not get shorter while the machine runs: pages that it no longer has are faults
/// of whoever touches them.
pub fn map_file(memory: &GuestMemoryMmap, start: GuestAddress, file: &File) -> io::Result<()> {
    const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const FLAGS: i32 = libc::MAP_FIXED | libc::MAP_NORESERVE | libc::MAP_PRIVATE;
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    // fstat(2) would do, but std calls statx(2), which a confined monitor must not.
    let bytes = { file }.seek(SeekFrom::End(0))?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = usize::try_from(bytes.next_multiple_of(4 * KIB)).map_err(|_| invalid())?;
    // A slice of whole pages of one region, or an error.
    let place = memory.get_slice(start, bytes).map_err(io::Error::other)?;
    let place = place.ptr_guard_mut();
    if !start.0.is_multiple_of(4 * KIB) || place.len() != bytes {
        return Err(invalid());
    }
    let fd = file.as_raw_fd();
    // SAFETY: the range lies in a region of guest memory, which no reference points into, and
    // stays mapped, readable and writable.
    let mapped = unsafe { libc::mmap(place.as_ptr().cast(), bytes, PROTECTION, FLAGS, fd, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Guest memory whose regions begin at a multiple of 2 MiB on the host, as they do in the
/// guest: elsewhere KVM maps no huge page whole.
fn aligned_memory(size_bytes: u64) -> Result<GuestMemoryMmap, MemoryError> {
    check_size(size_bytes)?;
    let region = |(start, size)| {
        let mapping = aligned_mapping(size).map_err(FromRangesError::MmapRegion)?;
        GuestRegionMmap::new(mapping, start).ok_or(FromRangesError::InvalidGuestRegion)
    };
    let regions: Result<Vec<_>, FromRangesError> =
        ranges(size_bytes).into_iter().map(region).collect();
    regions
        .and_then(|regions| Ok(GuestMemoryMmap::from_regions(regions)?))
        .map_err(|source| MemoryError::Map { size_bytes, source })
}

fn aligned_mapping(size: usize) -> Result<MmapRegion, MmapRegionError> {
    const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const FLAGS: i32 = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_PRIVATE;
    let too_large = || MmapRegionError::Mmap(io::ErrorKind::OutOfMemory.into());
    let reserved = size.checked_add(HUGE_PAGE).ok_or_else(too_large)?;
    // SAFETY: a new mapping, where the kernel finds space, changes no other.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), reserved, PROTECTION, FLAGS, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(MmapRegionError::Mmap(io::Error::last_os_error()));
    }
    let head = mapped.align_offset(HUGE_PAGE);
    let start = mapped.wrapping_byte_add(head);
    unmap(mapped, head);
    unmap(start.wrapping_byte_add(size), HUGE_PAGE - head);
    // SAFETY: `size` bytes from `start` are mapped with this protection and these flags, and
    // are never unmapped: the region does not own them.
    unsafe { MmapRegion::build_raw(start.cast(), size, PROTECTION, FLAGS) }
}

/// Unmaps an end of a mapping that was made here and has no user. On failure some address space
/// stays reserved and untouched.
fn unmap(start: *mut libc::c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: only `aligned_mapping` calls this, with ends of the mapping that it made.
        unsafe { libc::munmap(start, bytes) };
    }
}

/// The result is ignored: a kernel without huge pages refuses, and gives small ones.
fn advise(region: &GuestRegionMmap, huge_pages: HugePages) {
    let advice = match huge_pages {
        HugePages::AsHost => return,
        HugePages::Wanted => libc::MADV_HUGEPAGE,
        HugePages::Refused => libc::MADV_NOHUGEPAGE,
    };
    let bytes = region.len() as usize;
    // SAFETY: the region is mapped, and the advice changes no content.
    unsafe { libc::madvise(region.as_ptr().cast(), bytes, advice) };
}

fn check_size(size_bytes: u64) -> Result<(), MemoryError> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(4 * KIB) {
        return Err(MemoryError::Size { size_bytes });
    }
    Ok(())
}

fn ranges(size_bytes: u64) -> Vec<(GuestAddress, usize)> {
    let low = size_bytes.min(MMIO_GAP_START);
    let high = size_bytes - low;
    [(0, low), (MMIO_GAP_END, high)]
        .into_iter()
        .filter(|(_, size)| *size > 0)
        .map(|(start, size)| (GuestAddress(start), size as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use tare_abi::layout::GIB;
    use vm_memory::Bytes as _;

    use super::*;

    #[test]
    fn small_memory_is_one_region() {
        assert_eq!(
            ranges(64 * MIB),
            [(GuestAddress(0), 64 * MIB as usize)].as_slice()
        );
        assert_eq!(ranges(3 * GIB).len(), 1);
    }

    #[test]
    fn large_memory_leaves_the_hole() {
        assert_eq!(
            ranges(5 * GIB),
            [
                (GuestAddress(0), 3 * GIB as usize),
                (GuestAddress(4 * GIB), 2 * GIB as usize)
            ]
        );
    }

    #[test]
    fn odd_sizes_are_refused() {
        assert!(matches!(guest_memory(0), Err(MemoryError::Size { .. })));
        assert!(matches!(guest_memory(4097), Err(MemoryError::Size { .. })));
    }

    #[test]
    fn memory_for_huge_pages_is_aligned_and_whole() {
        for mib in [1, 3, 64] {
            let memory = machine_memory(mib * MIB, HugePages::Wanted).unwrap();
            for region in memory.iter() {
                assert_eq!(region.as_ptr().addr() % HUGE_PAGE, 0);
            }
            let last = GuestAddress(mib * MIB - 1);
            memory.write_obj(7_u8, last).unwrap();
            assert_eq!(memory.read_obj::<u8>(last).unwrap(), 7);
            assert!(memory.write_obj(7_u16, last).is_err());
        }
    }

    #[test]
    fn a_huge_page_is_advised_only_where_there_is_one() {
        let memory = machine_memory(7 * MIB, HugePages::AsHost).unwrap();
        let advise = |address| advise_huge_page(&memory, GuestAddress(address));
        for wrong in [MIB, 6 * MIB, 8 * MIB, 1 << 40, u64::MAX - 2 * MIB + 1, 1] {
            assert!(!advise(wrong), "{wrong:#x}");
        }
        // Without huge pages the kernel refuses.
        let has_some = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!([0, 4 * MIB].map(advise), [has_some; 2]);
        if has_some {
            let start = memory.iter().next().unwrap().as_ptr().addr();
            let is_wanted = |mib: usize| {
                let flags = flags_of_mapping(start + (mib << 20));
                flags.contains(&"hg".to_owned())
            };
            assert_eq!([0, 2, 4, 6].map(is_wanted), [true, false, true, false]);
        }
    }

    #[test]
    fn the_kernel_knows_which_pages_are_wanted() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            tare_vmtest::lacks("this kernel has no transparent huge pages");
            return;
        }
        let flags = |huge_pages| {
            let memory = machine_memory(4 * MIB, huge_pages).unwrap();
            let start = memory.iter().next().unwrap().as_ptr().addr();
            flags_of_mapping(start)
        };
        assert!(flags(HugePages::Wanted).contains(&"hg".to_owned()));
        assert!(flags(HugePages::Refused).contains(&"nh".to_owned()));
        let host = flags(HugePages::AsHost);
        assert!(!host.contains(&"hg".to_owned()) && !host.contains(&"nh".to_owned()));
    }

    /// The words of `VmFlags:` in the mapping that holds `address` (`proc(5)`, smaps).
    fn flags_of_mapping(address: usize) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let hex = |text| usize::from_str_radix(text, 16);
        let mut is_this = false;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-')
                && let (Ok(start), Ok(end)) = (hex(start), hex(end))
            {
                is_this = (start..end).contains(&address);
            } else if is_this && first == "VmFlags:" {
                return line.split_whitespace().map(str::to_owned).collect();
            }
        }
        panic!("no mapping holds {address:#x}");
    }

    #[test]
    fn a_mapped_file_is_there_until_the_guest_writes_and_stays_as_it_was() {
        let memory = guest_memory(MIB).unwrap();
        memory.write_obj([7_u8; 2], GuestAddress(0x2fff)).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 5000]).unwrap();
        map_file(&memory, GuestAddress(0x3000), &file).unwrap();
        let read = |at| memory.read_obj::<u8>(GuestAddress(at)).unwrap();
        assert_eq!((read(0x2fff), read(0x3000)), (7, 1));
        assert_eq!((read(0x3000 + 4999), read(0x3000 + 5000)), (1, 0));
        memory.write_obj(9_u8, GuestAddress(0x3000)).unwrap();
        assert_eq!((read(0x3000), read(0x3001)), (9, 1));
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [1]);
    }

    #[test]
    fn a_file_is_mapped_at_whole_pages_within_memory_only() {
        let memory = guest_memory(MIB).unwrap();
        let file = tempfile::tempfile().unwrap();
        // Nothing to map.
        map_file(&memory, GuestAddress(0x3001), &file).unwrap();
        file.set_len(0x2000).unwrap();
        for (start, fits) in [
            (0, true),
            (0x10, false),
            (MIB - 0x2000, true),
            (MIB - 0x1000, false),
            (MIB, false),
        ] {
            let mapped = map_file(&memory, GuestAddress(start), &file);
            assert_eq!(mapped.is_ok(), fits, "{start:#x}: {mapped:?}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(
            guest_memory(1 << 60),
            Err(MemoryError::Map { .. })
        ));
    }
}
