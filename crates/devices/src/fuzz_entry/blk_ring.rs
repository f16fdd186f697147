//! The io_uring engine against the one of plain system calls: the same requests give the same
//! answers, the same data in guest memory, and the same disk; also with resets while
//! requests are in flight.
//!
//! Requests between two waits touch their own places on the disk and in memory, so that
//! the order in which the kernel executes them does not matter.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use io_uring::IoUring;

use super::{Input, memory_file};
use crate::blk::{
    Access, Blk, BlkSettings, Cache, Disk, IoEngine, MonotonicClock, SERIAL_BYTES, SyncIoEngine,
    choose,
};
use crate::virtio::Progress;
use crate::virtio::driver::{BUFFERS, Driver, MockMachine, Ring, WRITE, get, put};

/// Requests at a time, each with a slot of this many bytes of the disk and of memory.
const SLOTS: u64 = 16;
const SLOT: u64 = 8 << 10;
/// Headers and status bytes, 32 bytes a slot, lie before the data.
const HEADS: u64 = BUFFERS;
const DATA: u64 = BUFFERS + 0x1000;
const DISK: u64 = SLOTS * SLOT;
/// When a request in flight counts as lost.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(30);
const QUEUE: u16 = 64;

/// One guest with its disk.
struct Side {
    machine: MockMachine<Blk>,
    file: File,
}

impl Side {
    fn new(engine: impl FnOnce(&Disk) -> io::Result<Box<dyn IoEngine>>) -> io::Result<Self> {
        let file = memory_file(DISK).ok_or(io::ErrorKind::OutOfMemory)?;
        let words = (0..DISK / 8).flat_map(|at| (at * 0x9e37).to_le_bytes());
        file.write_all_at(&words.collect::<Vec<u8>>(), 0)?;
        let disk = Disk::from_file(file.try_clone()?, "fuzz", Access::ReadWrite)
            .map_err(io::Error::other)?;
        let engine = engine(&disk)?;
        let settings = BlkSettings {
            serial: [b'f'; SERIAL_BYTES],
            queues: 1,
            cache: Cache::Writeback,
            coalesce: Default::default(),
            limits: Default::default(),
        };
        let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
        Ok(Self {
            machine: MockMachine::new(device),
            file,
        })
    }

    fn start(&self) -> Ring<'_> {
        let driver = Driver::new(&self.machine);
        let features = driver.offered();
        let mut rings = driver.start(features, QUEUE);
        self.machine.serve_kicks();
        rings.remove(0)
    }

    /// Lets the device work until it has answered `count` requests.
    fn answered(&self, ring: &Ring<'_>, count: u16) {
        let begin = Instant::now();
        while begin.elapsed() < COMPLETION_TIMEOUT {
            let more = self.machine.io(|device| device.backend_ready());
            self.machine.io(|device| device.deadline_passed());
            if ring.used_index() == count && more == Progress::Done {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{} of {count} requests answered", ring.used_index());
    }

    fn disk(&self) -> Vec<u8> {
        let mut bytes = vec![0; DISK as usize];
        let read = self.file.read_exact_at(&mut bytes, 0);
        read.map(|()| bytes).unwrap_or_default()
    }

    fn memory(&self, from: u64, bytes: u64) -> Vec<u8> {
        get(&self.machine.memory, from, bytes as usize)
    }
}

/// A request of the input's choice on slot `slot`.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    slot: u64,
    kind: u32,
    sector: u64,
    /// Bytes of the two parts of the data; the second may be empty.
    parts: [u32; 2],
}

impl Wanted {
    fn of(slot: u64, input: &mut Input<'_>) -> Self {
        let kind = [0, 1, 1, 4, 8, 11, 13, 0][usize::from(input.byte() % 8)];
        let choice = input.byte();
        // Mostly within the slot; else beyond the disk.
        let sector = match choice {
            0xf0.. => DISK / 512 + u64::from(choice & 7),
            _ => slot * SLOT / 512 + u64::from(choice & 7),
        };
        // At most 4,096 bytes, so that 3,584 may lie before them in the slot.
        let first = u32::from(input.byte()) * 8;
        let second = u32::from(input.byte() % 4) * 512;
        Self {
            slot,
            kind,
            sector,
            parts: [first, second],
        }
    }

