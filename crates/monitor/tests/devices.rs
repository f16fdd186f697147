//! Virtio devices driven by guests of a few hundred bytes: notification by
//! ioeventfd, work on the I/O thread, interrupt by irqfd and MSI-X, frames on a
//! stream socket.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use support::code::*;
use support::elf::ENTRY;
use support::{Rig, code, kvm};
use tare_abi::layout;
use tare_control::api::Stop;
use tare_control::config::DiskCoalesce;
use tare_control::settings::SettingsChange;

/// The first device, at 00:01.0: its BAR and its configuration space.
const BAR: u32 = layout::PCI_MMIO_START as u32;
const CONFIG: u32 = layout::PCI_ECAM_START as u32 + (1 << 15);
/// MSI-X is the first capability; message control is its second word.
const MSIX_CONTROL: u32 = CONFIG + 0x42;
const MSIX_TABLE: u32 = BAR + 0x4000;
const NOTIFY: u32 = BAR + 0x3000;
const APIC: u32 = layout::LAPIC as u32;
const VECTOR: u8 = 0x40;
const BYTES: u32 = 64;

const IDT: u32 = 0x20_0000;
const IDT_REGISTER: u32 = 0x20_1000;
/// Queue 0's rings and buffer; the next queue's lie [`QUEUE_STEP`] above.
const DESCRIPTORS: u32 = 0x21_0000;
const AVAILABLE: u32 = 0x21_1000;
const USED: u32 = 0x21_2000;
const BUFFER: u32 = 0x21_3000;
const QUEUE_STEP: u32 = 0x1_0000;
const DEVICE_WRITES: u32 = 2;
const HANDLER: u32 = 0x800;

/// An interrupt gate for the handler, and the local APIC on.
fn take_interrupts() -> Vec<u8> {
    let gate = IDT + u32::from(VECTOR) * 8;
    let handler = ENTRY + HANDLER;
    all(&[
        &set_stack(0x9000),
        &store32(gate, handler & 0xffff | 0x10 << 16),
        &store32(gate + 4, handler & 0xffff_0000 | 0x8e00),
        &store16(IDT_REGISTER, 0x7ff),
        &store32(IDT_REGISTER + 2, IDT),
        &load_idt(IDT_REGISTER),
        &store32(APIC + 0xf0, 0x1ff),
    ])
}

/// Vector 0 of the device's MSI-X table.
fn route_interrupt() -> Vec<u8> {
    all(&[
        &store16(MSIX_CONTROL, 1 << 15),
        &store32(MSIX_TABLE, APIC),
        &store32(MSIX_TABLE + 4, 0),
        &store32(MSIX_TABLE + 8, VECTOR.into()),
        &store32(MSIX_TABLE + 12, 0),
    ])
}

/// From reset to DRIVER_OK (virtio 1.2, 3.1.1), all queues on vector 0.
fn drive(queues: u16) -> Vec<u8> {
    let rings: Vec<u8> = (0..queues).flat_map(enable).collect();
    all(&[
        &store8(BAR + 0x14, 0),
        &store8(BAR + 0x14, 3),
        // VIRTIO_F_VERSION_1, bit 32, and nothing else.
        &store32(BAR + 0x08, 1),
        &store32(BAR + 0x0c, 1),
        &store8(BAR + 0x14, 0xb),
        &rings,
        &store8(BAR + 0x14, 0xf),
    ])
}

fn enable(queue: u16) -> Vec<u8> {
    let step = u32::from(queue) * QUEUE_STEP;
    let mut code = all(&[
        &store16(BAR + 0x16, queue),
        &store16(BAR + 0x18, 8),
        &store16(BAR + 0x1a, 0),
    ]);
    for (at, address) in [(0x20, DESCRIPTORS), (0x28, AVAILABLE), (0x30, USED)] {
        code.extend(store32(BAR + at, address + step));
        code.extend(store32(BAR + at + 4, 0));
    }
    code.extend(store16(BAR + 0x1c, 1));
    code
}

/// Offers the queue's one buffer and notifies.
fn offer(queue: u16, length: u32, flags: u32) -> Vec<u8> {
    let step = u32::from(queue) * QUEUE_STEP;
    all(&[
        &store32(DESCRIPTORS + step, BUFFER + step),
        &store32(DESCRIPTORS + step + 8, length),
        &store32(DESCRIPTORS + step + 12, flags),
        &store32(AVAILABLE + step, 1 << 16),
        &store16(NOTIFY + 4 * u32::from(queue), queue),
    ])
}

