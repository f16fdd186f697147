//! What can be a disk, and what O_DIRECT requires.

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
fn a_file_that_is_not_a_raw_disk_is_refused_by_name() {
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
        tare_vmtest::lacks("this file system has no O_DIRECT with 512-byte blocks");
        return;
    }
    let chosen = choose(&disk).unwrap();
    let device = Blk::new(settings(), disk, chosen.engine, Box::new(MonotonicClock));
    let machine = MockMachine::new(device);
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

/// A disk whose buffers O_DIRECT does not take, whatever its file system.
fn copying(file: &File, engine: Box<dyn IoEngine>, settings: BlkSettings) -> MockMachine<Blk> {
    let disk = copying_disk(file);
    MockMachine::new(Blk::new(settings, disk, engine, Box::new(MonotonicClock)))
}

pub(super) fn copying_disk(file: &File) -> Disk {
    let mut disk = disk(file, Access::ReadWrite);
    disk.pretend_direct();
    disk
}

/// Copies go through the engine in parts: the I/O thread does not wait for the disk, no
/// request has it for long, and the memory is bounded.
#[test]
fn copied_requests_take_turns_in_bounded_memory() {
    let file = file();
    let gate = Arc::<Mutex<Gate>>::default();
    let engine = Box::new(Held {
        engine: SyncIoEngine::new(file.try_clone().unwrap()),
        gate: Arc::clone(&gate),
    });
    let machine = copying(&file, engine, settings());
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    const REQUESTS: u64 = 12;
    for slot in 0..REQUESTS {
        let odd = Wanted {
            data: DATA + 3,
            status: STATUS + slot * 0x40,
            ..Wanted::new(0, 8, 480 << 10)
        };
        odd.offer(&machine, &mut rings[0]);
    }
    // The disk answers nothing, and the call returns.
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(machine.counter("bounced"), REQUESTS);
    assert_eq!(gate.lock().unwrap().waiting, slow::MOST_PARTS);
    let mut most = 0;
    for _ in 0..2 * REQUESTS {
        gate.lock().unwrap().open = 1;
        let _ = machine.io(|device| device.backend_ready());
        most = most.max(gate.lock().unwrap().waiting);
    }
    assert!(most <= slow::MOST_PARTS);
    let parts = gate.lock().unwrap().started.clone();
    assert_eq!(parts.len() as u64, 2 * REQUESTS);
    let firsts = parts.iter().take(REQUESTS as usize);
    let begin = Operation::Read { offset: 8 * 512 };
    assert!(firsts.into_iter().all(|it| *it == begin), "{parts:?}");
    assert_eq!(
        serve(&machine, &mut rings[0], 0, REQUESTS as usize).len(),
        12
    );
    assert_eq!(get(&machine.memory, STATUS, 1), [0]);
    for (at, sector) in [(0, 8u8), (479 << 10, (8 + 958u64) as u8)] {
        assert_eq!(
            get(&machine.memory, DATA + 3 + at, 512),
            [sector; 512],
            "{at}"
        );
    }
}

#[test]
fn a_long_copied_write_is_in_the_file_and_durable_where_it_must_be() {
    let file = file();
    let through = BlkSettings {
        cache: Cache::Writethrough,
        ..settings()
    };
    let machine = copying(&file, sync_engine(&file), through);
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    let bytes: Vec<u8> = (0..480u32 << 10).map(|n| (n / 512 % 251) as u8).collect();
    put(&machine.memory, DATA + 5, &bytes);
    let write = Wanted {
        data: DATA + 5,
        ..Wanted::new(1, 2, 480 << 10)
    };
    assert_eq!(request(&machine, &mut rings[0], write), 0);
    let mut written = vec![0; 480 << 10];
    file.read_exact_at(&mut written, 1024).unwrap();
    assert!(written == bytes);
    assert_eq!(machine.counter("durable_writes"), 1);
}

