//! The calls of a volume, each on a file system that `mke2fs` made and `e2fsck` finds well
//! afterwards.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use support::{LossyDisk, debugfs, faults, formatted};
use tare_ext4::{Ext4Volume, mount_on};
use tare_libos::block::Access;
use tare_linux::volume::{Errno, Kind, New, Sought, Volume};

const CACHE: u64 = 1 << 20;

fn mounted(disk: &LossyDisk) -> Ext4Volume {
    mount_on("disk0", Box::new(disk.clone()), Access::ReadWrite, CACHE).unwrap()
}

fn names(volume: &Ext4Volume, directory: u64) -> Vec<String> {
    let listed = volume.list(directory).unwrap();
    let mut names: Vec<String> = listed.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

fn content(volume: &Ext4Volume, inode: u64) -> Vec<u8> {
    let mut bytes = vec![0; volume.attributes(inode).unwrap().bytes as usize];
    assert_eq!(volume.read(inode, 0, &mut bytes), Ok(bytes.len()));
    bytes
}

#[test]
fn what_is_written_is_there_after_the_end_and_the_host_reads_it() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let file = volume.make(root, "hello", New::File(0o640)).unwrap();
    assert_eq!(file.kind, Kind::File);
    assert_eq!(volume.write(file.inode, 0, b"hello, disk\n"), Ok(12));
    volume.end();
    assert_eq!(volume.look_up(root, "hello"), Err(Errno::EIO));
    let image = disk.after_power_loss(|_| false);
    assert_eq!(faults(&image), None);
    assert_eq!(debugfs(&image, "cat /hello"), "hello, disk\n");
    let volume = mounted(&LossyDisk::new(image));
    let found = volume.look_up(root, "hello").unwrap().unwrap();
    let attributes = volume.attributes(found.inode).unwrap();
    assert_eq!((attributes.mode, attributes.bytes), (0o100_640, 12));
    assert_eq!(content(&volume, found.inode), b"hello, disk\n");
}

#[test]
fn names_come_and_go_as_linux_has_them() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let file = volume.make(root, "a", New::File(0o644)).unwrap().inode;
    let directory = volume.make(root, "d", New::Directory(0o755)).unwrap().inode;
    let link = volume.make(root, "l", New::Link("d/a")).unwrap();
    assert_eq!(
        (link.kind, volume.target(link.inode)),
        (Kind::Link, Ok("d/a".into()))
    );
    let long = "x".repeat(1000);
    let link = volume.make(root, "long", New::Link(&long)).unwrap();
    assert_eq!(volume.target(link.inode), Ok(long));
    assert_eq!(volume.make(root, "a", New::File(0o644)), Err(Errno::EEXIST));
    assert_eq!(volume.link(file, directory, "b"), Ok(()));
    assert_eq!(volume.link(file, directory, "b"), Err(Errno::EEXIST));
    assert_eq!(volume.attributes(file).unwrap().links, 2);
    assert_eq!(volume.rename((root, "a"), (directory, "c")), Ok(()));
    assert_eq!(names(&volume, directory), ["b", "c"]);
    assert_eq!(volume.remove_directory(root, "d"), Err(Errno::ENOTEMPTY));
    assert_eq!(volume.unlink(root, "none"), Err(Errno::ENOENT));
    assert_eq!(volume.unlink(directory, "b"), Ok(()));
    assert_eq!(volume.unlink(directory, "c"), Ok(()));
    // Still open: it has its bytes until it is forgotten.
    assert_eq!(volume.write(file, 0, b"unlinked"), Ok(8));
    assert_eq!(content(&volume, file), b"unlinked");
    assert_eq!(volume.attributes(file).unwrap().links, 0);
    assert_eq!(volume.link(file, root, "again"), Err(Errno::ENOENT));
    volume.forget(file);
    assert_eq!(volume.remove_directory(root, "d"), Ok(()));
    // Nothing comes into a directory that was removed.
    assert_eq!(
        volume.make(directory, "x", New::File(0o644)),
        Err(Errno::ENOENT)
    );
    assert_eq!(names(&volume, root), ["l", "long", "lost+found"]);
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

#[test]
fn a_rename_replaces_what_is_there() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let old = volume.make(root, "old", New::File(0o644)).unwrap().inode;
    let new = volume.make(root, "new", New::File(0o644)).unwrap().inode;
    assert_eq!(volume.write(old, 0, b"old"), Ok(3));
    assert_eq!(volume.write(new, 0, b"new"), Ok(3));
    assert_eq!(volume.rename((root, "new"), (root, "old")), Ok(()));
    let found = volume.look_up(root, "old").unwrap().unwrap();
    assert_eq!((found.inode, content(&volume, new)), (new, b"new".to_vec()));
    assert_eq!(volume.look_up(root, "new"), Ok(None));
    assert_eq!(content(&volume, old), b"old", "while it is open");
    let parent = volume.make(root, "p", New::Directory(0o755)).unwrap().inode;
    let child = volume
        .make(parent, "c", New::Directory(0o755))
        .unwrap()
        .inode;
    assert!(volume.rename((root, "p"), (child, "q")).is_err());
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

