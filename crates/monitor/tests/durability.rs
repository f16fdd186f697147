//! What a guest saw completed is durable: after the whole monitor was killed,
//! after the file became shorter, and when the host has no room. The guest is a
//! loop of a few instructions that writes and flushes, or reads, forever.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use support::code::*;
use support::{Rig, Running, eventually, kvm};
use tare_abi::{layout, ports};
use tare_control::api::Stop;
use tare_vmtest::is_locked;

const BAR: u32 = layout::PCI_MMIO_START as u32;
const NOTIFY: u32 = BAR + 0x3000;
const DESCRIPTORS: u32 = 0x21_0000;
const AVAILABLE: u32 = 0x21_1000;
const USED: u32 = 0x21_2000;
/// Header, status and data of the request; header and status of the flush.
const HEADER: u32 = 0x21_3000;
const SECTOR: u32 = HEADER + 8;
const STATUS: u32 = HEADER + 0x100;
const FLUSH: u32 = HEADER + 0x180;
const FLUSHED: u32 = HEADER + 0x1c0;
const DATA: u32 = HEADER + 0x200;

const READ: u32 = 0;
const WRITE: u32 = 1;
const NEXT: u32 = 1;
const DEVICE_WRITES: u32 = 2;
const KNOWS_FLUSH: u32 = 1 << 9;
const ENTRIES: u16 = 8;

/// A guest that sends requests of a sector, the first to sector 0, and prints a
/// dot for each that succeeded, with its flush where it `flushes`, or an E. The
/// sector's number is the data, and goes up with each dot where it writes.
fn guest(kind: u32, features: u32) -> Vec<u8> {
    let flushes = features & KNOWS_FLUSH != 0;
    let to_data = if kind == READ { DEVICE_WRITES } else { 0 };
    let mut once = all(&[
        &set_stack(0x9000),
        &drive(features),
        &descriptor(0, HEADER, 16, NEXT),
        &descriptor(1, DATA, 512, to_data | NEXT),
        &descriptor(2, STATUS, 1, DEVICE_WRITES),
        &descriptor(3, FLUSH, 16, NEXT),
        &descriptor(4, FLUSHED, 1, DEVICE_WRITES),
        &store32(HEADER, kind),
        &store32(FLUSH, 4),
        // The driver wants no interrupt.
        &store16(AVAILABLE, 1),
    ]);
    for entry in 0..ENTRIES {
        let head = if flushes && entry % 2 == 1 { 3 } else { 0 };
        once.extend(store16(AVAILABLE + 4 + 2 * u32::from(entry), head));
    }
    let bad = out(ports::COM1, b'E');
    let mut good = out(ports::COM1, b'.');
    if kind == WRITE {
        good.extend(increment32(SECTOR));
        good.extend(increment32(DATA));
    }
    let mut turn = request();
    if flushes {
        turn.extend(all(&[&request(), &unless_zero(FLUSHED, &bad)]));
    }
    turn.extend(unless_zero(STATUS, &bad));
    // Either byte not zero: no dot.
    turn.extend(if_zero(STATUS, &if_zero(FLUSHED, &good)));
    let back = -(turn.len() as i32 + 5);
    turn.push(0xe9); // jmp turn
    turn.extend(back.to_le_bytes());
    all(&[&once, &turn])
}

/// From reset to DRIVER_OK (virtio 1.2, 3.1.1) with one queue.
fn drive(features: u32) -> Vec<u8> {
    let mut code = all(&[
        &store8(BAR + 0x14, 0),
        &store8(BAR + 0x14, 3),
        &store32(BAR + 0x08, 0),
        &store32(BAR + 0x0c, features),
        // VIRTIO_F_VERSION_1, bit 32.
        &store32(BAR + 0x08, 1),
        &store32(BAR + 0x0c, 1),
        &store8(BAR + 0x14, 0xb),
        &store16(BAR + 0x16, 0),
        &store16(BAR + 0x18, ENTRIES),
        &store16(BAR + 0x1a, 0xffff),
    ]);
    for (at, address) in [(0x20, DESCRIPTORS), (0x28, AVAILABLE), (0x30, USED)] {
        code.extend(store32(BAR + at, address));
        code.extend(store32(BAR + at + 4, 0));
    }
    code.extend(store16(BAR + 0x1c, 1));
    code.extend(store8(BAR + 0x14, 0xf));
    code
}

fn descriptor(n: u32, address: u32, length: u32, flags: u32) -> Vec<u8> {
    all(&[
        &store32(DESCRIPTORS + n * 16, address),
        &store32(DESCRIPTORS + n * 16 + 8, length),
        &store32(DESCRIPTORS + n * 16 + 12, flags | (n + 1) << 16),
    ])
}

/// Offers the next entry of the ring, and looks until it was used.
fn request() -> Vec<u8> {
    let mut code = vec![0x66, 0xff, 0x05]; // inc word [...]
    code.extend((AVAILABLE + 2).to_le_bytes());
    code.extend(store16(NOTIFY, 0));
    let mut look = vec![0xf3, 0x90, 0x66, 0xa1]; // pause; mov ax, [...]
    look.extend((USED + 2).to_le_bytes());
    look.extend([0x66, 0x3b, 0x05]); // cmp ax, [...]
    look.extend((AVAILABLE + 2).to_le_bytes());
    let back = -(look.len() as i8 + 2);
    look.extend([0x75, back as u8]); // jne look
    code.extend(look);
    code
}

fn increment32(address: u32) -> Vec<u8> {
    let mut code = vec![0xff, 0x05];
    code.extend(address.to_le_bytes());
    code
}

fn unless_zero(address: u32, then: &[u8]) -> Vec<u8> {
    jump_over(0x74, address, then) // je
}

