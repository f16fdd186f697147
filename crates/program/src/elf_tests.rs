//! Tests of the layout: a file that is made here, and damage to it.

use super::*;
use proptest::prelude::*;

const HEADER: usize = 64;
const ENTRY: usize = 56;

struct Load {
    flags: u32,
    offset: u64,
    address: u64,
    file: u64,
    memory: u64,
}

const CODE: Load = Load {
    flags: 5,
    offset: 0,
    address: 0x40_0000,
    file: 0x200,
    memory: 0x200,
};
const DATA: Load = Load {
    flags: 6,
    offset: 0x200,
    address: 0x40_1200,
    file: 0x100,
    memory: 0x5000,
};

fn file(kind: u16, loads: &[Load]) -> Vec<u8> {
    let mut file = vec![0; 0x400];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &kind.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(24, &0x40_0100_u64.to_le_bytes());
    put(32, &(HEADER as u64).to_le_bytes());
    put(52, &(HEADER as u16).to_le_bytes());
    put(54, &(ENTRY as u16).to_le_bytes());
    put(56, &(loads.len() as u16).to_le_bytes());
    for (number, load) in loads.iter().enumerate() {
        let at = HEADER + number * ENTRY;
        put(at, &1_u32.to_le_bytes());
        put(at + 4, &load.flags.to_le_bytes());
        put(at + 8, &load.offset.to_le_bytes());
        put(at + 16, &load.address.to_le_bytes());
        put(at + 32, &load.file.to_le_bytes());
        put(at + 40, &load.memory.to_le_bytes());
    }
    file
}

#[test]
fn a_fixed_program_has_its_segments_and_headers_where_it_says() {
    let layout = Layout::parse(&file(2, &[DATA, CODE])).expect("a program");
    assert_eq!(layout.place, LoadAddress::Fixed);
    assert_eq!(layout.entry, 0x40_0100);
    assert_eq!(layout.headers, Some(0x40_0040));
    assert_eq!(layout.pages(), 0x40_0000..0x40_7000);
    assert_eq!(layout.segments[0].address, 0x40_0000);
    assert!(layout.segments[1].write && !layout.segments[1].execute);
    assert_eq!(layout.interpreter, None);
    let layout = Layout::parse(&file(3, &[CODE])).expect("a program");
    assert_eq!(layout.place, LoadAddress::Relocatable);
}

#[test]
fn a_file_that_is_not_a_program_is_refused_by_name() {
    let parse = |bytes: &[u8]| Layout::parse(bytes).expect_err("refused");
    assert_eq!(parse(b"#!/bin/sh"), ElfError::NotElf);
    assert_eq!(parse(b"\x7fELF\x01\x01"), ElfError::Machine);
    assert_eq!(parse(&file(1, &[CODE])), ElfError::Kind(1));
    assert_eq!(parse(&file(2, &[])), ElfError::Empty);
    let good = file(2, &[CODE]);
    assert_eq!(parse(&good[..40]), ElfError::Truncated("the header"));
    assert_eq!(
        parse(&good[..100]),
        ElfError::Truncated("the table of segments")
    );
    assert_eq!(parse(&good[..0x180]), ElfError::Truncated("a segment"));
    let mut other = good.clone();
    other[18] = 3;
    assert_eq!(parse(&other), ElfError::Machine);
    other = good;
    other[25] = 0xff;
    assert!(matches!(parse(&other), ElfError::Entry(_)));
}

#[test]
fn segments_that_no_address_space_takes_are_refused() {
    let parse = |load| Layout::parse(&file(2, &[CODE, load])).expect_err("refused");
    let with = |address, memory| Load {
        address,
        memory,
        ..DATA
    };
    assert_eq!(
        parse(with(0x40_0100, 0x5000)),
        ElfError::Alignment(0x40_0100)
    );
    let overlap = Load {
        offset: 0x100,
        address: 0x40_0100,
        ..DATA
    };
    assert_eq!(parse(overlap), ElfError::Overlap(0x40_0100));
    let kernel = 0xffff_8000_0000_0200;
    assert_eq!(parse(with(kernel, 0x5000)), ElfError::Address(kernel));
    assert_eq!(
        parse(with(0x40_1200, u64::MAX)),
        ElfError::Address(0x40_1200)
    );
    assert_eq!(parse(with(0x40_1200, 0x80)), ElfError::Alignment(0x40_1200));
    let writable_code = Load { flags: 7, ..DATA };
    assert_eq!(parse(writable_code), ElfError::WritableCode(0x40_1200));
}

#[test]
fn a_file_for_this_machine_is_known_by_its_first_bytes() {
    let right = file(2, &[CODE]);
    assert!(is_for_this_machine(&right[..20]));
    assert!(is_for_this_machine(&right[..4]), "a truncated one");
    assert!(!is_for_this_machine(b"#!/bin/sh"));
    for (at, byte) in [(4, 1), (5, 2), (18, 183)] {
        let mut wrong = right.clone();
        wrong[at] = byte;
        assert!(!is_for_this_machine(&wrong[..20]), "{at}");
        assert_eq!(Layout::parse(&wrong), Err(ElfError::Machine));
    }
}

#[test]
fn this_test_is_a_dynamic_program() {
    let own = std::env::current_exe().expect("a path");
    let own = std::fs::read(own).expect("a file");
    let layout = Layout::parse(&own).expect("a program");
    assert_eq!(layout.place, LoadAddress::Relocatable);
    assert!(layout.interpreter.is_some_and(|path| path.contains("ld")));
}

proptest! {
    #[test]
    fn damage_never_panics_and_what_is_read_is_valid(
        at in 0_usize..0x400, byte in any::<u8>(), length in 0_usize..0x400, other in 0_usize..HEADER + 2 * ENTRY,
    ) {
        let mut file = file(2, &[CODE, DATA]);
        file[at] = byte;
        file[other] = byte.wrapping_add(1);
        file.truncate(length.max(at.min(1)));
        if let Ok(layout) = Layout::parse(&file) {
            for segment in &layout.segments {
                prop_assert!(segment.range().end <= MOST_ADDRESS);
                prop_assert!(segment.offset + segment.file_bytes <= file.len() as u64);
            }
        }
    }
}