#[test]
fn files_have_holes_ends_and_room() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let file = volume
        .make(volume.root(), "f", New::File(0o644))
        .unwrap()
        .inode;
    assert_eq!(volume.write(file, 100_000, b"far"), Ok(3));
    let attributes = volume.attributes(file).unwrap();
    assert_eq!(attributes.bytes, 100_003);
    assert!(attributes.allocated < 50_000, "{attributes:?}");
    let mut bytes = [7; 8];
    assert_eq!(volume.read(file, 50_000, &mut bytes), Ok(8));
    assert_eq!(bytes, [0; 8]);
    assert_eq!(volume.seek(file, 0, Sought::Hole), Ok(Some(0)));
    let block = 100_000 / 1024 * 1024;
    let data = volume.seek(file, 0, Sought::Data).unwrap().unwrap();
    assert!((block - 4096..=block).contains(&data), "{data}");
    assert_eq!(volume.seek(file, 100_001, Sought::Hole), Ok(Some(100_003)));
    assert_eq!(volume.seek(file, 100_003, Sought::Data), Ok(None));
    assert_eq!(volume.set_len(file, 100_001), Ok(()));
    assert_eq!(volume.set_len(file, 100_003), Ok(()));
    assert_eq!(volume.read(file, 100_000, &mut bytes), Ok(3));
    assert_eq!(&bytes[..3], b"f\0\0", "what was cut does not come back");
    assert_eq!(volume.append(file, b"end"), Ok((100_003, 3)));
    assert_eq!(volume.allocate(file, 200_000, 50_000), Ok(()));
    let attributes = volume.attributes(file).unwrap();
    assert!(attributes.bytes == 250_000 && attributes.allocated >= 50_000);
    assert_eq!(volume.read(file, 249_999, &mut bytes), Ok(1));
    assert_eq!(volume.set_len(file, 0), Ok(()));
    assert_eq!(volume.attributes(file).unwrap().allocated, 0);
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

