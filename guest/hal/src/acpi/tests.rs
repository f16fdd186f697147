//! Tables as monitors write them, and as hostile ones might.

use super::*;
use crate::boot::fake::Fake;
use crate::cpu::MAX;

const BASE: u64 = 0xe_0000;

fn checked(mut table: Vec<u8>, checksum_at: usize) -> Vec<u8> {
    let sum = table.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
    table[checksum_at] = table[checksum_at].wrapping_sub(sum);
    table
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = vec![0; 36];
    table[..4].copy_from_slice(signature);
    table.extend(body);
    let length = table.len() as u32;
    table[4..8].copy_from_slice(&length.to_le_bytes());
    checked(table, 9)
}

fn madt() -> Vec<u8> {
    let mut body = vec![0, 0, 0xe0, 0xfe, 1, 0, 0, 0];
    for (id, enabled) in [(0, 1), (1, 1), (1, 1), (2, 0), (255, 1)] {
        body.extend([0, 8, id, id, enabled, 0, 0, 0]);
    }
    body.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    body.extend([9, 16, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    table(b"APIC", &body)
}

fn fadt() -> Vec<u8> {
    let mut body = vec![0; 276 - 36];
    body[64 - 36..66 - 36].copy_from_slice(&0x604_u16.to_le_bytes());
    body[76 - 36..78 - 36].copy_from_slice(&0x608_u16.to_le_bytes());
    body[244 - 36] = 1;
    body[248 - 36..250 - 36].copy_from_slice(&0x600_u16.to_le_bytes());
    table(b"FACP", &body)
}

fn memory() -> Fake {
    let mut memory = Fake {
        base: BASE,
        bytes: vec![0; 0x2_0000],
    };
    let mut rsdp = RSDP_SIGNATURE.to_vec();
    rsdp.resize(20, 0);
    rsdp[15] = 2;
    memory.put(BASE + 0x40, &checked(rsdp, 8));
    memory.put(BASE + 0x40 + 24, &(BASE + 0x100).to_le_bytes());
    let mut list = (BASE + 0x200).to_le_bytes().to_vec();
    list.extend((BASE + 0x400).to_le_bytes());
    memory.put(BASE + 0x100, &table(b"XSDT", &list));
    memory.put(BASE + 0x200, &madt());
    memory.put(BASE + 0x400, &fadt());
    memory
}

fn mcfg(segment: u16, base: u64) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(base.to_le_bytes());
    body.extend(segment.to_le_bytes());
    body.extend([0, 0, 0, 0, 0, 0]);
    table(b"MCFG", &body)
}

#[test]
fn configuration_space_of_segment_0_is_found() {
    let mut tables = Tables::default();
    read(&mut tables, &mcfg(0, 0xe000_0000));
    assert_eq!(tables.ecam, 0xe000_0000);
    read(&mut tables, &mcfg(1, 0xe000_0000));
    assert_eq!(tables.ecam, 0);
    read(&mut tables, &mcfg(0, 0xe000_0000)[..50]);
    assert_eq!(tables.ecam, 0);
}

#[test]
fn tables_are_found_and_read() {
    let tables = find(&memory(), 0).expect("found by scanning");
    assert_eq!(&tables.apic_ids[..tables.cpus], [0, 1, 7]);
    assert_eq!(tables.ioapics, [(0xfec0_0000, 0)]);
    assert!(tables.has_pic);
    assert_eq!(tables.pm_timer_port, Some(0x608));
    assert_eq!(tables.pm1a_control_port, Some(0x604));
    assert_eq!(tables.sleep_control_port, Some(0x600));
    assert_eq!(find(&memory(), BASE + 0x40), Some(tables));
}

#[test]
fn a_wrong_checksum_skips_the_table() {
    let mut memory = memory();
    memory.put(BASE + 0x200 + 30, &[1]);
    let tables = find(&memory, 0).expect("the others are there");
    assert_eq!(tables.cpus, 0);
    assert_eq!(tables.pm_timer_port, Some(0x608));
}

#[test]
fn a_wrong_root_pointer_is_ignored() {
    assert_eq!(find(&memory(), BASE), None);
    assert_eq!(find(&memory(), u64::MAX), None);
    assert_eq!(find(&memory(), u64::MAX - 20), None);
}

#[test]
fn more_cpus_than_used_are_left_out() {
    let mut body = vec![0; 8];
    for id in 0..100 {
        body.extend([0, 8, id, id, 1, 0, 0, 0]);
    }
    let mut tables = Tables::default();
    madt::read(&mut tables, &table(b"APIC", &body));
    assert_eq!(tables.cpus, MAX);
}

#[test]
fn every_truncation_and_every_changed_byte_is_survived() {
    let madt = madt();
    for length in 36..madt.len() {
        madt::read(&mut Tables::default(), &madt[..length]);
    }
    for at in 0..0x600 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut memory = memory();
            memory.put(BASE + at, &[value]);
            find(&memory, 0);
        }
    }
}

#[test]
fn entries_of_length_zero_end_the_table() {
    let mut tables = Tables::default();
    madt::read(&mut tables, &table(b"APIC", &[0; 64]));
    assert_eq!(tables.cpus, 0);
}

/// Each access checks whether its range is mapped, which took 60 instructions in the guest:
/// half a million at a start in QEMU's microvm, which has no tables.
#[test]
fn a_search_without_a_find_asks_for_the_area_once() {
    struct Counted(Fake, core::cell::Cell<u32>);
    impl Physical for Counted {
        fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
            self.1.set(self.1.get() + 1);
            self.0.bytes(address, length)
        }
    }
    let empty = Fake {
        bytes: vec![0; 0x2_0000],
        ..memory()
    };
    let memory = Counted(empty, core::cell::Cell::new(0));
    assert!(find(&memory, 0).is_none());
    assert_eq!(memory.1.get(), 1);
}
