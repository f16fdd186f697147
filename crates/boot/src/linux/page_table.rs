//! The page table at a 64-bit entry: the first 4 GiB at their own addresses, in
//! pages of 2 MiB, which every 64-bit processor has.

use tare_abi::layout::{BOOT_PAGE_TABLE, GIB, KIB, MIB};
use vm_memory::{Bytes, GuestAddress};

use crate::GuestMemoryMmap;
use crate::error::LoadError;

const TABLE_BYTES: u64 = 4 * KIB;
const MAPPED_GIB: u64 = 4;
const PRESENT_WRITABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;

/// Writes a top-level table, one of pointers, and a directory for each GiB.
pub(crate) fn write(memory: &GuestMemoryMmap) -> Result<(), LoadError> {
    let pointers = BOOT_PAGE_TABLE + TABLE_BYTES;
    let directories = pointers + TABLE_BYTES;
    put(memory, BOOT_PAGE_TABLE, [pointers | PRESENT_WRITABLE])?;
    let directory = |gib| directories + gib * TABLE_BYTES;
    let all = (0..MAPPED_GIB).map(|gib| directory(gib) | PRESENT_WRITABLE);
    put(memory, pointers, all)?;
    for gib in 0..MAPPED_GIB {
        let page = |number: u64| gib * GIB + number * 2 * MIB;
        let pages = (0..512).map(|number| page(number) | LARGE | PRESENT_WRITABLE);
        put(memory, directory(gib), pages)?;
    }
    Ok(())
}

fn put(
    memory: &GuestMemoryMmap,
    at: u64,
    entries: impl IntoIterator<Item = u64>,
) -> Result<(), LoadError> {
    let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_le_bytes).collect();
    Ok(memory.write_slice(&bytes, GuestAddress(at))?)
}
