use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sync::SpinLock;

/// Records the requests that it gets.
struct Scribe {
    geometry: Geometry,
    asked: SpinLock<Vec<(u64, usize)>>,
    answer: Result<(), BlockError>,
    /// Sectors that it has beyond those that it had when it was opened.
    grown: u64,
    /// How often its size was requested.
    measured: AtomicU32,
}

fn geometry(serial: &str) -> Geometry {
    Geometry {
        serial: serial.to_string(),
        sectors: 100,
        access: Access::ReadWrite,
        request_bytes: 1024,
        depth: 1,
        queues: 1,
        discard_sectors: 8,
        zero_sectors: 3,
    }
}

fn scribe(serial: &str) -> Arc<Scribe> {
    Arc::new(Scribe {
        geometry: geometry(serial),
        asked: SpinLock::new(Vec::new()),
        answer: Ok(()),
        grown: 0,
        measured: AtomicU32::new(0),
    })
}

impl Device for Scribe {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn sectors(&self) -> u64 {
        self.measured.fetch_add(1, Ordering::Relaxed);
        self.geometry.sectors + self.grown
    }

    fn execute(&self, operation: Operation<'_>) -> Result<(), BlockError> {
        let asked = match operation {
            Operation::Read { sector, into } => (sector, into.len()),
            Operation::Write { sector, from } => (sector, from.len()),
            Operation::Flush => (0, 0),
            Operation::Discard { sector, sectors } | Operation::WriteZeroes { sector, sectors } => {
                (sector, sectors as usize)
            }
        };
        self.asked.lock().push(asked);
        self.answer
    }

    fn set_cache(&self, _: Cache) -> Result<(), BlockError> {
        self.answer
    }

    fn stats(&self) -> DiskStats {
        DiskStats::default()
    }
}

#[test]
fn long_transfers_are_split_as_the_device_wants() {
    let device = scribe("");
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    disk.read(10, &mut vec![0; 2560]).unwrap();
    disk.write(97, &vec![0; 1536]).unwrap();
    disk.flush().unwrap();
    let expected = [
        (10, 1024),
        (12, 1024),
        (14, 512),
        (97, 1024),
        (99, 512),
        (0, 0),
    ];
    assert_eq!(*device.asked.lock(), expected);
}

#[test]
fn what_is_erased_is_split_as_the_device_wants() {
    let device = scribe("");
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    disk.discard(80, 20).unwrap();
    disk.write_zeroes(0, 4).unwrap();
    disk.discard(100, 0).unwrap();
    let expected = [(80, 8), (88, 8), (96, 4), (0, 3), (3, 1)];
    assert_eq!(*device.asked.lock(), expected);
    for (sector, sectors) in [(80, 21), (101, 0), (u64::MAX, 1)] {
        assert_eq!(disk.discard(sector, sectors), Err(BlockError::BeyondEnd));
    }
    let disk = Disk::in_memory("d", vec![1; 2048], Access::ReadWrite);
    disk.write_zeroes(1, 2).unwrap();
    let mut all = [9; 2048];
    disk.read(0, &mut all).unwrap();
    assert_eq!(all, [&[1; 512][..], &[0; 1024], &[1; 512]].concat()[..]);
}

#[test]
fn a_device_that_does_not_erase_is_not_asked_to() {
    let mut device = scribe("");
    let geometry = &mut Arc::get_mut(&mut device).unwrap().geometry;
    (geometry.discard_sectors, geometry.zero_sectors) = (0, 0);
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    assert_eq!(disk.discard(0, 1), Err(BlockError::Unsupported));
    assert_eq!(disk.write_zeroes(0, 1), Err(BlockError::Unsupported));
    assert!(device.asked.lock().is_empty());
}