#[test]
fn a_full_disk_takes_what_fits_and_goes_on_when_there_is_room() {
    let disk = LossyDisk::new(formatted(4, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let file = volume.make(root, "f", New::File(0o644)).unwrap().inode;
    let part = [5; 60_000];
    let mut bytes = 0;
    let last = loop {
        match volume.append(file, &part) {
            Ok((_, count)) => bytes += count as u64,
            Err(errno) => break errno,
        }
        assert!(bytes < 4 << 20);
    };
    assert_eq!(last, Errno::ENOSPC);
    assert_eq!(volume.attributes(file).unwrap().bytes, bytes);
    assert!(content(&volume, file).iter().all(|byte| *byte == 5));
    assert_eq!(volume.unlink(root, "f"), Ok(()));
    volume.forget(file);
    let file = volume.make(root, "g", New::File(0o644)).unwrap().inode;
    assert_eq!(volume.write(file, 0, &part), Ok(part.len()));
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

#[test]
fn attributes_stay() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let file = volume.make(root, "f", New::File(0o644)).unwrap().inode;
    assert_eq!(volume.set_permissions(file, 0o4711), Ok(()));
    assert_eq!(volume.set_owner(file, (70_000, 8)), Ok(()));
    let seconds = 1_000_000_000;
    assert_eq!(volume.set_permissions(file, 0o711), Ok(()));
    assert_eq!(
        volume.set_times(file, Some(5 * seconds), Some(7 * seconds)),
        Ok(())
    );
    volume.end();
    let volume = mounted(&LossyDisk::new(disk.after_power_loss(|_| false)));
    let attributes = volume.attributes(file).unwrap();
    assert_eq!(
        (attributes.mode, attributes.owner),
        (0o100_711, (70_000, 8))
    );
    assert_eq!(attributes.times_ns[..2], [5 * seconds, 7 * seconds]);
}

#[test]
fn many_names_of_a_directory_are_found_and_listed() {
    let disk = LossyDisk::new(formatted(16, &["-N", "4096"]));
    let volume = mounted(&disk);
    let root = volume.root();
    let directory = volume.make(root, "d", New::Directory(0o755)).unwrap().inode;
    let name = |number: u32| format!("a rather long name of a file, number {number}");
    for number in 0..500 {
        volume
            .make(directory, &name(number), New::File(0o644))
            .unwrap();
    }
    assert_eq!(names(&volume, directory).len(), 500);
    for number in (0..500).step_by(2) {
        assert_eq!(volume.unlink(directory, &name(number)), Ok(()));
    }
    let left = names(&volume, directory);
    assert_eq!(left.len(), 250);
    assert!((0..500).all(|number| left.contains(&name(number)) == (number % 2 == 1)));
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

#[test]
fn a_disk_that_only_may_be_read_stays_as_it_is() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    let file = volume.make(root, "f", New::File(0o644)).unwrap().inode;
    assert_eq!(volume.write(file, 0, b"text"), Ok(4));
    volume.end();
    let disk = LossyDisk::new(disk.after_power_loss(|_| false));
    let volume = mount_on("disk0", Box::new(disk.clone()), Access::ReadOnly, CACHE).unwrap();
    assert_eq!(content(&volume, file), b"text");
    assert_eq!(volume.write(file, 0, b"x"), Err(Errno::EROFS));
    assert_eq!(volume.make(root, "g", New::File(0o644)), Err(Errno::EROFS));
    assert_eq!(volume.unlink(root, "f"), Err(Errno::EROFS));
    assert_eq!(volume.sync(), Ok(()));
    volume.end();
    assert_eq!(volume.requests().writes.load(Ordering::Relaxed), 0);
}

#[test]
fn what_cannot_be_mounted_is_said_with_its_remedy() {
    let refused = |image: Vec<u8>, access| {
        let disk = LossyDisk::new(image);
        let mounted = mount_on("disk0", Box::new(disk), access, CACHE);
        mounted.err().expect("refused").to_string()
    };
    let empty = refused(vec![0; 1 << 20], Access::ReadWrite);
    assert_eq!(
        empty,
        "disk0 has no ext4 file system: make one on the host with mkfs.ext4 FILE"
    );
    let features = refused(formatted(16, &["-O", "inline_data"]), Access::ReadWrite);
    assert!(
        features.contains("not supported") && features.contains("0x8000"),
        "{features}"
    );
    let mut damaged = formatted(16, &[]);
    damaged[1024 + 0x20] ^= 0xff;
    let damaged = refused(damaged, Access::ReadWrite);
    assert!(damaged.contains("e2fsck"), "{damaged}");
    // Killed: its journal waits.
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    volume.make(volume.root(), "f", New::File(0o644)).unwrap();
    volume.sync().unwrap();
    let dirty = refused(disk.after_a_kill(), Access::ReadOnly);
    assert!(dirty.contains("without ,ro"), "{dirty}");
    let volume = mounted(&LossyDisk::new(disk.after_a_kill()));
    assert!(volume.look_up(volume.root(), "f").unwrap().is_some());
}

/// Requests to the disk that a synced write of 4 KiB takes, at its end and where it was written
/// before.
#[test]
fn a_synced_write_takes_few_requests() {
    let disk = LossyDisk::new(formatted(64, &["-b", "4096"]));
    let volume = mounted(&disk);
    let file = volume
        .make(volume.root(), "f", New::File(0o644))
        .unwrap()
        .inode;
    volume.sync().unwrap();
    let count = || {
        let requests = volume.requests();
        let writes = requests.writes.load(Ordering::Relaxed);
        (writes, requests.flushes.load(Ordering::Relaxed))
    };
    for (what, most_writes, most_flushes) in [("appended", 4, 2), ("overwritten", 4, 2)] {
        let before = count();
        for number in 0..20 {
            volume.write(file, number * 4096, &[1; 4096]).unwrap();
            volume.sync().unwrap();
        }
        let (writes, flushes) = (count().0 - before.0, count().1 - before.1);
        println!("{what}: {writes} writes, {flushes} flushes for 20");
        assert!(writes <= 20 * most_writes, "{what}: {writes} writes");
        assert!(flushes <= 20 * most_flushes, "{what}: {flushes} flushes");
    }
    let read = volume.requests().reads.load(Ordering::Relaxed);
    let mut bytes = vec![0; 80 << 10];
    assert_eq!(volume.read(file, 0, &mut bytes), Ok(bytes.len()));
    assert_eq!(
        volume.requests().reads.load(Ordering::Relaxed),
        read,
        "all is in the cache"
    );
}

/// A search of its missing blocks took 18 s for 4 GiB.
#[test]
fn a_directory_that_is_longer_than_its_disk_is_damage() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), formatted(16, &["-O", "^extents,^64bit"])).unwrap();
    let mut set = std::process::Command::new("debugfs");
    let set = set.args(["-w", "-R", "set_inode_field / size 0xfffff000"]);
    assert!(set.arg(file.path()).output().unwrap().status.success());
    let volume = mounted(&LossyDisk::new(std::fs::read(file.path()).unwrap()));
    let root = volume.root();
    assert_eq!(volume.attributes(root).unwrap().bytes, 0xffff_f000);
    assert_eq!(volume.look_up(root, "a").err(), Some(Errno::EUCLEAN));
    assert_eq!(volume.list(root).err(), Some(Errno::EUCLEAN));
    let made = volume.make(root, "a", New::File(0o644));
    assert_eq!(made.err(), Some(Errno::EUCLEAN));
    assert_eq!(volume.unlink(root, "a"), Err(Errno::EUCLEAN));
    assert_eq!(volume.rename((root, "a"), (root, "b")), Err(Errno::EUCLEAN));
}

