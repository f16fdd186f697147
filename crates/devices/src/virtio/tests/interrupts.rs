//! When a driver is interrupted, and when the device wants notifications.

use super::*;

const NO_SIGNAL: [u16; 0] = [];

fn signals(machine: &TestMachine) -> Vec<u16> {
    take(&machine.recorder.signals)
}

fn offer_many(ring: &mut Ring<'_>, count: u16) {
    for _ in 0..count {
        ring.offer(&[(BUFFERS, 8, WRITE)]);
    }
}

#[test]
fn one_interrupt_stands_for_a_batch() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1, 16);
    offer_many(&mut rings[0], 5);
    assert_eq!(notified(&machine), Progress::Done);
    assert_eq!(signals(&machine), [0]);
    assert_eq!(machine.counter("interrupts"), 1);
    let _ = notified(&machine);
    assert_eq!(signals(&machine), NO_SIGNAL, "nothing new");
}

#[test]
fn the_available_rings_flag_suppresses_interrupts() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1, 16);
    rings[0].set_available_flags(1);
    assert!(answers(&machine, &mut rings[0]));
    assert_eq!(signals(&machine), NO_SIGNAL);
    assert_eq!(machine.counter("interrupts_suppressed"), 1);
    rings[0].set_available_flags(0);
    assert!(answers(&machine, &mut rings[0]));
    assert_eq!(signals(&machine), [0]);
}

#[test]
fn the_used_event_says_at_which_entry_to_interrupt() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1 | EVENT_IDX, 16);
    let ring = &mut rings[0];
    ring.set_used_event(2);
    for expected in [&NO_SIGNAL[..], &[], &[0], &[]] {
        assert!(answers(&machine, ring));
        assert_eq!(signals(&machine), expected, "used {}", ring.used_index());
    }
    ring.set_used_event(6);
    offer_many(ring, 5);
    let _ = notified(&machine);
    assert_eq!(signals(&machine), [0], "entry 6 is within the batch");
}

#[test]
fn the_flag_does_not_count_with_event_indices() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1 | EVENT_IDX, 16);
    rings[0].set_available_flags(1);
    assert!(answers(&machine, &mut rings[0]));
    assert_eq!(signals(&machine), [0]);
}

#[test]
fn interrupts_follow_the_indices_around_their_end() {
    let machine = machine();
    let mut rings = Driver::new(&machine).start(VERSION_1 | EVENT_IDX, 2);
    let ring = &mut rings[0];
    for turn in 0..=0x1_0010u32 {
        ring.set_used_event(turn as u16);
        assert!(answers(&machine, ring), "{turn:#x}");
        assert_eq!(signals(&machine), [0], "{turn:#x}");
    }
}

#[test]
fn an_idle_device_asks_for_the_next_notification() {
    for features in [VERSION_1, VERSION_1 | EVENT_IDX] {
        let machine = machine();
        let mut rings = Driver::new(&machine).start(features, 16);
        let ring = &mut rings[0];
        for _ in 0..40 {
            let before = ring.available_index;
            offer_many(ring, 3);
            assert!(ring.notification_wanted(before));
            let _ = notified(&machine);
        }
    }
}

#[test]
fn a_device_with_more_to_do_wants_no_notifications() {
    for features in [VERSION_1, VERSION_1 | EVENT_IDX] {
        let machine = machine();
        let mut rings = Driver::new(&machine).start(features, 64);
        let ring = &mut rings[0];
        offer_many(ring, 40);
        assert_eq!(notified(&machine), Progress::More);
        let before = ring.available_index;
        offer_many(ring, 1);
        assert!(!ring.notification_wanted(before));
        let told = machine.counter("notifications");
        while notified(&machine) == Progress::More {}
        assert_eq!(ring.used_index(), 41);
        assert_eq!(
            machine.counter("notifications"),
            told,
            "going on is not a notification"
        );
        let _ = notified(&machine);
        assert_eq!(machine.counter("notifications"), told + 1);
    }
}

#[test]
fn a_queue_without_vector_sets_the_isr_only() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.negotiate(VERSION_1);
    let mut ring = driver.add_queue(0, 16, VERSION_1);
    driver.add_status(DRIVER_OK);
    assert!(answers(&machine, &mut ring), "MSI-X is off");
    assert_eq!(signals(&machine), NO_SIGNAL);
    assert_eq!(machine.counter("interrupts"), 0);
    assert_eq!(driver.read_memory(driver.places.isr, 1), 1);
    assert_eq!(
        driver.read_memory(driver.places.isr, 1),
        0,
        "reading clears it"
    );
}