#[test]
fn requests_that_make_no_sense_do_not_reach_the_device() {
    let device = scribe("");
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    for (sector, bytes, error) in [
        (0, 0, BlockError::NotWholeSectors),
        (0, 511, BlockError::NotWholeSectors),
        (99, 1024, BlockError::BeyondEnd),
        (100, 512, BlockError::BeyondEnd),
        (u64::MAX, 512, BlockError::BeyondEnd),
    ] {
        assert_eq!(disk.read(sector, &mut vec![0; bytes]), Err(error));
        assert_eq!(disk.write(sector, &vec![0; bytes]), Err(error));
    }
    assert!(device.asked.lock().is_empty());
}

#[test]
fn a_disk_that_has_grown_is_used_to_its_end() {
    let mut device = scribe("");
    Arc::get_mut(&mut device).unwrap().grown = 10;
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    let measured = || device.measured.load(Ordering::Relaxed);
    disk.read(98, &mut [0; 1024]).unwrap();
    assert_eq!(measured(), 0, "on the disk that was opened");
    disk.read(99, &mut [0; 1024]).unwrap();
    disk.clone().write(109, &[0; 512]).unwrap();
    assert_eq!(measured(), 1, "the larger size is kept");
    assert_eq!(disk.write(110, &[0; 512]), Err(BlockError::BeyondEnd));
    assert_eq!((disk.sectors(), measured()), (110, 3));
    assert_eq!(*device.asked.lock(), [(98, 1024), (99, 1024), (109, 512)]);
}

#[test]
fn a_read_only_disk_takes_no_writes() {
    let disk = Disk::in_memory("d", vec![1; 1024], Access::ReadOnly);
    assert_eq!(disk.write(0, &[0; 512]), Err(BlockError::ReadOnly));
    assert_eq!(disk.write_zeroes(0, 1), Err(BlockError::ReadOnly));
    let mut sector = [0; 512];
    disk.read(1, &mut sector).unwrap();
    assert_eq!(sector, [1; 512]);
}

#[test]
fn an_error_ends_a_split_transfer() {
    let mut device = scribe("");
    Arc::get_mut(&mut device).unwrap().answer = Err(BlockError::Io);
    let disk = Disk::new("disk0", Arc::clone(&device) as Arc<dyn Device>);
    assert_eq!(disk.write(0, &[0; 4096]), Err(BlockError::Io));
    assert_eq!(device.asked.lock().len(), 1);
}

#[test]
fn an_odd_end_of_memory_is_not_on_the_disk() {
    let disk = Disk::in_memory("d", vec![0; 1023], Access::ReadWrite);
    assert_eq!((disk.sectors(), disk.bytes()), (1, 512));
}

#[test]
fn disks_are_numbered_by_their_serial_numbers() {
    let names = |serials: &[&str]| -> Vec<(String, String)> {
        let devices = serials
            .iter()
            .map(|serial| scribe(serial) as Arc<dyn Device>);
        let disks = attach(devices.collect());
        let pair = |disk: &Disk| (disk.name().to_string(), disk.serial().to_string());
        disks.iter().map(pair).collect()
    };
    let pair = |name: &str, serial: &str| (name.to_string(), serial.to_string());
    assert_eq!(
        names(&["tare-disk1", "tare-disk0"]),
        [pair("disk0", "tare-disk0"), pair("disk1", "tare-disk1")]
    );
    assert_eq!(
        names(&["A", "tare-disk0", "tare-disk0", "tare-disk01"]),
        [
            pair("disk0", "tare-disk0"),
            pair("disk1", "A"),
            pair("disk2", "tare-disk0"),
            pair("disk3", "tare-disk01"),
        ]
    );
}

#[test]
fn every_error_of_a_disk_has_a_kind() {
    use crate::io::{Error, ErrorKind};
    let kind = |error: BlockError| Error::from(error).kind();
    assert_eq!(kind(BlockError::BeyondEnd), ErrorKind::UnexpectedEof);
    assert_eq!(kind(BlockError::NotWholeSectors), ErrorKind::InvalidInput);
    assert_eq!(kind(BlockError::Io), ErrorKind::Other);
}
