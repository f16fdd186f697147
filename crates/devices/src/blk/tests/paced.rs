//! A disk of a given latency: nothing ends early, no request waits for another, and
//! letting the disk go waits for nothing.

use std::time::Duration;

use super::*;

const LATENCY: Duration = Duration::from_millis(5);
const LATENCY_NS: u64 = 5_000_000;

fn machine(clock: &TestClock) -> MockMachine<Blk> {
    let file = file();
    let engine = paced(sync_engine(&file), LATENCY, Box::new(clock.clone()));
    let disk = disk(&file, Access::ReadWrite);
    MockMachine::new(Blk::new(settings(), disk, engine, Box::new(clock.clone())))
}

fn read(slot: u64) -> Wanted {
    Wanted {
        data: DATA + slot * 0x1000,
        status: STATUS + slot * 0x20,
        ..Wanted::new(0, slot, 512)
    }
}

fn at(clock: &TestClock, machine: &MockMachine<Blk>, now_ns: u64) {
    clock.0.store(now_ns, Ordering::Relaxed);
    machine.io(|device| device.deadline_passed());
}

#[test]
fn a_request_takes_its_time_and_no_longer() {
    let clock = TestClock::default();
    let machine = machine(&clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    let ring = &mut rings[0];
    read(0).offer(&machine, ring);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(ring.take_used(), None);
    assert_eq!(machine.io(|device| device.deadline_ns()), Some(LATENCY_NS));
    at(&clock, &machine, LATENCY_NS - 1);
    assert_eq!(ring.take_used(), None);
    at(&clock, &machine, LATENCY_NS);
    assert!(ring.take_used().is_some());
    assert_eq!(get(&machine.memory, STATUS, 1), [0]);
    assert_eq!(machine.io(|device| device.deadline_ns()), None);
}

#[test]
fn requests_do_not_wait_for_each_other() {
    let clock = TestClock::default();
    let machine = machine(&clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 64);
    let ring = &mut rings[0];
    for slot in 0..3 {
        clock.0.store(slot * 1_000_000, Ordering::Relaxed);
        read(slot).offer(&machine, ring);
        let _ = machine.io(|device| device.notified(0));
    }
    for slot in 0..3 {
        at(&clock, &machine, LATENCY_NS + slot * 1_000_000);
        assert!(ring.take_used().is_some(), "{slot}");
        assert_eq!(ring.take_used(), None, "{slot}");
    }
}

#[test]
fn letting_the_disk_go_does_not_wait_for_the_latency() {
    let clock = TestClock::default();
    let machine = machine(&clock);
    let driver = Driver::new(&machine);
    let buffers = Buffers::new(&Arc::new(machine.memory.clone()));
    let file = file();
    let mut engine = paced(sync_engine(&file), LATENCY, Box::new(clock));
    engine.start(3, Operation::Flush, buffers);
    engine.submit().unwrap();
    assert!(engine.finished().is_none());
    engine.wait();
    assert_eq!(engine.finished().map(|it| it.token), Some(3));
    driver.reset();
}
