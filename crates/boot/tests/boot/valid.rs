//! An image that loads, and all that the guest finds.

use std::io::Cursor;

use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use tare_abi::entry::{EntryState, boot_gdt};
use tare_abi::layout::{BOOT_GDT, CMDLINE, MIB, PVH_START_INFO, RSDP};
use tare_boot::{GuestMemoryMmap, LoadOptions, Loaded, Protocol, load};
use vm_memory::{ByteValued, Bytes, GuestAddress};

use crate::images::{ENTRY, Segment, elf, load_alone, memory, valid_segments};

fn loaded() -> (GuestMemoryMmap, Loaded) {
    let memory = memory(8);
    let mut initramfs = Cursor::new(vec![0x5a_u8; 5000]);
    let options = LoadOptions {
        cmdline: "log=info root",
        initramfs: Some(&mut initramfs),
        cpus: 2,
        protocol: Protocol::Pvh,
    };
    let mut image = Cursor::new(elf(&valid_segments()));
    let loaded = load(&memory, &mut image, options).unwrap();
    (memory, loaded)
}

fn read(memory: &GuestMemoryMmap, at: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
    bytes
}

fn object<T: ByteValued>(memory: &GuestMemoryMmap, at: u64) -> T {
    memory.read_obj(GuestAddress(at)).unwrap()
}

#[test]
fn segments_lie_where_the_image_wants_them() {
    let (memory, loaded) = loaded();
    assert_eq!(loaded.entry, EntryState::pvh(u64::from(ENTRY)));
    assert_eq!(loaded.image, MIB..2 * MIB + 0x3000);
    assert_eq!(read(&memory, MIB, 256), [0x90; 256]);
    assert_eq!(read(&memory, 2 * MIB, 100), [7; 100]);
    assert_eq!(read(&memory, 2 * MIB + 100, 0x2f00), [0; 0x2f00]);
}

#[test]
fn the_start_info_points_to_everything() {
    let (memory, loaded) = loaded();
    let info: hvm_start_info = object(&memory, PVH_START_INFO);
    assert_eq!((info.magic, info.version), (0x336e_c578, 1));
    assert_eq!((info.cmdline_paddr, info.rsdp_paddr), (CMDLINE, RSDP));
    assert_eq!(read(&memory, CMDLINE, 14), b"log=info root\0");
    assert_eq!(info.nr_modules, 1);
    let module: hvm_modlist_entry = object(&memory, info.modlist_paddr);
    assert_eq!(
        Some(module.paddr..module.paddr + module.size),
        loaded.initramfs
    );
    assert_eq!((module.paddr % 4096, module.size), (0, 5000));
    assert_eq!(read(&memory, module.paddr, 5000), [0x5a; 5000]);
}

#[test]
fn the_memory_map_covers_image_and_initramfs_with_ram() {
    let (memory, loaded) = loaded();
    let info: hvm_start_info = object(&memory, PVH_START_INFO);
    let entries: Vec<hvm_memmap_table_entry> = (0..u64::from(info.memmap_entries))
        .map(|index| object(&memory, info.memmap_paddr + 24 * index))
        .collect();
    let ram = |address: u64| {
        entries
            .iter()
            .any(|it| it.type_ == 1 && (it.addr..it.addr + it.size).contains(&address))
    };
    assert!(ram(loaded.image.start) && ram(loaded.image.end - 1));
    assert!(ram(loaded.initramfs.unwrap().end - 1));
    assert!(ram(0) && !ram(0xa_0000) && !ram(RSDP) && !ram(8 * MIB));
}

#[test]
fn the_boot_gdt_fits_the_entry_state() {
    let (memory, loaded) = loaded();
    let entries: [u64; 5] =
        std::array::from_fn(|index| object(&memory, BOOT_GDT + 8 * index as u64));
    assert_eq!(entries, boot_gdt(loaded.entry.mode));
}

#[test]
fn without_an_initramfs_there_is_no_module() {
    let memory = memory(8);
    let options = LoadOptions {
        cmdline: "",
        initramfs: None,
        cpus: 1,
        protocol: Protocol::Pvh,
    };
    load(&memory, &mut Cursor::new(elf(&valid_segments())), options).unwrap();
    let info: hvm_start_info = object(&memory, PVH_START_INFO);
    assert_eq!((info.nr_modules, info.modlist_paddr), (0, 0));
}

#[test]
fn segments_may_touch_and_be_out_of_order() {
    let segments = [
        Segment::load(MIB + 256, &[2; 16]),
        Segment::load(MIB, &[1; 256]),
        Segment::load(MIB + 512, &[]).with_memory(0),
        Segment::pvh_note(ENTRY),
    ];
    assert!(load_alone(&elf(&segments)).is_ok());
}

#[test]
fn an_image_may_fill_memory_to_the_last_byte() {
    let segments = [
        Segment::load(MIB, &[1; 256]).with_memory(7 * MIB),
        Segment::pvh_note(ENTRY),
    ];
    assert_eq!(load_alone(&elf(&segments)).unwrap().image, MIB..8 * MIB);
}
