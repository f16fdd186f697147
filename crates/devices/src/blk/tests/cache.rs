//! When a write counts as done, and the driver's change of that.

use super::*;

/// The operations that a write and a flush start, of a driver with
/// `features`, after it set the cache mode.
fn asked_by(features: u64, mode: Option<u64>) -> Vec<Operation> {
    let (machine, gate) = held(settings());
    let driver = Driver::new(&machine);
    let mut rings = driver.start(features, 64);
    if let Some(mode) = mode {
        driver.write_memory(driver.places.device + 32, 1, mode);
    }
    gate.lock().unwrap().open = 2;
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(1, 2, 512)), 0);
    assert_eq!(request(&machine, &mut rings[0], Wanted::new(4, 0, 0)), 0);
    std::mem::take(&mut gate.lock().unwrap().started)
}

#[test]
fn writes_are_durable_as_the_cache_mode_and_the_driver_say() {
    let write = |durability| Operation::Write {
        offset: 1024,
        durability,
    };
    let cached = [write(Durability::Cached), Operation::Flush];
    let durable = [write(Durability::Durable), Operation::Flush];
    assert_eq!(asked_by(FEATURES, None), cached);
    assert_eq!(asked_by(FEATURES, Some(1)), cached);
    assert_eq!(asked_by(FEATURES, Some(0)), durable);
    assert_eq!(asked_by(1 << 32, None), durable, "no flush known");
}

#[test]
fn the_cache_mode_reads_back_and_is_reset() {
    let file = file();
    let machine = machine_with(settings(), &file, sync_engine(&file));
    let driver = Driver::new(&machine);
    let config = driver.places.device + 32;
    assert_eq!(driver.read_memory(config, 1), 1);
    driver.start(FEATURES, 64);
    driver.write_memory(config, 1, 0);
    assert_eq!(driver.read_memory(config, 1), 0);
    driver.write_memory(config, 1, 7);
    driver.write_memory(config, 2, 1);
    assert_eq!(driver.read_memory(config, 1), 0, "not a mode");
    driver.reset();
    assert_eq!(driver.read_memory(config, 1), 1, "as it was");
    driver.write_memory(config, 1, 0);
    driver.reset();
    assert_eq!(driver.read_memory(config, 1), 1, "before DRIVER_OK too");
}

#[test]
fn what_is_in_flight_when_the_driver_chooses_write_through_is_flushed() {
    let (machine, gate) = held(settings());
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    Wanted::new(1, 2, 512).offer(&machine, &mut rings[0]);
    let _ = machine.io(|device| device.notified(0));
    driver.write_memory(driver.places.device + 32, 1, 0);
    gate.lock().unwrap().open = 1;
    let _ = machine.io(|device| device.backend_ready());
    assert_eq!(rings[0].used_index(), 0, "it is not durable yet");
    gate.lock().unwrap().open = 1;
    serve(&machine, &mut rings[0], 0, 1);
    assert_eq!(get(&machine.memory, STATUS, 1), [0]);
    let asked = std::mem::take(&mut gate.lock().unwrap().started);
    let cached = Operation::Write {
        offset: 1024,
        durability: Durability::Cached,
    };
    assert_eq!(asked, [cached, Operation::Flush]);
    assert_eq!(machine.counter("durable_writes"), 1);
}

#[test]
fn zeros_are_durable_where_writes_are() {
    for (mode, flushes) in [(1, 0), (0, 1)] {
        let (machine, gate) = held(settings());
        let driver = Driver::new(&machine);
        let mut rings = driver.start(FEATURES, 64);
        driver.write_memory(driver.places.device + 32, 1, mode);
        put(&machine.memory, DATA, &[8, 0, 0, 0, 0, 0, 0, 0, 8]);
        gate.lock().unwrap().open = 2;
        let zeros = Wanted::new(13, 0, 16);
        assert_eq!(request(&machine, &mut rings[0], zeros), 0);
        let asked = std::mem::take(&mut gate.lock().unwrap().started);
        assert!(matches!(asked[0], Operation::Allocate { .. }), "{asked:?}");
        assert_eq!(asked.len(), 1 + flushes, "{asked:?}");
        assert_eq!(machine.counter("durable_writes"), flushes as u64);
    }
}