#[test]
fn a_reset_forgets_copied_requests_and_the_next_are_served() {
    let file = file();
    let machine = copying(&file, sync_engine(&file), settings());
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    for slot in 0..12 {
        let odd = Wanted {
            data: DATA + 1,
            status: STATUS + slot * 0x40,
            ..Wanted::new(0, 0, 512 << 10)
        };
        odd.offer(&machine, &mut rings[0]);
    }
    let _ = machine.io(|device| device.notified(0));
    let mut rings = driver.start(FEATURES, 64);
    let odd = Wanted {
        data: DATA + 1,
        ..Wanted::new(0, 5, 512)
    };
    assert_eq!(request(&machine, &mut rings[0], odd), 0);
    assert_eq!(get(&machine.memory, DATA + 1, 512), [5; 512]);
}

/// An engine on a file system that makes no zeros.
struct NoZeros(SyncIoEngine);

impl IoEngine for NoZeros {
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers) {
        let instead = match operation {
            Operation::Allocate { .. } => Operation::Flush,
            other => other,
        };
        self.0.start(token, instead, buffers);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    fn finished(&mut self) -> Option<Finished> {
        let mut finished = self.0.finished()?;
        if finished.result.as_ref().is_ok_and(|done| *done == 0) {
            finished.result = Err(io::ErrorKind::Unsupported.into());
        }
        Some(finished)
    }

    fn wait(&mut self) {}

    fn drain(&mut self) {
        self.0.drain();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acknowledge(&mut self) {}
}

#[test]
fn zeros_that_the_file_system_cannot_make_are_written() {
    let file = file();
    let engine = NoZeros(SyncIoEngine::new(file.try_clone().unwrap()));
    let machine = machine_with(settings(), &file, Box::new(engine));
    let mut rings = Driver::new(&machine).start(FEATURES, 64);
    let mut range = 8u64.to_le_bytes().to_vec();
    range.extend_from_slice(&1200u32.to_le_bytes());
    range.extend_from_slice(&[0; 4]);
    put(&machine.memory, DATA, &range);
    let wanted = Wanted::new(13, 0, 16);
    wanted.offer(&machine, &mut rings[0]);
    serve(&machine, &mut rings[0], 0, 1);
    assert_eq!(get(&machine.memory, STATUS, 1), [0]);
    assert_eq!(machine.counter("write_zeroes"), 1);
    let mut zeroed = vec![1; 1200 * 512];
    file.read_exact_at(&mut zeroed, 8 * 512).unwrap();
    assert!(zeroed.iter().all(|byte| *byte == 0));
    let mut beside = [0; 512];
    file.read_exact_at(&mut beside, 1208 * 512).unwrap();
    assert_eq!(beside, [1208u64 as u8; 512]);
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

/// What a 4Kn device does not take is refused, and the driver learns its blocks.
#[test]
fn a_disk_of_4_kib_blocks_takes_whole_blocks() {
    let file = file();
    let mut disk = disk(&file, Access::ReadWrite);
    disk.pretend_4kn();
    let engine = sync_engine(&file);
    let machine = MockMachine::new(Blk::new(settings(), disk, engine, Box::new(MonotonicClock)));
    let driver = Driver::new(&machine);
    assert_eq!(driver.read_memory(driver.places.device, 8), SECTORS);
    assert_eq!(driver.read_memory(driver.places.device + 20, 4), 4096);
    // No smaller physical blocks, and one at least at a time.
    assert_eq!(driver.read_memory(driver.places.device + 24, 1), 0);
    assert_eq!(driver.read_memory(driver.places.device + 26, 2), 1);
    let mut rings = driver.start(FEATURES, 64);
    for (sector, len, status) in [(8, 4096, 0), (8, 512, 1), (1, 4096, 1), (16, 8192, 0)] {
        let read = Wanted::new(0, sector, len);
        assert_eq!(
            request(&machine, &mut rings[0], read),
            status,
            "{sector} {len}"
        );
    }
    assert_eq!(machine.counter("malformed_requests"), 2);
}
