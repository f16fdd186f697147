//! The memory map that a guest gets: RAM, and ranges that it may not use.

use linux_loader::loader::elf::start_info::hvm_memmap_table_entry;
use tare_abi::layout::{ACPI_END, HIGH_RAM, KIB, PCI_ECAM_SIZE, PCI_ECAM_START, RSDP};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::GuestMemoryMmap;

/// Types of the PC's memory map (ACPI 6.5, 15.1).
const RAM: u32 = 1;
const RESERVED: u32 = 2;

/// End of conventional memory: 640 KiB.
const LOW_RAM_END: u64 = 640 * KIB;

/// Entries in order of address, without overlaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemoryMap(pub(crate) Vec<hvm_memmap_table_entry>);

impl MemoryMap {
    pub(crate) fn of(memory: &GuestMemoryMmap) -> Self {
        let mut entries = vec![
            entry(0, LOW_RAM_END, RAM),
            entry(RSDP, ACPI_END, RESERVED),
            entry(PCI_ECAM_START, PCI_ECAM_START + PCI_ECAM_SIZE, RESERVED),
        ];
        for region in memory.iter() {
            let start = region.start_addr().0;
            entries.push(entry(start.max(HIGH_RAM), start + region.len(), RAM));
        }
        entries.retain(|entry| entry.size > 0);
        entries.sort_by_key(|entry| entry.addr);
        Self(entries)
    }
}

fn entry(start: u64, end: u64, kind: u32) -> hvm_memmap_table_entry {
    hvm_memmap_table_entry {
        addr: start,
        size: end.saturating_sub(start),
        type_: kind,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use tare_abi::layout::{GIB, MIB};
    use vm_memory::GuestAddress;

    use super::*;

    fn map(ranges: &[(u64, u64)]) -> MemoryMap {
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(start, size)| (GuestAddress(*start), *size as usize))
            .collect();
        MemoryMap::of(&GuestMemoryMmap::from_ranges(&ranges).unwrap())
    }

    #[test]
    fn ram_leaves_the_hole_below_1_mib_and_the_configuration_space() {
        let MemoryMap(entries) = map(&[(0, 8 * MIB)]);
        let seen: Vec<_> = entries
            .iter()
            .map(|it| (it.addr, it.addr + it.size, it.type_))
            .collect();
        let expected = [
            (0, 0xa_0000, RAM),
            (0xe_0000, 0x10_0000, RESERVED),
            (MIB, 8 * MIB, RAM),
            (PCI_ECAM_START, PCI_ECAM_START + MIB, RESERVED),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn memory_above_4_gib_is_listed_last_and_nothing_overlaps() {
        let MemoryMap(entries) = map(&[(0, 3 * GIB), (4 * GIB, GIB)]);
        assert_eq!(entries.last().unwrap().addr, 4 * GIB);
        let apart = |pair: &[hvm_memmap_table_entry]| pair[0].addr + pair[0].size <= pair[1].addr;
        assert!(entries.windows(2).all(apart));
        let ram = entries.iter().filter(|it| it.type_ == RAM);
        assert_eq!(ram.map(|it| it.size).sum::<u64>(), 4 * GIB - 384 * KIB);
    }
}
