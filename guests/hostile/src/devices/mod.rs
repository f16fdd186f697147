//! Nonsense for every virtio device of the machine, from a seed: configuration space by memory
//! and ports, BARs, MSI-X, registers, rings, chains, notifications, resets with requests in
//! flight; with a second vCPU, one that changes rings while devices read them.
//!
//! Nothing here looks whether a device is right: the monitor must stay.

pub(crate) mod flood;
mod random;
mod wire;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_libos::hal::raw::{self, Arena};
use tare_libos::{println, thread};

use random::Random;
use wire::{PAGES, PLACES, Wire};

const STATUS: u64 = 0x14;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_DESCRIPTORS: u64 = 0x20;
/// Register of configuration space with its command, and memory and bus mastering there.
const COMMAND: u8 = 4;
const DECODE: u32 = 6;
const COMMON_END: u32 = 0x40;
const DEVICE_CONFIG: u64 = 0x2000;
const NOTIFY: u64 = 0x3000;
const MSIX_TABLE: u64 = 0x4000;
/// ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK.
const STEPS: [u32; 4] = [1, 3, 0xb, 0xf];
/// A block device's ID.
const BLOCK: u16 = 0x1042;
/// Each queue's rings: descriptors, available, used ring, one page each.
const RING_BYTES: usize = 3 * 4096;
const QUEUES: u32 = 4;
/// Progress is printed so often.
const REPORTS: u64 = 16;

/// What was done.
#[derive(Default)]
struct Done {
    resets: u64,
    after_requests: u64,
    notifications: u64,
}

/// Plays `operations` from `seed`.
pub(crate) fn play(seed: u64, operations: u64) -> bool {
    let Some(arena) = Arena::new(PAGES) else {
        println!("hostile: not enough memory");
        return false;
    };
    let wires: Vec<Wire> = raw::devices()
        .into_iter()
        .map(|device| Wire { device, arena })
        .collect();
    if wires.is_empty() {
        println!("hostile: no devices");
        return false;
    }
    println!(
        "hostile: {} devices, {} cores, seed {seed}",
        wires.len(),
        thread::cores()
    );
    for (offset, width) in [(u64::MAX - 3, 4), (raw::BAR_BYTES, 1), (1, 2), (3, 3)] {
        let read = wires[0].read(offset, width);
        assert_eq!(read, 0, "{width} bytes at {offset:#x} are not a register");
    }
    prepare(arena);
    let stop = Arc::new(AtomicBool::new(false));
    let other = (thread::cores() > 1).then(|| flip(arena, seed, Arc::clone(&stop)));
    let mut random = Random::new(seed);
    let mut done = Done::default();
    for number in 1..=operations {
        let wire = wires[random.below(wires.len() as u32) as usize];
        operate(wire, &mut random, &mut done);
        if number % (operations / REPORTS).max(1) == 0 {
            println!(
                "hostile: {number} operations, {} notifications, {} resets",
                done.notifications, done.resets
            );
            thread::yield_now();
        }
    }
    for wire in &wires {
        wire.write(STATUS, 1, 0);
    }
    stop.store(true, Ordering::Release);
    if let Some(Ok(thread)) = other {
        thread.join();
    }
    println!(
        "hostile: done, {operations} operations, {} notifications, {} resets, {} of them right \
         after requests",
        done.notifications, done.resets, done.after_requests
    );
    true
}

/// Makes descriptors of the rings' pages that lie in the arena: one of zeros would name the
/// first pages of memory as soon as `flip` gives it a length.
fn prepare(arena: Arena) {
    for at in (0..RING_BYTES * QUEUES as usize).step_by(16) {
        arena.write(at, &arena.address().to_le_bytes());
    }
}