    fn offer(&self, side: &Side, ring: &mut Ring<'_>) {
        let memory = &side.machine.memory;
        let head = HEADS + self.slot * 32;
        let data = DATA + self.slot * SLOT;
        put(memory, head, &self.kind.to_le_bytes());
        put(memory, head + 4, &0_u32.to_le_bytes());
        put(memory, head + 8, &self.sector.to_le_bytes());
        put(memory, head + 16, &[0xee]);
        let mut chain = vec![(head, 16, 0)];
        match self.kind {
            11 | 13 => {
                // One segment: sector, sectors, flags (virtio 1.2, 5.2.6.2).
                let sectors = self.parts[1] / 512;
                put(memory, data, &self.sector.to_le_bytes());
                put(memory, data + 8, &sectors.to_le_bytes());
                put(memory, data + 12, &0_u32.to_le_bytes());
                chain.push((data, 16, 0));
            }
            4 => {}
            kind => {
                let flags = if kind == 1 { 0 } else { WRITE };
                // Whole sectors together, cut anywhere.
                let second = self.parts[1] + (512 - self.parts[0] % 512) % 512;
                for (at, len) in [(0, self.parts[0]), (0x1000, second)] {
                    if len > 0 {
                        chain.push((data + at, len, flags));
                    }
                }
            }
        }
        chain.push((head + 16, 1, WRITE));
        ring.offer(&chain);
    }
}

/// Whether this system refuses io_uring itself: no such call, or not allowed.
fn is_refused() -> bool {
    let refusals = [libc::ENOSYS, libc::EPERM, libc::EACCES];
    let made = IoUring::new(1).map_err(|error| error.raw_os_error());
    made.is_err_and(|errno| errno.is_some_and(|errno| refusals.contains(&errno)))
}

/// Plays the input on both; false where this system refuses io_uring. Panics where the
/// engines cannot be made for another reason, or do not agree.
pub fn blk_ring(input: &[u8]) -> bool {
    if is_refused() {
        return false;
    }
    let ring = Side::new(|disk| {
        let chosen = choose(disk)?;
        chosen.refused.map_or(Ok(chosen.engine), Err)
    });
    let calls = Side::new(|disk| Ok(Box::new(SyncIoEngine::new(disk.file().try_clone()?))));
    let [ring, calls] =
        [ring, calls].map(|side| side.unwrap_or_else(|error| panic!("no engine: {error}")));
    let mut input = Input(input);
    while !input.is_empty() {
        batch([&ring, &calls], &mut input);
    }
    true
}

/// Some requests from a fresh start, and their end: answers, or a reset over them.
fn batch(sides: [&Side; 2], input: &mut Input<'_>) {
    let mut rings = sides.map(Side::start);
    // Status bytes of what a reset ended.
    for side in sides {
        put(&side.machine.memory, HEADS, &[0; (DATA - HEADS) as usize]);
    }
    let mut offered = 0;
    for _ in 0..=input.byte() % 3 {
        let count = input.byte() % SLOTS as u8 + 1;
        let wanted: Vec<_> = (0..u64::from(count))
            .map(|slot| Wanted::of(slot, input))
            .collect();
        offered += u16::from(count);
        for (side, ring) in sides.iter().zip(&mut rings) {
            for request in &wanted {
                request.offer(side, ring);
            }
            notify(side);
        }
        if input.byte() & 7 == 0 {
            for side in sides {
                Driver::new(&side.machine).reset();
            }
            // What had begun has ended, with an unknown result. If the file system cannot make
            // zeros, a second step writes them, and a reset may prevent that step.
            for request in wanted.iter().filter(|it| it.kind == 13) {
                agree(sides, request.slot);
            }
            same(sides, DATA, SLOTS * SLOT, &wanted);
            return;
        }
        for (side, ring) in sides.iter().zip(&rings) {
            side.answered(ring, offered);
        }
        same(sides, HEADS, DATA + SLOTS * SLOT - HEADS, &wanted);
    }
}

fn notify(side: &Side) {
    while side.machine.io(|device| device.notified(0)) == Progress::More {}
}

/// Gives both disks the ring's content of a slot.
fn agree([ring, calls]: [&Side; 2], slot: u64) {
    let mut bytes = vec![0; SLOT as usize];
    let read = ring.file.read_exact_at(&mut bytes, slot * SLOT);
    let _ = read.and_then(|()| calls.file.write_all_at(&bytes, slot * SLOT));
}

fn same(sides: [&Side; 2], from: u64, bytes: u64, wanted: &[Wanted]) {
    let [ring, calls] = sides;
    assert!(
        ring.memory(from, bytes) == calls.memory(from, bytes),
        "guest memory differs after {wanted:?}"
    );
    assert!(
        ring.disk() == calls.disk(),
        "the disk differs after {wanted:?}"
    );
}
