//! `hvm_start_info` and what it points to.
//!
//! Reference: Xen `xen/include/public/arch-x86/hvm/start_info.h`, version 1.

use std::ops::Range;

use linux_loader::loader::elf::start_info::{hvm_modlist_entry, hvm_start_info};
use tare_abi::layout::{CMDLINE, PVH_MEMMAP, PVH_MODLIST, PVH_START_INFO, RSDP};
use vm_memory::{Bytes, GuestAddress};

use crate::GuestMemoryMmap;
use crate::error::LoadError;
use crate::memory_map::MemoryMap;

const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;

/// What a PVH guest gets from its loader.
pub(crate) struct StartInfo {
    pub(crate) memory_map: MemoryMap,
    pub(crate) initramfs: Option<Range<u64>>,
}

impl StartInfo {
    pub(crate) fn write(&self, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
        let MemoryMap(entries) = &self.memory_map;
        let info = hvm_start_info {
            magic: MAGIC,
            version: VERSION,
            nr_modules: self.initramfs.iter().count() as u32,
            modlist_paddr: self.initramfs.as_ref().map_or(0, |_| PVH_MODLIST),
            cmdline_paddr: CMDLINE,
            rsdp_paddr: RSDP,
            memmap_paddr: PVH_MEMMAP,
            memmap_entries: entries.len() as u32,
            ..Default::default()
        };
        memory.write_obj(info, GuestAddress(PVH_START_INFO))?;
        let each = size_of_val(&entries[0]);
        for (at, entry) in (PVH_MEMMAP..PVH_MODLIST).step_by(each).zip(entries) {
            memory.write_obj(*entry, GuestAddress(at))?;
        }
        if let Some(range) = &self.initramfs {
            let module = hvm_modlist_entry {
                paddr: range.start,
                size: range.end - range.start,
                ..Default::default()
            };
            memory.write_obj(module, GuestAddress(PVH_MODLIST))?;
        }
        Ok(())
    }
}