/// Changes the low halves of what is in the rings, from another core, until `stop`. Addresses
/// stay in their 64 KiB of the arena, lengths below 128 KiB or above all memory.
fn flip(
    arena: Arena,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>, thread::SpawnError> {
    let mut random = Random::new(seed ^ 0xffff);
    let rings = RING_BYTES as u32 * QUEUES;
    thread::Builder::new().name("flip").core(1).spawn(move || {
        while !stop.load(Ordering::Acquire) {
            // Words of 4 bytes: their low halves are the low 16 bits of addresses
            // and lengths, flags, and indices and heads of the rings.
            let at = random.below(rings / 4) as usize * 4;
            arena.write(at, &(random.value() as u16).to_le_bytes());
        }
    })
}

fn operate(wire: Wire, random: &mut Random, done: &mut Done) {
    match random.below(20) {
        0 => drop(raw::read_config(&wire.device, random.next() as u8)),
        1 => wire.write_config(random.next() as u8, random.value()),
        2 => {
            raw::write_address_port(random.value());
            let _ = raw::read_port(random.next() as u16, 1 << random.below(3));
        }
        3 => {
            let offset = random.below(raw::BAR_BYTES as u32);
            let _ = wire.read(offset.into(), 1 << random.below(3));
        }
        4 | 5 => {
            let offset = u64::from(random.below(COMMON_END));
            wire.write(offset, 1 << random.below(3), random.value());
        }
        6 => {
            let offset = u64::from(random.below(raw::BAR_BYTES as u32)) & !3;
            if !(MSIX_TABLE..MSIX_TABLE + 0x1000).contains(&offset) {
                wire.write(offset, 4, random.value());
            }
        }
        7 => wire.write(
            DEVICE_CONFIG + u64::from(random.below(64)),
            1,
            random.value(),
        ),
        8 => route(wire, random),
        9 | 10 => start(wire, random, done),
        11..14 => scatter(wire, random, done),
        14..17 => request(wire, random, done),
        17 => {
            for _ in 0..random.below(64) {
                notify(wire, random, done);
            }
        }
        18 => wire.write(STATUS, 1, random.value()),
        _ => reset(wire, done),
    }
}

fn reset(wire: Wire, done: &mut Done) {
    wire.write(STATUS, 1, 0);
    done.resets += 1;
}

fn notify(wire: Wire, random: &mut Random, done: &mut Done) {
    let queue = random.below(QUEUES);
    let value = if random.below(4) == 0 {
        random.value()
    } else {
        queue
    };
    wire.write(NOTIFY + 4 * u64::from(queue), 2, value);
    done.notifications += 1;
}

/// An entry of the MSI-X table, to a processor that does not exist: an interrupt
/// that arrived would end this image, not the monitor.
fn route(wire: Wire, random: &mut Random) {
    let entry = MSIX_TABLE + 16 * u64::from(random.below(8));
    let words = [
        0xfee0_0000 | 0xfe << 12 | random.below(16) << 2,
        random.value(),
        random.value(),
        random.below(2),
    ];
    // The upper half of the address chooses processors with more than 8 bits.
    let words = [words[0], words[1] & !0xff, words[2], words[3]];
    for (at, word) in (entry..).step_by(4).zip(words) {
        wire.write(at, 4, word);
    }
}

/// From reset to DRIVER_OK with any features, sizes and places of rings.
fn start(wire: Wire, random: &mut Random, done: &mut Done) {
    // A random write may have switched its registers off.
    wire.write_config(COMMAND, DECODE);
    reset(wire, done);
    for status in STEPS {
        if status == 0xb {
            for half in 0..2 {
                wire.write(0, 4, half);
                let offered = wire.read(4, 4);
                wire.write(8, 4, half);
                // All of them, or without some.
                let dropped = if random.below(2) == 0 {
                    0
                } else {
                    random.value()
                };
                let version = half & 1;
                wire.write(0x0c, 4, offered & !dropped | version);
            }
        }
        if status == 0xf {
            for queue in 0..QUEUES {
                place(wire, queue, random);
            }
        }
        wire.write(STATUS, 1, status);
    }
}

fn place(wire: Wire, queue: u32, random: &mut Random) {
    wire.write(QUEUE_SELECT, 2, queue);
    let size = match random.below(4) {
        0 => random.value(),
        _ => 1 << random.below(9),
    };
    wire.write(QUEUE_SIZE, 2, size);
    wire.write(QUEUE_VECTOR, 2, random.below(5));
    if random.below(8) > 0 {
        // Both indices of an empty queue.
        let ring = queue as usize * RING_BYTES;
        wire.arena.write(ring + 4096, &[0; 4]);
        wire.arena.write(ring + 2 * 4096, &[0; 4]);
    }
    let base = wire.arena.address() as u32 + queue * RING_BYTES as u32;
    for ring in 0..3 {
        let address = match random.below(12) {
            0 => random.value(),
            _ => base + ring * 4096,
        };
        let register = QUEUE_DESCRIPTORS + 8 * u64::from(ring);
        wire.write(register, 4, address);
        let high = if random.below(24) == 0 {
            random.value()
        } else {
            0
        };
        wire.write(register + 4, 4, high);
    }
    wire.write(QUEUE_ENABLE, 2, 1);
}

/// Any descriptors and heads, then a notification.
fn scatter(wire: Wire, random: &mut Random, done: &mut Done) {
    let queue = random.below(QUEUES);
    let base = queue as usize * RING_BYTES;
    for _ in 0..=random.below(8) {
        wire.descriptor(base + 16 * random.below(256) as usize, random, 256);
    }
    for _ in 0..=random.below(4) {
        let entry = base + 4096 + 4 + 2 * random.below(256) as usize;
        wire.arena
            .write(entry, &(random.below(300) as u16).to_le_bytes());
    }
    offer(wire, base, random);
    wire.write(NOTIFY + 4 * u64::from(queue), 2, queue);
    done.notifications += 1;
    if random.below(4) == 0 {
        reset(wire, done);
    }
}

/// Moves the available index: a few further, or anywhere.
fn offer(wire: Wire, base: usize, random: &mut Random) {
    let at = base + 4096 + 2;
    let index = u16::from_le_bytes([wire.arena.read(at), wire.arena.read(at + 1)]);
    let index = match random.below(8) {
        0 => random.next() as u16,
        _ => index.wrapping_add(random.below(4) as u16 + 1),
    };
    wire.arena.write(at, &index.to_le_bytes());
}

/// A request that a disk understands, many times over, so that some are in flight when the
/// device is reset.
fn request(wire: Wire, random: &mut Random, done: &mut Done) {
    if random.below(2) == 0 {
        start(wire, random, done);
    }
    let (header, data) = (PLACES - 4096, PLACES - 2048);
    // Read, write, flush, get the ID, discard, write zeroes.
    let kind = [0, 1, 4, 8, 11, 13][random.below(6) as usize];
    wire.arena.write(header, &u32::to_le_bytes(kind));
    let sector = u64::from(random.below(4096));
    wire.arena.write(header + 8, &sector.to_le_bytes());
    let reads = if kind == 0 || kind == 8 { 2 } else { 0 };
    let address = |offset: usize| wire.arena.address() + offset as u64;
    let chain = [
        (address(header), 16, 1),
        (address(data), 512, 1 | reads),
        (address(data + 1024), 1, 2),
    ];
    for (number, (address, length, flags)) in chain.into_iter().enumerate() {
        let at = 16 * number;
        wire.arena.write(at, &u64::to_le_bytes(address));
        wire.arena.write(at + 8, &u32::to_le_bytes(length));
        wire.arena.write(at + 12, &u16::to_le_bytes(flags));
        wire.arena
            .write(at + 14, &(number as u16 + 1).to_le_bytes());
    }
    for entry in 0..256 {
        wire.arena.write(4096 + 4 + 2 * entry, &[0, 0]);
    }
    for _ in 0..=random.below(16) {
        offer(wire, 0, random);
    }
    wire.write(NOTIFY, 2, 0);
    done.notifications += 1;
    if wire.device.id == BLOCK && random.below(2) == 0 {
        done.after_requests += 1;
        reset(wire, done);
    }
}
