//! Linux kernels: a bzImage made by hand, and a vmlinux without a PVH note.

use std::io::Cursor;

use tare_abi::entry::{EntryMode, EntryState};
use tare_abi::layout::{BOOT_PAGE_TABLE, CMDLINE, MIB, RSDP, ZERO_PAGE};
use tare_boot::{GuestMemoryMmap, Initramfs, LoadError, LoadOptions, Loaded, Part, Protocol, load};
use vm_memory::{Bytes, GuestAddress};

use crate::images::{Segment, elf};

/// A header, one sector of real-mode code, 1 KiB of payload; relocatable, wants
/// to be at 1 MiB.
const VALID: &[u8] = include_bytes!("../../../../fuzz/corpus/bzimage/valid");
const PAYLOAD_AT: usize = 1024;
const CMDLINE_TEXT: &str = "console=ttyS0";

fn memory(mib: u64) -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), (mib * MIB) as usize)]).unwrap()
}

fn boot(memory: &GuestMemoryMmap, file: &[u8], initramfs: &[u8]) -> Result<Loaded, LoadError> {
    let mut initramfs = Cursor::new(initramfs);
    let options = LoadOptions {
        cmdline: CMDLINE_TEXT,
        initramfs: (!initramfs.get_ref().is_empty())
            .then_some(&mut initramfs as &mut dyn Initramfs),
        cpus: 1,
        protocol: Protocol::Linux,
    };
    load(memory, &mut Cursor::new(file), options)
}

fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = VALID.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn read<const N: usize>(memory: &GuestMemoryMmap, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
    bytes
}

fn u32_at(memory: &GuestMemoryMmap, at: u64) -> u64 {
    u32::from_le_bytes(read(memory, at)).into()
}

fn u64_at(memory: &GuestMemoryMmap, at: u64) -> u64 {
    u64::from_le_bytes(read(memory, at))
}

#[test]
fn a_line_longer_than_the_kernel_says_is_refused() {
    let most = CMDLINE_TEXT.len() as u32;
    assert!(boot(&memory(8), &with(0x238, &most.to_le_bytes()), b"").is_ok());
    let refused = boot(&memory(8), &with(0x238, &(most - 1).to_le_bytes()), b"");
    assert!(matches!(
        refused,
        Err(LoadError::CmdlineTooLong {
            bytes: 13,
            most: 12
        })
    ));
}

#[test]
fn a_bzimage_is_entered_in_64_bit_mode_behind_its_first_sector() {
    let memory = memory(8);
    let loaded = boot(&memory, VALID, b"").unwrap();
    assert_eq!(loaded.entry, EntryState::linux(MIB + 0x200));
    assert_eq!(loaded.image, MIB..MIB + 8192);
    assert_eq!(read::<1024>(&memory, MIB), VALID[PAYLOAD_AT..]);
}

#[test]
fn the_boot_parameters_say_where_everything_is() {
    let memory = memory(8);
    let loaded = boot(&memory, VALID, &[7; 5000]).unwrap();
    let zero_page = |at: u64| ZERO_PAGE + at;
    assert_eq!(read(&memory, zero_page(0x202)), *b"HdrS");
    assert_eq!(read::<1>(&memory, zero_page(0x210)), [0xff]);
    let initramfs = loaded.initramfs.unwrap();
    assert_eq!(u32_at(&memory, zero_page(0x218)), initramfs.start);
    assert_eq!(u32_at(&memory, zero_page(0x21c)), 5000);
    assert_eq!(u32_at(&memory, zero_page(0x228)), CMDLINE);
    assert_eq!(u32_at(&memory, zero_page(0x238)), CMDLINE_TEXT.len() as u64);
    assert_eq!(u64_at(&memory, zero_page(0x70)), RSDP);
    // The first entry of the memory map is conventional memory.
    assert_eq!(read::<1>(&memory, zero_page(0x1e8)), [4]);
    assert_eq!(u64_at(&memory, zero_page(0x2d0)), 0);
    assert_eq!(u64_at(&memory, zero_page(0x2d8)), 640 << 10);
    assert_eq!(u32_at(&memory, zero_page(0x2e0)), 1);
}

