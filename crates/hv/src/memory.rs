//! Guest memory: anonymous, private, without reserved swap, in up to two
//! regions around the hole for devices ([`tare_abi::layout`]).
//!
//! Reference: Linux `Documentation/admin-guide/mm/transhuge.rst`, `madvise(2)`.

#![allow(unsafe_code)]

use std::io;
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
        HugePages::Wanted => aligned_memory(size_bytes)?,
        HugePages::AsHost | HugePages::Refused => guest_memory(size_bytes)?,
    };
    for region in memory.iter() {
        advise(region, huge_pages);
    }
    Ok(memory)
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
    fn the_kernel_knows_which_pages_are_wanted() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            println!("SKIP: this kernel has no transparent huge pages");
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
    fn impossible_sizes_are_refused() {
        assert!(matches!(
            guest_memory(1 << 60),
            Err(MemoryError::Map { .. })
        ));
    }
}
