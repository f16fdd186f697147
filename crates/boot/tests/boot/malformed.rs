//! Each way in which an image, an initramfs or a command line can be wrong.

use std::io::Cursor;

use tare_abi::layout::{GIB, MIB};
use tare_boot::{LoadError, LoadOptions, Part, Protocol, boots_by_itself, load};
use vm_memory::{Bytes, GuestAddress};

use crate::images::{ENTRY, Segment, elf, load_alone, memory, valid_segments};

fn error(file: &[u8]) -> LoadError {
    load_alone(file).unwrap_err()
}

fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = elf(&valid_segments());
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn what_is_not_elf_is_said_so() {
    for file in [&b""[..], b"\x7fEL", b"#!/bin/sh\n", &[0; 4096]] {
        assert!(matches!(error(file), LoadError::NotElf));
    }
    assert!(error(b"").to_string().contains("vmlinux"));
}

#[test]
fn another_machine_is_named() {
    let cases = [
        (4, 1_u8, "64-bit"),
        (5, 2, "big-endian"),
        (18, 183, "another processor"),
        (16, 1, "not executable"),
    ];
    for (at, byte, word) in cases {
        let error = error(&patched(at, &[byte]));
        assert!(matches!(error, LoadError::WrongMachine { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_file_cut_anywhere_is_truncated_or_not_elf() {
    let file = elf(&valid_segments());
    assert!(load_alone(&file).is_ok());
    for length in 0..file.len() {
        let error = error(&file[..length]);
        let expected = if length < 4 {
            matches!(error, LoadError::NotElf)
        } else {
            matches!(error, LoadError::Truncated { .. })
        };
        assert!(expected, "cut at {length}: {error}");
    }
}

#[test]
fn truncation_says_what_is_cut_off() {
    let file = elf(&valid_segments());
    let part = |length: usize| match error(&file[..length]) {
        LoadError::Truncated { part, .. } => part,
        other => panic!("{other}"),
    };
    assert_eq!(part(10), Part::Header);
    assert_eq!(part(100), Part::ProgramHeaders);
    assert_eq!(part(300), Part::Segment(0));
    assert_eq!(part(file.len() - 1), Part::Segment(2));
}

#[test]
fn odd_program_headers_are_refused() {
    for (at, bytes) in [(54, 32_u16), (56, 0xffff)] {
        let error = error(&patched(at, &bytes.to_le_bytes()));
        assert!(matches!(error, LoadError::Headers { .. }), "{error}");
    }
    let far = patched(32, &u64::MAX.to_le_bytes());
    assert!(matches!(error(&far), LoadError::Truncated { .. }));
}

#[test]
fn an_image_without_a_pvh_note_says_how_to_get_one() {
    let error = error(&elf(&valid_segments()[..2]));
    assert!(matches!(error, LoadError::NoPvhNote));
    assert!(error.to_string().contains("CONFIG_PVH"), "{error}");
}

#[test]
fn an_image_boots_by_itself_and_a_program_does_not() {
    let by_itself = |file: Vec<u8>| boots_by_itself(&mut Cursor::new(file));
    assert!(by_itself(elf(&valid_segments())));
    assert!(!by_itself(elf(&valid_segments()[..2])));
    assert!(!by_itself(Vec::new()));
    // What is wrong with the entry is for `load` to say.
    let far = Segment {
        bytes: Segment::pvh_note(0).bytes[..18].to_vec(),
        ..Segment::pvh_note(0)
    };
    assert!(!by_itself(elf(&[far])));
    assert!(by_itself(elf(&[Segment::pvh_note(0)])));
    // This test is a program.
    let own = std::env::current_exe().expect("a path");
    let mut own = std::fs::File::open(own).expect("a file");
    assert!(!boots_by_itself(&mut own));
}

#[test]
fn an_image_without_loadable_segments_is_refused() {
    let file = elf(&valid_segments()[2..]);
    assert!(matches!(error(&file), LoadError::NoSegments));
}

#[test]
fn a_segment_outside_memory_says_how_much_it_needs() {
    let segments = [
        Segment::load(MIB, &[1; 256]).with_memory(7 * MIB + 1),
        Segment::pvh_note(ENTRY),
    ];
    let error = error(&elf(&segments));
    let LoadError::OutsideMemory {
        need_mib, have_mib, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((have_mib, need_mib), (8, Some(9)));
    assert!(error.to_string().contains("give it 9 MiB"), "{error}");
}

#[test]
fn a_segment_in_the_hole_for_devices_cannot_be_helped_by_memory() {
    let segments = [
        Segment::load(MIB, &[1; 256]),
        Segment::load(3 * GIB, &[1]),
        Segment::pvh_note(ENTRY),
    ];
    let error = error(&elf(&segments));
    assert!(error.to_string().contains("lower address"), "{error}");
}

#[test]
fn a_segment_on_the_boot_information_is_refused() {
    for address in [0, 0x6000, MIB - 1] {
        let segments = [Segment::load(address, &[1; 4]), Segment::pvh_note(ENTRY)];
        let with_entry = [segments.to_vec(), vec![Segment::load(MIB, &[1; 256])]].concat();
        let error = error(&elf(&with_entry));
        assert!(
            matches!(
                error,
                LoadError::BootArea { .. } | LoadError::Overlap { .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn overlapping_segments_are_named() {
    let segments = [
        Segment::load(2 * MIB, &[1; 16]),
        Segment::load(MIB, &[1; 256]).with_memory(MIB + 1),
        Segment::pvh_note(ENTRY),
    ];
    let error = error(&elf(&segments));
    assert!(matches!(
        error,
        LoadError::Overlap {
            first: 0,
            second: 1
        }
    ));
}

#[test]
fn a_segment_at_the_end_of_the_address_space_does_not_wrap() {
    let segments = [
        Segment::load(u64::MAX - 10, &[1; 16]).with_memory(100),
        Segment::pvh_note(ENTRY),
    ];
    assert!(matches!(error(&elf(&segments)), LoadError::Headers { .. }));
}

#[test]
fn a_segment_larger_in_the_file_than_in_memory_is_refused() {
    let segments = [
        Segment::load(MIB, &[1; 256]).with_memory(255),
        Segment::pvh_note(ENTRY),
    ];
    assert!(matches!(
        error(&elf(&segments)),
        LoadError::SegmentSize { segment: 0, .. }
    ));
}

#[test]
fn an_entry_outside_the_loaded_bytes_is_refused() {
    // Behind the code, in zeros, in low memory.
    for entry in [MIB as u32 + 256, 2 * MIB as u32 + 200, 0] {
        let mut segments = valid_segments();
        segments[2] = Segment::pvh_note(entry);
        assert!(matches!(
            error(&elf(&segments)),
            LoadError::EntryOutside { .. }
        ));
    }
}

#[test]
fn a_note_that_lies_about_its_length_is_refused() {
    let mut segments = valid_segments();
    segments[2].bytes[4] = 0xff;
    assert!(matches!(error(&elf(&segments)), LoadError::Notes));
}

#[test]
fn an_initramfs_without_room_says_how_much_memory_it_needs() {
    let mut initramfs = Cursor::new(vec![0_u8; 7 * MIB as usize]);
    let options = LoadOptions {
        cmdline: "",
        initramfs: Some(&mut initramfs),
        cpus: 1,
        protocol: Protocol::Pvh,
    };
    let mut image = Cursor::new(elf(&valid_segments()));
    let error = load(&memory(8), &mut image, options).unwrap_err();
    let LoadError::InitramfsTooLarge { need_mib, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(need_mib, 10);
}

#[test]
fn a_machine_too_small_for_boot_information_is_refused() {
    let small = vm_memory::GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x8_0000)]).unwrap();
    let options = LoadOptions {
        cmdline: "",
        initramfs: None,
        cpus: 1,
        protocol: Protocol::Pvh,
    };
    let error = load(&small, &mut Cursor::new(elf(&valid_segments())), options).unwrap_err();
    assert!(matches!(error, LoadError::MemoryTooSmall { .. }));
}

#[test]
fn nothing_is_written_when_a_check_fails() {
    let memory = memory(8);
    let options = LoadOptions {
        cmdline: "tab\there",
        initramfs: None,
        cpus: 1,
        protocol: Protocol::Pvh,
    };
    let error = load(&memory, &mut Cursor::new(elf(&valid_segments())), options).unwrap_err();
    assert!(matches!(
        error,
        LoadError::CmdlineNotPrintable {
            byte: 9,
            position: 3
        }
    ));
    let mut bytes = vec![0; 8 * MIB as usize];
    memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}