#[test]
fn the_first_4_gib_are_mapped_at_their_own_addresses() {
    let memory = memory(8);
    let loaded = boot(&memory, VALID, b"").unwrap();
    let page_table = BOOT_PAGE_TABLE;
    assert_eq!(loaded.entry.mode, EntryMode::Long64 { page_table });
    for address in [0, MIB, 0x1234_5678, 0xffff_f000_u64] {
        assert_eq!(translate(&memory, address), address & !(2 * MIB - 1));
    }
}

/// Walks the table by hand, down to pages of 2 MiB.
fn translate(memory: &GuestMemoryMmap, address: u64) -> u64 {
    let entry = |table: u64, index: u64| {
        let entry = u64_at(memory, (table & !0xfff) + index * 8);
        assert_eq!(entry & 3, 3);
        entry
    };
    let pointers = entry(BOOT_PAGE_TABLE, address >> 39);
    let directory = entry(pointers, (address >> 30) & 511);
    let page = entry(directory, (address >> 21) & 511);
    assert_eq!(page & (1 << 7), 1 << 7);
    page & !(2 * MIB - 1)
}

#[test]
fn a_kernel_that_prefers_too_high_an_address_is_loaded_low() {
    let prefers_16_mib = with(0x258, &(16 * MIB).to_le_bytes());
    let place = |mib| {
        boot(&memory(mib), &prefers_16_mib, b"")
            .unwrap()
            .image
            .start
    };
    assert_eq!(place(32), 16 * MIB);
    assert_eq!(place(8), MIB);
}

#[test]
fn a_kernel_that_does_not_fit_says_what_would() {
    let needs_16_mib = with(0x260, &(16_u32 << 20).to_le_bytes());
    let error = boot(&memory(8), &needs_16_mib, b"").unwrap_err();
    let LoadError::KernelTooLarge { need_mib, have_mib } = error else {
        panic!("{error}");
    };
    assert_eq!((need_mib, have_mib), (17, 8));
    assert!(boot(&memory(need_mib), &needs_16_mib, b"").is_ok());
}

#[test]
fn kernels_that_cannot_be_booted_are_refused_by_reason() {
    let refused = |file: &[u8]| boot(&memory(8), file, b"").unwrap_err();
    let truncated = refused(&VALID[..1300]);
    assert!(matches!(
        truncated,
        LoadError::Truncated {
            part: Part::Payload,
            end: 2048,
            file_bytes: 1300
        }
    ));
    assert!(matches!(
        refused(&with(0x236, &[0])),
        LoadError::No64BitEntry
    ));
    assert!(matches!(
        refused(&with(0x206, &[0x0b])),
        LoadError::No64BitEntry
    ));
    assert!(matches!(
        refused(&with(0x230, &[1])),
        LoadError::KernelAlignment { alignment: 0x1001 }
    ));
    assert!(matches!(refused(b"#!/bin/sh"), LoadError::NotAKernel));
    assert!(matches!(refused(b""), LoadError::NotAKernel));
}

#[test]
fn a_vmlinux_without_a_note_is_entered_at_its_64_bit_entry() {
    let mut file = elf(&[Segment::load(MIB, &[0x90; 64])]);
    file[24..32].copy_from_slice(&(MIB + 16).to_le_bytes());
    let memory = memory(8);
    let loaded = boot(&memory, &file, b"").unwrap();
    assert_eq!(loaded.entry, EntryState::linux(MIB + 16));
    assert_eq!(read(&memory, ZERO_PAGE + 0x202), *b"HdrS");
}

#[test]
fn a_vmlinux_with_a_note_is_entered_by_it() {
    let file = elf(&[
        Segment::load(MIB, &[0x90; 64]),
        Segment::pvh_note(MIB as u32),
    ]);
    let loaded = boot(&memory(8), &file, b"").unwrap();
    assert_eq!(loaded.entry, EntryState::pvh(MIB));
}
