//! A guest's disk: a driver on guest memory, the device, and a file behind it.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tare_policy::coalesce::{Mode, Settings};

use super::*;
use crate::clock::TestClock;
use crate::virtio::Progress;
use crate::virtio::driver::{
    BUFFERS, Driver, MockMachine, Ring as DriverRing, WRITE, get, put, take,
};

mod bad_requests;
mod cache;
mod coalescing;
mod disks;
mod durability;
mod growth;
mod limits;
mod paced;
mod requests;
mod resets;

const FEATURES: u64 = 1 << 32 | 1 << 9 | 1 << 11 | 1 << 13 | 1 << 14;
const SECTORS: u64 = 2048;
const HEADER: u64 = BUFFERS;
const STATUS: u64 = BUFFERS + 0x100;
const DATA: u64 = BUFFERS + 0x1000;
const NO_STATUS_YET: u8 = 0xee;

/// A disk of [`SECTORS`] sectors, each filled with its number.
fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    for sector in 0..SECTORS {
        file.write_all_at(&[sector as u8; 512], sector * 512)
            .unwrap();
    }
    file
}

fn disk(file: &File, access: Access) -> Disk {
    Disk::from_file(file.try_clone().unwrap(), "test", access).unwrap()
}

fn settings() -> BlkSettings {
    BlkSettings {
        serial: *b"weighed-0000000000\0\0",
        queues: 1,
        cache: Cache::Writeback,
        coalesce: Settings::with_mode(Mode::Off),
        limits: Default::default(),
    }
}

fn sync_engine(file: &File) -> Box<dyn IoEngine> {
    Box::new(SyncIoEngine::new(file.try_clone().unwrap()))
}

/// io_uring, or nothing to test with.
fn uring(file: &File) -> Option<Box<dyn IoEngine>> {
    let ring = Ring::new(file, MAX_IN_FLIGHT)
        .map_err(|error| format!("io_uring is not allowed here: {error}"));
    Some(Box::new(tare_vmtest::or_lacks(ring)?))
}

fn machine_with(settings: BlkSettings, file: &File, engine: Box<dyn IoEngine>) -> MockMachine<Blk> {
    let disk = disk(file, Access::ReadWrite);
    MockMachine::new(Blk::new(settings, disk, engine, Box::new(MonotonicClock)))
}

/// One request with its own header, data and status.
#[derive(Clone, Copy)]
struct Wanted {
    kind: u32,
    sector: u64,
    data: u64,
    len: u32,
    status: u64,
}

impl Wanted {
    fn new(kind: u32, sector: u64, len: u32) -> Self {
        Self {
            kind,
            sector,
            data: DATA,
            len,
            status: STATUS,
        }
    }

    fn offer(self, machine: &MockMachine<Blk>, ring: &mut DriverRing<'_>) {
        // Headers lie beside their status.
        let header = self.status + 0x10;
        put_header(machine, header, self.kind, self.sector);
        put(&machine.memory, self.status, &[NO_STATUS_YET]);
        let direction = match self.kind {
            0 | 8 => WRITE,
            _ => 0,
        };
        let mut chain = vec![(header, 16, 0)];
        if self.len > 0 {
            chain.push((self.data, self.len, direction));
        }
        chain.push((self.status, 1, WRITE));
        ring.offer(&chain);
    }
}

fn put_header(machine: &MockMachine<Blk>, at: u64, kind: u32, sector: u64) {
    let mut header = kind.to_le_bytes().to_vec();
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&sector.to_le_bytes());
    put(&machine.memory, at, &header);
}

/// Offers 32 reads of 4 KiB each, one behind the other on the disk and in memory.
fn offer_deep_reads(machine: &MockMachine<Blk>, ring: &mut DriverRing<'_>) {
    for n in 0..32 {
        Wanted {
            data: DATA + n * 4096,
            status: STATUS + n * 0x40,
            ..Wanted::new(0, n * 8, 4096)
        }
        .offer(machine, ring);
    }
}

/// Iterations of a millisecond after which a device counts as hung. A busy disk can take seconds
/// for a write.
const MOST_TURNS: usize = 30_000;

/// Lets the device work until `count` more requests are used.
fn serve(
    machine: &MockMachine<Blk>,
    ring: &mut DriverRing<'_>,
    queue: u16,
    count: usize,
) -> Vec<u32> {
    let mut found = Vec::new();
    let _ = machine.io(|device| device.notified(queue));
    for _ in 0..MOST_TURNS {
        found.extend(std::iter::from_fn(|| ring.take_used()).map(|(_, written)| written));
        if found.len() >= count {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let _ = machine.io(|device| device.backend_ready());
    }
    panic!("{} of {count} requests were answered", found.len());
}

/// A machine whose engine ends operations when the test says so.
fn held(settings: BlkSettings) -> (MockMachine<Blk>, Arc<Mutex<Gate>>) {
    let file = file();
    let gate = Arc::<Mutex<Gate>>::default();
    let engine = Held {
        engine: SyncIoEngine::new(file.try_clone().unwrap()),
        gate: Arc::clone(&gate),
    };
    (machine_with(settings, &file, Box::new(engine)), gate)
}

/// One request from beginning to end; returns its status.
fn request(machine: &MockMachine<Blk>, ring: &mut DriverRing<'_>, wanted: Wanted) -> u8 {
    wanted.offer(machine, ring);
    serve(machine, ring, 0, 1);
    get(&machine.memory, wanted.status, 1)[0]
}

/// An engine that ends operations when the test says so.
struct Held {
    engine: SyncIoEngine,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    /// Completions that may pass.
    open: usize,
    drained: usize,
    waiting: usize,
    /// Operations that were started.
    started: Vec<Operation>,
}

impl IoEngine for Held {
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers) {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        gate.started.push(operation);
        drop(gate);
        self.engine.start(token, operation, buffers);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.engine.submit()
    }

    fn finished(&mut self) -> Option<Finished> {
        let mut gate = self.gate.lock().unwrap();
        let left = gate.open.checked_sub(1)?;
        let finished = self.engine.finished()?;
        gate.open = left;
        gate.waiting -= 1;
        Some(finished)
    }

    fn wait(&mut self) {
        self.gate.lock().unwrap().open += 1;
    }

    fn drain(&mut self) {
        self.gate.lock().unwrap().drained += 1;
        self.engine.drain();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acknowledge(&mut self) {}
}