/// Blocks that were preallocated are freed with the file: by its unlink, and by another that takes
/// its name.
#[test]
fn room_that_was_kept_and_not_written_is_free_after_the_unlink() {
    let disk = LossyDisk::new(formatted(16, &[]));
    let volume = mounted(&disk);
    let root = volume.root();
    volume.make(root, "other", New::File(0o644)).unwrap();
    volume.sync().unwrap();
    let before = volume.space().unwrap().blocks.1;
    for replaced in [false, true] {
        let file = volume.make(root, "f", New::File(0o644)).unwrap().inode;
        assert_eq!(volume.allocate(file, 0, 1 << 20), Ok(()));
        assert_eq!(volume.write(file, 4096, b"in the middle"), Ok(13));
        if replaced {
            let other = volume.make(root, "g", New::File(0o644)).unwrap().inode;
            assert_eq!(volume.rename((root, "g"), (root, "f")), Ok(()));
            volume.forget(file);
            assert_eq!(volume.unlink(root, "f"), Ok(()));
            volume.forget(other);
        } else {
            assert_eq!(volume.unlink(root, "f"), Ok(()));
            volume.forget(file);
        }
        volume.sync().unwrap();
        assert_eq!(
            volume.space().unwrap().blocks.1,
            before,
            "replaced: {replaced}"
        );
    }
    volume.end();
    assert_eq!(faults(&disk.after_power_loss(|_| false)), None);
}

/// More groups than one transaction of the journal has room for.
#[test]
fn a_file_in_many_groups_is_deleted() {
    let options = [
        "-b",
        "1024",
        "-g",
        "512",
        "-N",
        "4096",
        "-O",
        "^resize_inode,^metadata_csum,^uninit_bg",
    ];
    let disk = LossyDisk::new(formatted(96, &options));
    let volume = mounted(&disk);
    let root = volume.root();
    let before = volume.space().unwrap().blocks.1;
    let file = volume.make(root, "f", New::File(0o644)).unwrap().inode;
    let part = vec![7; 64 << 10];
    for at in (0..60 << 20).step_by(part.len()) {
        assert_eq!(volume.write(file, at, &part), Ok(part.len()));
    }
    volume.sync().unwrap();
    assert_eq!(volume.unlink(root, "f"), Ok(()));
    volume.forget(file);
    volume.make(root, "later", New::File(0o644)).unwrap();
    volume.sync().unwrap();
    assert!(volume.space().unwrap().blocks.1 + 2 >= before);
    volume.end();
    let image = disk.after_power_loss(|_| false);
    assert_eq!(faults(&image), None);
    let again = mounted(&LossyDisk::new(image));
    assert!(again.look_up(again.root(), "later").unwrap().is_some());
}

/// The new name makes the directory grow, which moves the old one.
#[test]
fn renames_fill_a_directory() {
    for options in [
        &["-N", "4096"][..],
        &["-N", "4096", "-O", "^metadata_csum"],
        &["-N", "4096", "-b", "4096"],
    ] {
        for is_directory in [false, true] {
            let disk = LossyDisk::new(formatted(16, options));
            let volume = mounted(&disk);
            let make = |directory, name: &str| {
                let new = if is_directory {
                    New::Directory(0o755)
                } else {
                    New::File(0o644)
                };
                volume.make(directory, name, new).unwrap();
            };
            let new = New::Directory(0o755);
            let full = volume.make(volume.root(), "full", new).unwrap().inode;
            for number in 0..1000 {
                make(full, "temporary");
                let name = format!("a name that is as long as an object's {number:04}");
                let renamed = volume.rename((full, "temporary"), (full, &name));
                assert_eq!(renamed, Ok(()), "{number}, {options:?}");
            }
            let listed = volume.list(full).unwrap();
            assert_eq!(listed.len(), 1000);
            volume.end();
            // Of a directory whose own blocks lie among those of others `rsext4` 0.9.2 does not count
            // the blocks of the extent tree.
            let found = faults(&disk.after_power_loss(|_| false));
            assert!(is_directory || found.is_none(), "{found:?}");
        }
    }
}