#[test]
fn a_notification_becomes_work_and_an_interrupt() {
    if !kvm() {
        return;
    }
    let main = all(&[
        &take_interrupts(),
        &route_interrupt(),
        &drive(1),
        &offer(0, BYTES, DEVICE_WRITES),
        code::WAIT,
    ]);
    let handler = all(&[
        &store32(APIC + 0xb0, 0),
        &print("used "),
        &print_memory(USED + 2, b'0'),
        HALT,
    ]);
    let running = Rig::new(&with_handler(main, HANDLER as usize, &handler)).start();
    running.wait_for("used 1");
    let stats = running.client().stats().unwrap();
    let rng = &stats.devices[0];
    assert_eq!(rng.kind, "rng");
    assert_eq!(rng.address, "00:01.0");
    for (counter, value) in [
        ("interrupts", 1),
        ("requests", 1),
        ("bytes", u64::from(BYTES)),
        ("malformed", 0),
    ] {
        assert_eq!(rng.counters[counter], value, "{counter}: {rng:?}");
    }
    assert!(rng.counters["notifications"] >= 1, "{rng:?}");
    // The APIC is KVM's; of the device's registers only the notification
    // is not an exit: 5 in the table and control, 16 in the common structure.
    assert_eq!(stats.vcpus[0].exits["mmio_write"], 21);
    running.client().stop(Default::default()).unwrap();
    running.wait().expect(0, "stopped");
}

/// The bytes behind the virtio header in a queue's buffer.
const FRAME: u32 = BUFFER + 12;

