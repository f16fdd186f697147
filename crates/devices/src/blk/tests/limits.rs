//! Limits of requests and bytes: requests wait in the queue, go on at the limit's rate,
//! and at once when the limit goes away.

use tare_policy::limit::DiskLimits;

use super::*;

const IOPS: DiskLimits = DiskLimits {
    iops: 100,
    bytes_per_s: 0,
};

fn machine(limits: DiskLimits, clock: &TestClock) -> MockMachine<Blk> {
    let file = file();
    let disk = disk(&file, Access::ReadWrite);
    let settings = BlkSettings {
        limits,
        ..settings()
    };
    let engine = sync_engine(&file);
    MockMachine::new(Blk::new(settings, disk, engine, Box::new(clock.clone())))
}

fn answered(ring: &mut DriverRing<'_>) -> usize {
    std::iter::from_fn(|| ring.take_used()).count()
}

/// Moves the clock to the device's deadline.
fn at_deadline(machine: &MockMachine<Blk>, clock: &TestClock) -> u64 {
    let due_ns = machine.io(|device| device.deadline_ns()).unwrap();
    clock.0.fetch_max(due_ns, Ordering::Relaxed);
    machine.io(|device| device.deadline_passed());
    due_ns
}

#[test]
fn requests_beyond_the_limit_wait_and_go_on_at_its_rate() {
    let clock = TestClock::default();
    let machine = machine(IOPS, &clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 256);
    let ring = &mut rings[0];
    offer_deep_reads(&machine, ring);
    let _ = machine.io(|device| device.notified(0));
    // The bucket's ten, and the one that begins with something still in it.
    assert_eq!(answered(ring), 11);
    for number in 1..=21 {
        let due_ns = at_deadline(&machine, &clock);
        assert_eq!(due_ns, number * 10_000_000);
        assert_eq!(answered(ring), 1, "{number}");
    }
    // The queue is empty: nothing waits.
    assert_eq!(machine.io(|device| device.deadline_ns()), None);
    assert_eq!(machine.counter("limited"), 21);
}

#[test]
fn bytes_count_also_of_one_large_request() {
    let clock = TestClock::default();
    let limits = DiskLimits {
        iops: 0,
        bytes_per_s: 1 << 20,
    };
    let machine = machine(limits, &clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 256);
    let ring = &mut rings[0];
    // Larger than what the bucket holds (a tenth of a second's).
    Wanted::new(0, 0, 256 << 10).offer(&machine, ring);
    Wanted {
        status: STATUS + 0x40,
        ..Wanted::new(0, 0, 512)
    }
    .offer(&machine, ring);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(answered(ring), 1);
    assert_eq!(at_deadline(&machine, &clock), 150_000_000);
    assert_eq!(answered(ring), 1);
}

#[test]
fn a_limit_that_goes_away_lets_all_go_on() {
    let clock = TestClock::default();
    let machine = machine(IOPS, &clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 256);
    let ring = &mut rings[0];
    offer_deep_reads(&machine, ring);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(answered(ring), 11);
    machine.io(|device| device.device_mut().set_limits(DiskLimits::default()));
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(answered(ring), 21);
    assert_eq!(machine.io(|device| device.deadline_ns()), None);
}

/// An engine without an event does not call back: what a turn leaves of copied requests is
/// due at once.
#[test]
fn copied_requests_that_waited_for_the_limit_come_to_their_end() {
    const REQUESTS: u64 = 80;
    let clock = TestClock::default();
    let file = file();
    let settings = BlkSettings {
        limits: IOPS,
        ..settings()
    };
    let disk = disks::copying_disk(&file);
    let engine = sync_engine(&file);
    let machine = MockMachine::new(Blk::new(settings, disk, engine, Box::new(clock.clone())));
    let mut rings = Driver::new(&machine).start(FEATURES, 256);
    let ring = &mut rings[0];
    for slot in 0..REQUESTS {
        let odd = Wanted {
            data: DATA + 3,
            status: STATUS + slot * 0x20,
            ..Wanted::new(0, 8, 480 << 10)
        };
        odd.offer(&machine, ring);
    }
    let _ = machine.io(|device| device.notified(0));
    machine.io(|device| device.device_mut().set_limits(DiskLimits::default()));
    let mut served = answered(ring);
    while machine.io(|device| device.deadline_ns()).is_some() {
        at_deadline(&machine, &clock);
        served += answered(ring);
    }
    assert_eq!(served as u64, REQUESTS);
}

#[test]
fn a_reset_forgets_who_waits_and_keeps_the_limit() {
    let clock = TestClock::default();
    let machine = machine(IOPS, &clock);
    let driver = Driver::new(&machine);
    let mut rings = driver.start(FEATURES, 256);
    offer_deep_reads(&machine, &mut rings[0]);
    let _ = machine.io(|device| device.notified(0));
    driver.reset();
    assert_eq!(machine.io(|device| device.deadline_ns()), None);
    let mut rings = driver.start(FEATURES, 256);
    offer_deep_reads(&machine, &mut rings[0]);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(answered(&mut rings[0]), 0, "the bucket is empty still");
}
