//! The zero page (`struct boot_params`): setup header, memory map, where the
//! ACPI tables are.

use std::ops::Range;

use linux_loader::loader::elf::start_info::hvm_memmap_table_entry;
use tare_abi::layout::{CMDLINE, RSDP, ZERO_PAGE};
use vm_memory::{Bytes, GuestAddress};

use super::setup_header::{self, SetupHeader};
use crate::GuestMemoryMmap;
use crate::error::LoadError;
use crate::memory_map::MemoryMap;

const PAGE_BYTES: usize = 4096;
/// `acpi_rsdp_addr`.
const RSDP_AT: usize = 0x70;
/// `e820_entries`.
const MAP_COUNT_AT: usize = 0x1e8;
/// `e820_table`, entries of 20 bytes.
const MAP_AT: usize = 0x2d0;
const MAP_ENTRY_BYTES: usize = 20;
/// Entries of the table (`E820_MAX_ENTRIES_ZEROPAGE`).
const MAP_MAX: usize = 128;

/// What a Linux kernel gets from its loader.
pub(crate) struct ZeroPage<'a> {
    pub(crate) header: SetupHeader,
    pub(crate) memory_map: MemoryMap,
    pub(crate) cmdline: &'a str,
    /// Below 4 GiB.
    pub(crate) initramfs: Option<Range<u64>>,
}

impl ZeroPage<'_> {
    pub(crate) fn write(mut self, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
        let initramfs = self.initramfs.as_ref();
        let range = initramfs.map_or((0, 0), |it| (it.start as u32, (it.end - it.start) as u32));
        let cmdline_bytes = self.cmdline.len() as u32;
        self.header.fill(CMDLINE as u32, cmdline_bytes, range);
        let mut page = vec![0; PAGE_BYTES];
        put(&mut page, RSDP_AT, &RSDP.to_le_bytes());
        put(&mut page, setup_header::START, self.header.bytes());
        let MemoryMap(entries) = &self.memory_map;
        let entries = &entries[..entries.len().min(MAP_MAX)];
        put(&mut page, MAP_COUNT_AT, &[entries.len() as u8]);
        for (number, entry) in entries.iter().enumerate() {
            put(&mut page, MAP_AT + number * MAP_ENTRY_BYTES, &e820(entry));
        }
        Ok(memory.write_slice(&page, GuestAddress(ZERO_PAGE))?)
    }
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

fn e820(entry: &hvm_memmap_table_entry) -> [u8; MAP_ENTRY_BYTES] {
    let mut bytes = [0; MAP_ENTRY_BYTES];
    bytes[..8].copy_from_slice(&entry.addr.to_le_bytes());
    bytes[8..16].copy_from_slice(&entry.size.to_le_bytes());
    bytes[16..].copy_from_slice(&entry.type_.to_le_bytes());
    bytes
}