#[test]
fn frames_cross_the_stream_socket_both_ways() {
    if !kvm() {
        return;
    }
    let main = all(&[
        &take_interrupts(),
        &route_interrupt(),
        &store32(FRAME + QUEUE_STEP, u32::from_le_bytes(*b"ping")),
        // Reverse ARP, which the filter lets pass.
        &store32(
            FRAME + QUEUE_STEP + 12,
            u32::from_le_bytes([0x80, 0x35, 0, 0]),
        ),
        &drive(2),
        &offer(0, 1526, DEVICE_WRITES),
        // The transmitted frame needs no interrupt: VRING_AVAIL_F_NO_INTERRUPT.
        &offer_quietly(1, 12 + 60),
        code::WAIT,
    ]);
    let handler = all(&[
        &store32(APIC + 0xb0, 0),
        &print("got "),
        &print_memory(FRAME, 0),
        &print_memory(FRAME + 59, 0),
        HALT,
    ]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let guest = with_handler(main, HANDLER as usize, &handler);
    let running = Rig::new(&guest).stream(theirs.into()).start();
    let mut peer = &ours;
    peer.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    let mut sent = [0; 4 + 60];
    peer.read_exact(&mut sent).unwrap();
    // The machine's announcement: from the guest's address to all.
    assert_eq!(
        sent[4..16],
        [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1]
    );
    peer.read_exact(&mut sent).unwrap();
    assert_eq!(sent[..8], *b"\0\0\0\x3cping");

    let mut frame = vec![b'x'; 60];
    frame[59] = b'y';
    peer.write_all(&[0, 0, 0, 60]).unwrap();
    peer.write_all(&frame).unwrap();
    running.wait_for("got xy");
    let stats = running.client().stats().unwrap();
    let net = &stats.devices[0];
    assert_eq!(net.kind, "net");
    for (counter, value) in [
        ("rx_frames", 1),
        ("rx_bytes", 60),
        ("tx_frames", 1),
        ("tx_bytes", 60),
        ("malformed", 0),
        ("interrupts", 1),
    ] {
        assert_eq!(net.counters[counter], value, "{counter}: {net:?}");
    }

    // passt died: the guest goes on without a network, and no thread spins.
    drop(ours);
    thread::sleep(Duration::from_millis(100));
    let io = |running: &support::Running| {
        let stats = running.client().stats().unwrap();
        let io = stats.threads.into_iter().find(|thread| thread.name == "io");
        io.unwrap().run_ns
    };
    let before = io(&running);
    thread::sleep(Duration::from_millis(300));
    assert!(io(&running) - before < 1_000_000);
    running.client().stop(Default::default()).unwrap();
    let ended = running.wait();
    ended.expect(0, "the network is down: link closed by its peer");
}

/// Frames and bytes that the network carried, received and sent, and whether any waited.
fn carried(running: &support::Running) -> ([u64; 4], [bool; 2]) {
    let stats = running.client().stats().unwrap();
    let net = &stats.devices[0];
    let count = ["rx_frames", "rx_bytes", "tx_frames", "tx_bytes"];
    let waits = ["rx_limited", "tx_limited"];
    (
        count.map(|name| net.counters[name]),
        waits.map(|name| net.counters[name] > 0),
    )
}

/// A frame of 60 bytes is a minute's worth at a byte a second: one passes each way.
#[test]
fn limited_frames_wait_both_ways_until_the_limit_is_lifted() {
    if !kvm() {
        return;
    }
    let guest = all(&[
        &store32(
            FRAME + QUEUE_STEP + 12,
            u32::from_le_bytes([0x80, 0x35, 0, 0]),
        ),
        &drive(2),
        &offer_thrice(0, 1526, DEVICE_WRITES),
        &offer_thrice(1, 12 + 60, 0),
        &print("offered"),
        HALT,
    ]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let rig = Rig::new(&guest).stream(theirs.into()).net_bytes_per_s(1);
    let running = rig.start();
    let mut peer = &ours;
    peer.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    let mut frame = [0; 4 + 60];
    // The announcement is the monitor's own.
    peer.read_exact(&mut frame).unwrap();
    peer.read_exact(&mut frame).unwrap();
    for _ in 0..3 {
        peer.write_all(&frame).unwrap();
    }
    running.wait_for("offered");
    support::eventually("frames wait", || {
        carried(&running) == ([1, 60, 1, 60], [true, true])
    });
    let mut client = running.client();
    let mut change = SettingsChange::default();
    change.set("net.bytes_per_s=0").unwrap();
    client.set(&change).unwrap();
    peer.read_exact(&mut frame).unwrap();
    peer.read_exact(&mut frame).unwrap();
    support::eventually("all arrive", || carried(&running).0 == [3, 180, 3, 180]);
    client.stop(Stop::PowerOff).unwrap();
    running.wait().expect(0, "stopped");
}

/// Offers the queue's one buffer three times, and wants no interrupts.
fn offer_thrice(queue: u16, length: u32, flags: u32) -> Vec<u8> {
    let step = u32::from(queue) * QUEUE_STEP;
    all(&[
        &store32(DESCRIPTORS + step, BUFFER + step),
        &store32(DESCRIPTORS + step + 8, length),
        &store32(DESCRIPTORS + step + 12, flags),
        &store32(AVAILABLE + step, 3 << 16 | 1),
        &store16(NOTIFY + 4 * u32::from(queue), queue),
    ])
}

const STATUS: u32 = BUFFER + 0x100;
const DATA: u32 = BUFFER + 0x200;

/// A guest that sends one request of a sector to its disk, and then prints the
/// status and the first byte of the data.
fn disk_guest(kind: u32, sector: u32, direction: u32) -> Vec<u8> {
    let descriptor = |n: u32, address: u32, length: u32, flags: u32, next: u32| {
        all(&[
            &store32(DESCRIPTORS + n * 16, address),
            &store32(DESCRIPTORS + n * 16 + 8, length),
            &store32(DESCRIPTORS + n * 16 + 12, flags | next << 16),
        ])
    };
    let main = all(&[
        &take_interrupts(),
        &route_interrupt(),
        &store32(BUFFER, kind),
        &store32(BUFFER + 8, sector),
        &store32(STATUS, 0xff),
        &store32(DATA, u32::from_le_bytes(*b"Tare")),
        &drive(1),
        &descriptor(0, BUFFER, 16, 1, 1),
        &descriptor(1, DATA, 512, direction | 1, 2),
        &descriptor(2, STATUS, 1, DEVICE_WRITES, 0),
        &store32(AVAILABLE, 1 << 16),
        &store16(NOTIFY, 0),
        code::WAIT,
    ]);
    let handler = all(&[
        &store32(APIC + 0xb0, 0),
        &print("disk "),
        &print_memory(STATUS, b'0'),
        &print_memory(DATA, 0),
        HALT,
    ]);
    with_handler(main, HANDLER as usize, &handler)
}

fn disk_of(bytes: &[u8]) -> std::fs::File {
    let mut disk = tempfile::tempfile().unwrap();
    disk.write_all(bytes).unwrap();
    disk
}

#[test]
fn a_guest_reads_its_disk() {
    if !kvm() {
        return;
    }
    let mut image = vec![0; 8 * 512];
    image[3 * 512..4 * 512].fill(b'K');
    let guest = disk_guest(0, 3, DEVICE_WRITES);
    let running = Rig::new(&guest).disk(disk_of(&image)).start();
    running.wait_for("disk 0K");
    // The guest looks at the ring by itself: its interrupt may come later.
    let mut stats = running.client().stats().unwrap();
    for _ in 0..100 {
        if stats.devices[0].counters["interrupts"] > 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        stats = running.client().stats().unwrap();
    }
    let disk = &stats.devices[0];
    assert_eq!(disk.kind, "blk");
    for (counter, value) in [
        ("reads", 1),
        ("read_bytes", 512),
        ("interrupts", 1),
        ("coalesce_completions", 1),
        ("coalesce_delivered", 1),
        ("io_errors", 0),
    ] {
        assert_eq!(disk.counters[counter], value, "{counter}: {disk:?}");
    }
    running.client().stop(Default::default()).unwrap();
    running.wait().expect(0, "stopped");
}

#[test]
fn a_guest_writes_its_disk() {
    if !kvm() {
        return;
    }
    let disk = disk_of(&[0; 8 * 512]);
    let kept = disk.try_clone().unwrap();
    let running = Rig::new(&disk_guest(1, 5, 0)).disk(disk).start();
    running.wait_for("disk 0T");
    let mut word = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&kept, &mut word, 5 * 512).unwrap();
    assert_eq!(&word, b"Tare");
    running.client().stop(Default::default()).unwrap();
    running.wait().expect(0, "stopped");
}

#[test]
fn a_disks_coalescing_is_set_while_the_machine_runs() {
    if !kvm() {
        return;
    }
    let guest = disk_guest(0, 3, DEVICE_WRITES);
    let running = Rig::new(&guest).disk(disk_of(&[0; 8 * 512])).start();
    running.wait_for("disk 0");
    let mut client = running.client();
    let before = client.settings().unwrap();
    let disk = &before.disks["disk0"];
    assert_eq!(disk.path, "disk.img");
    assert_eq!(disk.coalesce.mode, DiskCoalesce::Auto);
    let mut change = SettingsChange::default();
    change.set("disk0.coalesce=3/4").unwrap();
    change.set("disk0.coalesce.longest_hold_us=500").unwrap();
    let answer = client.set(&change).unwrap();
    assert_eq!(answer, before.changed(&change).unwrap());
    assert_eq!(client.settings().unwrap(), answer);
    // One wrong part, and nothing of it happens.
    change.set("disk0.coalesce=off").unwrap();
    change.set("disk0.coalesce.epoch_us=0").unwrap();
    let refused = client.set(&change).unwrap_err().to_string();
    assert!(
        refused.contains("disk0: epoch of 0 ns is not in"),
        "{refused}"
    );
    for body in [&b"{\"speed\":1}"[..], b"", b"{\"disks\":{\"disk9\":{}}}"] {
        let status = client.request("PUT", "/v1/settings", body).unwrap().status;
        assert_eq!(status, 400, "{body:?}");
    }
    assert_eq!(
        client
            .request("POST", "/v1/settings", b"{}")
            .unwrap()
            .status,
        405
    );
    assert_eq!(client.settings().unwrap(), answer);
    client.stop(Stop::PowerOff).unwrap();
    running.wait().expect(0, "stopped");
}

#[test]
fn a_disk_without_whole_sectors_is_refused() {
    for (bytes, code, says) in [
        (&b""[..], 35, "the disk disk.img is empty"),
        (
            &[0; 700][..],
            35,
            "has 700 bytes, which is not a multiple of 512",
        ),
    ] {
        let rig = Rig::new(HALT).disk(disk_of(bytes));
        rig.run().expect(code, says);
    }
}

fn offer_quietly(queue: u16, length: u32) -> Vec<u8> {
    let step = u32::from(queue) * QUEUE_STEP;
    all(&[
        &store32(DESCRIPTORS + step, BUFFER + step),
        &store32(DESCRIPTORS + step + 8, length),
        &store32(AVAILABLE + step, 1 << 16 | 1),
        &store16(NOTIFY + 4 * u32::from(queue), queue),
    ])
}
