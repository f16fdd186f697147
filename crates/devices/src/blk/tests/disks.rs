//! What may be a disk, and O_DIRECT's wishes.

use std::fs;
use std::path::PathBuf;

use super::*;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    // Beside the build, which is on a disk: /tmp may be memory.
    let place = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(place.parent().unwrap()).unwrap();
    let path = dir.path().join("disk.img");
    (dir, path)
}

fn problem(path: &std::path::Path, access: Access) -> Problem {
    Disk::open(path, access).unwrap_err().problem
}

#[test]
fn what_is_no_raw_disk_is_refused_by_name() {
    let (dir, path) = scratch();
    assert!(matches!(
        problem(&path, Access::ReadWrite),
        Problem::Missing
    ));
    assert!(matches!(
        problem(dir.path(), Access::ReadOnly),
        Problem::NotADisk
    ));
    fs::write(&path, b"").unwrap();
    assert!(matches!(problem(&path, Access::ReadWrite), Problem::Empty));
    fs::write(&path, [0; 513]).unwrap();
    let odd = problem(&path, Access::ReadWrite);
    assert!(matches!(odd, Problem::OddSize { bytes: 513 }));
    for (at, magic, format) in [
        (0, &b"QFI\xfb"[..], "qcow2"),
        (0, b"KDMV", "VMDK"),
        (0, b"conectix", "VHD"),
        (0, b"vhdxfile", "VHDX"),
        (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    ] {
        let mut image = vec![0; 4096];
        image[at..at + magic.len()].copy_from_slice(magic);
        fs::write(&path, &image).unwrap();
        let error = Disk::open(&path, Access::ReadOnly).unwrap_err();
        let expected = format!("is a {format} image; only raw images can be used");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

#[test]
fn a_disk_in_use_is_refused() {
    let (_dir, path) = scratch();
    fs::write(&path, [0; 4096]).unwrap();
    let first = Disk::open(&path, Access::ReadWrite).unwrap();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert!(matches!(problem(&path, access), Problem::InUse));
    }
    // Who inherits the open file has the lock already.
    let inherited = first.file().try_clone().unwrap();
    Disk::from_file(inherited, "disk", Access::ReadWrite).unwrap();
    drop(first);
    let _one = Disk::open(&path, Access::ReadOnly).unwrap();
    let _two = Disk::open(&path, Access::ReadOnly).unwrap();
    assert!(matches!(problem(&path, Access::ReadWrite), Problem::InUse));
}

#[test]
fn buffers_that_o_direct_cannot_take_are_copied() {
    let (_dir, path) = scratch();
    let mut image = vec![0; 64 << 10];
    for (sector, bytes) in image.chunks_mut(512).enumerate() {
        bytes.fill(sector as u8);
    }
    fs::write(&path, &image).unwrap();
    let disk = Disk::open(&path, Access::ReadWrite).unwrap();
    if !disk.is_direct() {
        println!("SKIP: this file system has no O_DIRECT with 512-byte blocks");
        return;
    }
    let chosen = choose(&disk).unwrap();
    let device = Blk::new(settings(), disk, chosen.engine, Box::new(MonotonicClock));
    let machine = Machine::new(device);
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    let aligned = Wanted::new(0, 3, 1024);
    assert_eq!(request(&machine, &mut rings[0], aligned), 0);
    assert_eq!(machine.counter("bounced"), 0);
    assert_eq!(get(&machine.memory, DATA + 512, 512), [4; 512]);
    let odd = Wanted {
        data: DATA + 3,
        ..aligned
    };
    assert_eq!(request(&machine, &mut rings[0], odd), 0);
    assert_eq!(machine.counter("bounced"), 1);
    assert_eq!(get(&machine.memory, DATA + 3 + 512, 512), [4; 512]);
    put(&machine.memory, DATA + 3, &[0x5a; 512]);
    let write = Wanted {
        data: DATA + 3,
        ..Wanted::new(1, 9, 512)
    };
    assert_eq!(request(&machine, &mut rings[0], write), 0);
    assert_eq!(fs::read(&path).unwrap()[9 * 512..10 * 512], [0x5a; 512]);
}

/// What is copied is copied while the device is locked: a turn ends after a mebibyte.
#[test]
fn a_turn_copies_a_bounded_number_of_bytes() {
    let (_dir, path) = scratch();
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let disk = Disk::open(&path, Access::ReadWrite).unwrap();
    if !disk.is_direct() {
        println!("SKIP: this file system has no O_DIRECT with 512-byte blocks");
        return;
    }
    let chosen = choose(&disk).unwrap();
    let device = Blk::new(settings(), disk, chosen.engine, Box::new(MonotonicClock));
    let machine = Machine::new(device);
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    for slot in 0..6 {
        let odd = Wanted {
            data: DATA + 3,
            status: STATUS + slot,
            ..Wanted::new(0, 0, 256 << 10)
        };
        odd.offer(&machine, &mut rings[0]);
    }
    let turn = || machine.io(|device| device.notified(0));
    let copied: Vec<u64> = (0..3)
        .map(|_| {
            let _ = turn();
            machine.counter("bounced")
        })
        .collect();
    assert_eq!(copied, [4, 6, 6]);
    serve(&machine, &mut rings[0], 0, 6);
}

#[test]
fn what_looks_like_another_format_is_raw_where_that_is_said() {
    let (_dir, path) = scratch();
    let mut image = vec![0; 4096];
    image[..4].copy_from_slice(b"QFI\xfb");
    fs::write(&path, &image).unwrap();
    let detected = problem(&path, Access::ReadWrite);
    assert!(matches!(detected, Problem::Format { format: "qcow2" }));
    let disk = Disk::open_as(&path, Access::ReadWrite, Format::Raw).unwrap();
    assert_eq!(disk.sectors(), 8);
}