fn if_zero(address: u32, then: &[u8]) -> Vec<u8> {
    jump_over(0x75, address, then) // jne
}

/// Compares the byte with zero, and jumps over `then` by `jump`.
fn jump_over(jump: u8, address: u32, then: &[u8]) -> Vec<u8> {
    let mut code = vec![0x80, 0x3d];
    code.extend(address.to_le_bytes());
    code.extend([0, jump, u8::try_from(then.len()).unwrap()]);
    code.extend(then);
    code
}

fn disk_at(path: &Path, sectors: u64) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap();
    file.set_len(sectors * 512).unwrap();
    file
}

fn dots(running: &Running) -> usize {
    running.log().matches('.').count()
}

/// Waits for `count` more of a letter than there are.
fn wait_for_more(running: &Running, letter: char, count: usize) {
    let letters = || running.log().matches(letter).count();
    let before = letters();
    eventually(&format!("{count} more of {letter:?}"), || {
        letters() >= before + count
    });
}

/// SIGKILL to the monitor, in the middle of writes, more than once on one disk.
#[test]
fn every_acknowledged_flush_survives_the_monitor() {
    if !kvm() {
        return;
    }
    for features in [KNOWS_FLUSH, 0] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        for dots_until_killed in [1, 50, 233] {
            let disk = disk_at(&path, 1 << 16);
            let running = Rig::new(&guest(WRITE, features)).disk(disk).start();
            wait_for_more(&running, '.', dots_until_killed);
            let counters = running.client().stats().unwrap().devices[0]
                .counters
                .clone();
            assert_eq!(counters["flushes"] > 0, features == KNOWS_FLUSH);
            assert!(is_locked(&path));
            running.signal(Signal::KILL);
            eventually("the monitor is gone", || running.client().stats().is_err());
            eventually("its disk is free", || !is_locked(&path));
            // Read only now: it may have gone on until it was gone.
            let acknowledged = dots(&running);
            assert!(acknowledged >= dots_until_killed);
            let kept = File::open(&path).unwrap();
            for sector in 0..acknowledged as u32 {
                let mut word = [0; 4];
                let at = u64::from(sector) * 512;
                kept.read_exact_at(&mut word, at).unwrap();
                assert_eq!(u32::from_le_bytes(word), sector, "of {acknowledged}");
            }
        }
    }
}

#[test]
fn a_disk_that_becomes_shorter_fails_reads_and_not_the_machine() {
    if !kvm() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_at(&directory.path().join("disk.img"), 64);
    let kept = disk.try_clone().unwrap();
    let running = Rig::new(&guest(READ, 0)).disk(disk).start();
    wait_for_more(&running, '.', 3);
    kept.set_len(0).unwrap();
    wait_for_more(&running, 'E', 3);
    kept.set_len(64 * 512).unwrap();
    wait_for_more(&running, '.', 3);
    let mut client = running.client();
    let counters = client.stats().unwrap().devices[0].counters.clone();
    assert!(counters["truncated"] >= 3, "{counters:?}");
    assert!(
        counters["truncated"] == counters["io_errors"],
        "{counters:?}"
    );
    client.stop(Stop::PowerOff).unwrap();
    running.wait().expect(0, "stopped");
}

/// A file system of 256 KiB, gone with the value.
struct Small {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Small {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "small"])
            .arg(&path)
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self {
                path,
                _directory: directory,
            }),
            _ => {
                tare_vmtest::lacks("a small tmpfs cannot be mounted: this needs root");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_host_without_room_fails_writes_and_neither_reads_nor_the_machine() {
    if !kvm() {
        return;
    }
    let Some(small) = Small::mount() else {
        return;
    };
    // A sparse disk of 2 MiB: an eighth of it finds room.
    let path = small.path.join("disk.img");
    let disk = disk_at(&path, 4096);
    let running = Rig::new(&guest(WRITE, KNOWS_FLUSH)).disk(disk).start();
    wait_for_more(&running, 'E', 3);
    let written = dots(&running);
    assert!((1..4096).contains(&written), "{written}");
    let mut client = running.client();
    let counters = client.stats().unwrap().devices[0].counters.clone();
    assert!(counters["no_space"] >= 3, "{counters:?}");
    // Room again: the same sector is written after all.
    let options = ["-o", "remount,size=8m"];
    let remounted = Command::new("mount")
        .args(options)
        .arg(&small.path)
        .status();
    assert!(remounted.unwrap().success());
    wait_for_more(&running, '.', 3);
    let last = dots(&running) as u32 - 1;
    let mut word = [0; 4];
    let kept = File::open(&path).unwrap();
    kept.read_exact_at(&mut word, u64::from(last) * 512)
        .unwrap();
    assert_eq!(u32::from_le_bytes(word), last);
    client.stop(Stop::PowerOff).unwrap();
    running.wait().expect(0, "stopped");
}

#[test]
fn a_read_only_disk_fails_writes_and_stays_as_it_was() {
    if !kvm() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    drop(disk_at(&path, 64));
    let disk = File::open(&path).unwrap();
    let mut rig = Rig::new(&guest(WRITE, KNOWS_FLUSH)).disk(disk);
    rig = rig.change_disk("read_only", json!(true));
    let running = rig.start();
    wait_for_more(&running, 'E', 3);
    let counters = running.client().stats().unwrap().devices[0]
        .counters
        .clone();
    assert!(counters["read_only_violations"] >= 3, "{counters:?}");
    assert_eq!(std::fs::read(&path).unwrap(), [0; 64 * 512]);
    running.client().stop(Stop::PowerOff).unwrap();
    running.wait().expect(0, "stopped");
}
