//! What the image needs of ACPI: CPUs and interrupt controllers (MADT), and how
//! to power off (FADT). The tables come from the monitor and are not trusted:
//! every length is checked, a table with a wrong checksum is skipped, and no
//! AML is interpreted: virtio-mmio devices are found in it by the shape of
//! their resources. ACPI 6.5, chapter 5.2.

mod dsdt;
mod madt;
mod tables;

use alloc::vec::Vec;

use crate::boot::{Physical, u32_at, u64_at};
use crate::virtio::MmioWord;

pub use tables::Tables;

const RSDP_SIGNATURE: &[u8] = b"RSD PTR ";
const BIOS_AREA: core::ops::Range<u64> = 0xe_0000..0x10_0000;
/// Tables longer than this are skipped.
const MAX_TABLE_BYTES: u64 = 64 * 1024;
const MAX_TABLES: u64 = 64;
const HEADER_BYTES: u64 = 36;
const SYSTEM_IO: u8 = 1;

/// Reads the tables from the root pointer at `rsdp`, or from one found in the
/// BIOS area if that is 0; `None` if there are none.
pub fn find(memory: &impl Physical, rsdp: u64) -> Option<Tables> {
    let rsdp = match rsdp {
        0 => scan(memory)?,
        given => given,
    };
    let mut tables = Tables::default();
    for address in table_addresses(memory, rsdp)? {
        if let Some(table) = table(memory, address) {
            read(&mut tables, table);
        }
    }
    Some(tables)
}

/// Requests the area once: it has 8,192 places for the pointer.
fn scan(memory: &impl Physical) -> Option<u64> {
    let area = memory.bytes(BIOS_AREA.start, BIOS_AREA.end - BIOS_AREA.start)?;
    let mut places = area.chunks(16);
    let place = places.position(|place| place.starts_with(RSDP_SIGNATURE))?;
    Some(BIOS_AREA.start + 16 * place as u64)
}

/// Addresses in the XSDT, or the RSDT where there is none.
fn table_addresses<M: Physical>(
    memory: &M,
    rsdp: u64,
) -> Option<impl Iterator<Item = u64> + use<'_, M>> {
    let root = memory.bytes(rsdp, 20)?;
    if &root[..8] != RSDP_SIGNATURE || !sums_to_zero(root) {
        return None;
    }
    let xsdt = match root[15] {
        0 => None,
        _ => memory
            .u64(rsdp.checked_add(24)?)
            .and_then(|address| table(memory, address)),
    };
    let (list, width) = match xsdt {
        Some(list) => (list, 8),
        None => (table(memory, u64::from(u32_at(root, 16)?))?, 4),
    };
    let count = (list.len() as u64 - HEADER_BYTES) / width;
    Some((0..count.min(MAX_TABLES)).filter_map(move |index| {
        let at = (HEADER_BYTES + index * width) as usize;
        match width {
            8 => u64_at(list, at),
            _ => u32_at(list, at).map(u64::from),
        }
    }))
}

/// The table at `address`, if its length and checksum are right.
fn table(memory: &impl Physical, address: u64) -> Option<&[u8]> {
    let length = u64::from(memory.u32(address.checked_add(4)?)?);
    if !(HEADER_BYTES..=MAX_TABLE_BYTES).contains(&length) {
        return None;
    }
    let signature = memory.bytes(address, 4)?;
    // Only tables that are read are summed.
    let wanted = matches!(
        signature,
        b"XSDT" | b"RSDT" | b"APIC" | b"FACP" | b"DSDT" | b"MCFG"
    );
    let table = memory.bytes(address, length).filter(|_| wanted)?;
    sums_to_zero(table).then_some(table)
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}

fn read(tables: &mut Tables, table: &[u8]) {
    match &table[..4] {
        b"APIC" => madt::read(tables, table),
        b"FACP" => read_fadt(tables, table),
        b"MCFG" => tables.ecam = read_mcfg(table).unwrap_or(0),
        _ => {}
    }
}

/// The base address for bus 0 of segment 0 (PCI Firmware Specification 3.3, 4.1.2).
fn read_mcfg(mcfg: &[u8]) -> Option<u64> {
    const FIRST: usize = 44;
    const ENTRY: usize = 16;
    let mut entries = mcfg.get(FIRST..)?.chunks_exact(ENTRY);
    // Segment, first bus.
    let entry = entries.find(|entry| entry[8..11] == [0, 0, 0])?;
    u64_at(entry, 0)
}

/// The virtio-mmio devices of the DSDT at `address`. The search takes long, so
/// machines with PCI, which have their devices there, skip it.
pub fn virtio_mmio(memory: &impl Physical, address: u64) -> Vec<MmioWord> {
    let is_dsdt = memory.bytes(address, 4) == Some(b"DSDT");
    let dsdt = table(memory, address).filter(|_| is_dsdt);
    dsdt.map(dsdt::virtio_mmio).unwrap_or_default()
}

fn read_fadt(tables: &mut Tables, fadt: &[u8]) {
    let port = |offset| {
        u32_at(fadt, offset)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|&port| port != 0)
    };
    let wide = u64_at(fadt, 140).filter(|&address| address != 0);
    tables.dsdt = wide.unwrap_or_else(|| u32_at(fadt, 40).map_or(0, u64::from));
    tables.pm1a_control_port = port(64);
    tables.pm_timer_port = port(76);
    tables.sleep_control_port = io_port(fadt, 244);
}

/// The port of a generic address structure (5.2.3.2) in I/O space.
fn io_port(table: &[u8], offset: usize) -> Option<u16> {
    let space = *table.get(offset)?;
    let address = u64_at(table, offset + 4)?;
    u16::try_from(address)
        .ok()
        .filter(|&port| space == SYSTEM_IO && port != 0)
}

#[cfg(test)]
mod tests;
