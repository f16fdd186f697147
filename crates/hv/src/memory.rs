//! Guest memory: anonymous, private, without reserved swap, in up to two
//! regions around the hole for devices ([`tare_abi::layout`]).

use tare_abi::layout::{KIB, MMIO_GAP_END, MMIO_GAP_START};
use thiserror::Error;
use vm_memory::GuestAddress;

/// Guest memory as all rooms use it: no dirty bitmap.
pub type GuestMemoryMmap = vm_memory::GuestMemoryMmap<()>;

/// Why guest memory could not be had.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// Zero, or not a multiple of the page size.
    #[error("guest memory of {size_bytes} bytes is not a positive multiple of 4 KiB")]
    Size {
        /// What was asked for.
        size_bytes: u64,
    },
    /// The host refused the mapping.
    #[error(
        "the host cannot give {} MiB of guest memory: ask for less",
        size_bytes >> 20
    )]
    Map {
        /// What was asked for.
        size_bytes: u64,
        /// The host's reason.
        #[source]
        source: vm_memory::mmap::FromRangesError,
    },
}

/// Maps `size_bytes` of guest memory; no page is touched.
pub fn guest_memory(size_bytes: u64) -> Result<GuestMemoryMmap, MemoryError> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(4 * KIB) {
        return Err(MemoryError::Size { size_bytes });
    }
    GuestMemoryMmap::from_ranges(&ranges(size_bytes))
        .map_err(|source| MemoryError::Map { size_bytes, source })
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
    use tare_abi::layout::{GIB, MIB};

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
    fn impossible_sizes_are_refused() {
        assert!(matches!(
            guest_memory(1 << 60),
            Err(MemoryError::Map { .. })
        ));
    }
}
