//! A disk that always has 64 long reads to do, into memory whose address O_DIRECT does not take.

use tare_libos::hal::raw::{self, Arena};
use tare_libos::{println, thread, time::Duration};

use super::wire::Wire;
use super::{
    BLOCK, COMMAND, DECODE, NOTIFY, QUEUE_DESCRIPTORS, QUEUE_ENABLE, QUEUE_SELECT, QUEUE_SIZE,
    QUEUE_VECTOR, STATUS, STEPS,
};

/// Reads at a time, of three descriptors each.
const READS: u16 = 64;
const SIZE: u16 = 256;
/// Most MiB of a read.
const MOST_MIB: u32 = 64;
/// Places in the arena: rings, header, status, data.
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const HEADER: usize = 0x3000;
const ANSWER: usize = 0x3100;
const DATA: usize = 0x4001;
/// `VIRTQ_DESC_F_NEXT` and `VIRTQ_DESC_F_WRITE`, `VIRTQ_AVAIL_F_NO_INTERRUPT` (virtio 1.2, 2.7).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const NO_INTERRUPT: u16 = 1;
const NO_VECTOR: u32 = 0xffff;
const PAUSE: Duration = Duration::from_millis(1);

/// Reads `mib` MiB at a time as long as the machine runs; `false` if there is no disk or not enough
/// memory.
pub(crate) fn play(mib: u64) -> bool {
    let read_bytes = u32::try_from(mib).map_or(MOST_MIB, |mib| mib.min(MOST_MIB)) << 20;
    let pages = DATA / 4096 + read_bytes as usize / 4096 + 2;
    let disk = raw::devices().into_iter().find(|device| device.id == BLOCK);
    let (Some(device), Some(arena)) = (disk, Arena::new(pages)) else {
        println!("hostile: no disk, or not enough memory");
        return false;
    };
    let disk = Wire { device, arena };
    prepare(&arena, read_bytes);
    start(&disk);
    let mut done = 0;
    for read in 0..READS {
        offer(&arena, read, 3 * read);
    }
    disk.write(NOTIFY, 2, 0);
    loop {
        let used = word(&arena, USED + 2);
        if used == done {
            thread::sleep(PAUSE);
            continue;
        }
        if done == 0 {
            println!("hostile: reading");
        }
        while done != used {
            let entry = USED + 4 + 8 * usize::from(done % SIZE);
            offer(&arena, done.wrapping_add(READS), word(&arena, entry));
            done = done.wrapping_add(1);
        }
        disk.write(NOTIFY, 2, 0);
    }
}

fn word(arena: &Arena, at: usize) -> u16 {
    u16::from_le_bytes([arena.read(at), arena.read(at + 1)])
}

/// All reads have the same buffers: what they read does not matter.
fn prepare(arena: &Arena, read_bytes: u32) {
    let place = |offset: usize| arena.address() + offset as u64;
    for read in 0..READS {
        let chain = [
            (place(HEADER), 16, NEXT),
            (place(DATA), read_bytes, NEXT | WRITE),
            (place(ANSWER), 1, WRITE),
        ];
        for (number, (address, length, flags)) in (3 * read..).zip(chain) {
            let at = 16 * usize::from(number);
            arena.write(at, &u64::to_le_bytes(address));
            arena.write(at + 8, &u32::to_le_bytes(length));
            arena.write(at + 12, &flags.to_le_bytes());
            arena.write(at + 14, &(number + 1).to_le_bytes());
        }
    }
    arena.write(AVAILABLE, &NO_INTERRUPT.to_le_bytes());
}

fn start(disk: &Wire) {
    disk.write_config(COMMAND, DECODE);
    disk.write(STATUS, 1, 0);
    for status in STEPS {
        if status == 0xb {
            // VIRTIO_F_VERSION_1 alone.
            for (half, features) in [(0, 0), (1, 1)] {
                disk.write(8, 4, half);
                disk.write(0x0c, 4, features);
            }
        }
        if status == 0xf {
            disk.write(QUEUE_SELECT, 2, 0);
            disk.write(QUEUE_SIZE, 2, SIZE.into());
            disk.write(QUEUE_VECTOR, 2, NO_VECTOR);
            let rings = (QUEUE_DESCRIPTORS..).step_by(8);
            for (register, ring) in rings.zip([0, AVAILABLE, USED]) {
                disk.write(register, 4, (disk.arena.address() + ring as u64) as u32);
                disk.write(register + 4, 4, 0);
            }
            disk.write(QUEUE_ENABLE, 2, 1);
        }
        disk.write(STATUS, 1, status);
    }
}

/// Makes a chain the available ring's entry of that number.
fn offer(arena: &Arena, number: u16, head: u16) {
    let entry = AVAILABLE + 4 + 2 * usize::from(number % SIZE);
    arena.write(entry, &head.to_le_bytes());
    arena.write(AVAILABLE + 2, &number.wrapping_add(1).to_le_bytes());
}
