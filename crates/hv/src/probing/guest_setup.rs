//! The memory of the temporary machine: page tables, GDT, an interrupt table whose handlers halt,
//! and room for code, data and a stack.

use tare_abi::entry::{CODE_SELECTOR, EntryMode, boot_gdt};
use tare_abi::layout::BOOT_GDT;
use vm_memory::{Bytes, GuestAddress};

use super::ProbeError;
use crate::memory::GuestMemoryMmap;

pub(super) const IDT: u64 = 0x1000;
pub(super) const PML4: u64 = 0x2000;
pub(super) const PDPT: u64 = 0x3000;
pub(super) const PAGE_DIRECTORY: u64 = 0x4000;
pub(super) const HANDLERS: u64 = 0x5000;
pub(super) const CODE: u64 = 0x6000;
pub(super) const DATA: u64 = 0x7000;
pub(super) const DATA_BYTES: usize = 0x1000;
pub(super) const STACK_TOP: u64 = 0xa000;
pub(super) const MEMORY_BYTES: u64 = 0x1_0000;

pub(super) const VECTORS: u64 = 32;
pub(super) const HANDLER_STRIDE: u64 = 16;
pub(super) const HLT: u8 = 0xf4;

/// Page tables, GDT, interrupt table and handlers.
pub(super) fn set_up_memory(memory: &GuestMemoryMmap) -> Result<(), ProbeError> {
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE: u64 = 1 << 7;
    let entry =
        |table: u64, value: u64| memory.write_slice(&value.to_le_bytes(), GuestAddress(table));
    entry(PML4, PDPT | PRESENT_WRITABLE)?;
    entry(PDPT, PAGE_DIRECTORY | PRESENT_WRITABLE)?;
    entry(PAGE_DIRECTORY, PRESENT_WRITABLE | LARGE)?;
    for (at, descriptor) in (BOOT_GDT..).step_by(8).zip(boot_gdt(mode())) {
        entry(at, descriptor)?;
    }
    for vector in 0..VECTORS {
        let handler = HANDLERS + vector * HANDLER_STRIDE;
        memory.write_slice(&[HLT], GuestAddress(handler))?;
        memory.write_slice(&gate(handler), GuestAddress(IDT + 16 * vector))?;
    }
    Ok(())
}

/// 64-bit mode on the page tables here.
pub(super) const fn mode() -> EntryMode {
    EntryMode::Long64 { page_table: PML4 }
}

/// A 64-bit interrupt gate (Intel SDM volume 3, 6.14.1).
fn gate(handler: u64) -> [u8; 16] {
    const PRESENT_INTERRUPT: u64 = 0x8e00;
    let low = handler & 0xffff
        | u64::from(CODE_SELECTOR) << 16
        | PRESENT_INTERRUPT << 32
        | (handler & 0xffff_0000) << 32;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&(handler >> 32).to_le_bytes());
    bytes
}
