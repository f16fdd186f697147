//! A disk becomes longer below a driver that works.

use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::virtio::driver::Driver;

const NOW: u64 = SECTORS * 512;
const MORE: u64 = 1 << 30;

/// A growth that can extend the file, or nothing to test with.
fn growth(file: &File, access: Access) -> Option<Growth> {
    uring(file)?;
    Some(Growth::new(&disk(file, access)).unwrap())
}

#[test]
fn the_driver_learns_the_size_and_uses_what_is_new() {
    let file = file();
    let Some(mut growth) = growth(&file, Access::ReadWrite) else {
        return;
    };
    let machine = machine_with(settings(), &file, sync_engine(&file));
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 256);
    let capacity = || driver.read_memory(driver.places.device, 8);
    let generation = || driver.read_common(0x15, 1);
    let last = Wanted::new(1, MORE / 512 - 1, 512);
    assert_eq!(request(&machine, &mut rings[0], last), 1, "beyond the end");
    assert_eq!((capacity(), generation()), (SECTORS, 0));
    take(&machine.recorder.signals);

    growth.grow(NOW, MORE).unwrap();
    machine.io(|device| device.device_mut().set_bytes(MORE));
    let _ = machine.io(|device| device.notified(0));
    let configuration = driver.vector_count() - 1;
    assert_eq!(take(&machine.recorder.signals), [configuration]);
    assert_eq!((capacity(), generation()), (MORE / 512, 1));
    assert_eq!(driver.read_memory(driver.places.isr, 1) & 2, 2);
    assert_eq!(request(&machine, &mut rings[0], last), 0);
    assert_eq!(machine.counter("resizes"), 1);
    // What lies between is a hole, and what was there is untouched.
    assert!(file.metadata().unwrap().blocks() * 512 < NOW + (1 << 20));
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, NOW - 512).unwrap();
    assert_eq!(sector, [(SECTORS - 1) as u8; 512]);
    // The same size again changes nothing.
    machine.io(|device| device.device_mut().set_bytes(MORE));
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(generation(), 1);
}

#[test]
fn a_disk_does_not_become_shorter_or_end_in_a_part_of_a_block() {
    let file = file();
    let mut growth = Growth::new(&disk(&file, Access::ReadWrite)).unwrap();
    let shorter = growth.grow(NOW, NOW - 512);
    assert!(matches!(shorter, Err(GrowthError::Shorter { now: NOW })));
    let odd = growth.grow(NOW, NOW + 100);
    assert!(matches!(
        odd,
        Err(GrowthError::PartOfABlock { block: 512, .. })
    ));
    growth.grow(NOW, NOW).unwrap();
    assert_eq!(file.metadata().unwrap().len(), NOW);
}

#[test]
fn what_its_owner_has_extended_is_taken_over_as_it_is() {
    let file = file();
    let mut growth = Growth::new(&disk(&file, Access::ReadOnly)).unwrap();
    let refused = growth.grow(NOW, 2 * NOW);
    assert!(matches!(
        refused,
        Err(GrowthError::Found { found: NOW, .. })
    ));
    file.write_all_at(&[7; 512], 2 * NOW - 512).unwrap();
    growth.grow(NOW, 2 * NOW).unwrap();
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, 2 * NOW - 512).unwrap();
    assert_eq!(sector, [7; 512]);
}

#[test]
fn a_size_that_the_file_system_does_not_take_is_an_error() {
    let file = file();
    let Some(mut growth) = growth(&file, Access::ReadWrite) else {
        return;
    };
    let most = (i64::MAX as u64 / 512) * 512;
    assert!(matches!(growth.grow(NOW, most), Err(GrowthError::Io(_))));
    growth.grow(NOW, 2 * NOW).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * NOW);
}

/// A ring asks how long it is.
#[test]
fn a_remote_file_is_extended_or_taken_over_as_its_owner_has_extended_it() {
    let file = file();
    if uring(&file).is_none() {
        return;
    }
    let mut growth = Growth::of_remote(&disk(&file, Access::ReadWrite)).unwrap();
    growth.grow(NOW, 2 * NOW).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * NOW);
    file.set_len(4 * NOW).unwrap();
    growth.grow(2 * NOW, 4 * NOW).unwrap();
    // Nothing was allocated for what was there.
    assert_eq!(file.metadata().unwrap().len(), 4 * NOW);
    let mut growth = Growth::of_remote(&disk(&file, Access::ReadOnly)).unwrap();
    let refused = growth.grow(4 * NOW, 5 * NOW);
    assert!(matches!(refused, Err(GrowthError::Found { found, .. }) if found == 4 * NOW));
    file.set_len(5 * NOW).unwrap();
    growth.grow(4 * NOW, 5 * NOW).unwrap();
}

/// No call that might wait for a server is made in its place.
#[test]
fn without_a_ring_only_what_the_kernel_knows_the_length_of_takes_a_size() {
    let file = file();
    let disk = disk(&file, Access::ReadWrite);
    file.set_len(2 * NOW).unwrap();
    let mut growth = Growth::of_remote(&disk).unwrap().without_rings();
    let refused = growth.grow(NOW, 2 * NOW);
    assert!(matches!(refused, Err(GrowthError::Unmeasured)));
    let mut growth = Growth::of_local(&disk).unwrap().without_rings();
    growth.grow(NOW, 2 * NOW).unwrap();
    let refused = growth.grow(2 * NOW, 4 * NOW);
    assert!(matches!(refused, Err(GrowthError::Found { found, .. }) if found == 2 * NOW));
}

#[test]
fn an_error_tells_whether_a_slow_file_system_has_begun_to_extend_a_file() {
    let file = file();
    if uring(&file).is_none() {
        return;
    }
    let disk = disk(&file, Access::ReadWrite);
    let growth = |measures| Growth::of_remote(&disk).unwrap().waiting(measures);
    let refused = growth(true).grow(NOW, 2 * NOW);
    assert!(matches!(refused, Err(GrowthError::MeasurementTimeout)));
    let refused = growth(false).grow(NOW, 2 * NOW);
    assert!(matches!(refused, Err(GrowthError::Timeout)));
    assert_eq!(file.metadata().unwrap().len(), NOW);
}
