//! Registers: initialisation, negotiation, queue set-up, odd accesses.

use super::*;

#[test]
fn the_whole_initialisation_leads_to_a_device_that_works() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let mut rings = driver.start(VERSION_1 | EVENT_IDX | INDIRECT_DESC, 16);
    assert_eq!(driver.status(), STARTED);
    assert_eq!(
        take(&machine.recorder.kicks),
        [0],
        "the I/O thread gets a kick"
    );
    assert!(answers(&machine, &mut rings[0]));
    assert_eq!(get(&machine.memory, BUFFERS, 17)[15..], [0x77, 0]);
    assert_eq!(machine.counter("invalid_accesses"), 0);
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let packed = 1 << 34;
    for features in [0, EVENT_IDX, VERSION_1 | packed, VERSION_1 | 1, u64::MAX] {
        driver.negotiate(features);
        assert_eq!(driver.status() & FEATURES_OK, 0, "{features:#x}");
    }
    assert_eq!(machine.counter("features_refused"), 5);
    driver.negotiate(VERSION_1);
    assert_ne!(driver.status() & FEATURES_OK, 0);
}

#[test]
fn features_beyond_the_64_bits_are_refused() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.write_common(0x14, 1, 3);
    driver.write_common(0x08, 4, 1);
    driver.write_common(0x0c, 4, 1);
    driver.write_common(0x08, 4, 7);
    driver.write_common(0x0c, 4, 1);
    driver.add_status(FEATURES_OK);
    assert_eq!(driver.status() & FEATURES_OK, 0);
    driver.write_common(0x00, 4, 2);
    assert_eq!(driver.read_common(0x04, 4), 0, "nothing is offered there");
}

#[test]
fn features_are_fixed_once_they_are_agreed() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.negotiate(VERSION_1);
    driver.write_common(0x08, 4, 0);
    driver.write_common(0x0c, 4, 0xffff_ffff);
    assert_eq!(driver.read_common(0x0c, 4), 0);
    assert_eq!(machine.counter("invalid_accesses"), 1);
}

#[test]
fn steps_out_of_order_change_nothing() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for status in [DRIVER_OK, 2, FEATURES_OK | 1, NEEDS_RESET | 1] {
        driver.write_common(0x14, 1, status.into());
        assert_eq!(driver.status(), 0, "{status:#x}");
    }
    driver.negotiate(VERSION_1);
    driver.write_common(0x14, 1, 1);
    assert_eq!(driver.status(), 0x0b, "bits are not taken back");
    assert_eq!(machine.counter("invalid_accesses"), 5);
}

#[test]
fn a_failed_driver_is_not_served_until_it_resets() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let mut rings = driver.start(VERSION_1, 16);
    driver.add_status(FAILED);
    assert!(!answers(&machine, &mut rings[0]));
    let mut rings = driver.start(VERSION_1, 16);
    assert!(answers(&machine, &mut rings[0]));
}

#[test]
fn a_queue_that_cannot_work_is_refused_when_enabled() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let end = MEMORY_LEN as u64;
    let good = (16, 0x1000, 0x2000, 0x3000);
    for (size, descriptors, available, used) in [
        (0, good.1, good.2, good.3),
        (3, good.1, good.2, good.3),
        (128, good.1, good.2, good.3),
        (0xffff, good.1, good.2, good.3),
        (16, 0x1008, good.2, good.3),
        (16, good.1, 0x2001, good.3),
        (16, good.1, good.2, 0x3002),
        (16, end, good.2, good.3),
        (16, end - 0x10, good.2, good.3),
        (16, good.1, end - 4, good.3),
        (16, good.1, good.2, end - 8),
        (16, u64::MAX - 15, good.2, good.3),
        (16, good.1, u64::MAX - 1, good.3),
        (16, good.1, good.2, u64::MAX - 3),
        (16, good.1, 0, good.3),
    ] {
        driver.negotiate(VERSION_1);
        driver.write_common(0x18, 2, size);
        for (at, address) in [(0x20, descriptors), (0x28, available), (0x30, used)] {
            driver.write_common(at, 8, address);
        }
        let before = machine.counter("malformed");
        driver.write_common(0x1c, 2, 1);
        let what = format!("{size} {descriptors:#x} {available:#x} {used:#x}");
        assert_eq!(driver.read_common(0x1c, 2), 0, "{what}");
        assert_ne!(driver.status() & NEEDS_RESET, 0, "{what}");
        assert_eq!(machine.counter("malformed"), before + 1, "{what}");
    }
    let mut rings = driver.start(VERSION_1, 16);
    assert!(answers(&machine, &mut rings[0]), "reset cures it");
}

#[test]
fn an_enabled_queue_does_not_change() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let mut rings = driver.start(VERSION_1, 16);
    for (at, len) in [(0x18, 2), (0x20, 4), (0x28, 8), (0x34, 4), (0x1c, 2)] {
        driver.write_common(at, len, 0);
    }
    assert_eq!(machine.counter("invalid_accesses"), 5);
    assert!(answers(&machine, &mut rings[0]));
}

#[test]
fn a_queue_that_was_not_enabled_does_nothing() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.negotiate(VERSION_1);
    driver.add_status(DRIVER_OK);
    assert_eq!(notified(&machine), Progress::Done);
    driver.write_common(0x20, 8, 0x1000);
    driver.write_common(0x28, 8, 0x2000);
    driver.write_common(0x30, 8, 0x3000);
    driver.write_common(0x1c, 2, 1);
    assert_eq!(driver.read_common(0x1c, 2), 0, "too late");
    assert_eq!(driver.status(), STARTED);
}

#[test]
fn queues_that_do_not_exist_read_as_zero() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for queue in [1, 2, 0xffff] {
        driver.write_common(0x16, 2, queue);
        assert_eq!(driver.read_common(0x18, 2), 0);
        assert_eq!(driver.read_common(0x1a, 2), u64::from(NO_VECTOR));
        driver.write_common(0x18, 2, 16);
        driver.write_common(0x1c, 2, 1);
        assert_eq!(driver.read_common(0x1c, 2), 0);
    }
    assert_eq!(machine.counter("invalid_accesses"), 6);
}

#[test]
fn vectors_that_do_not_exist_become_none() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for at in [0x10, 0x1a] {
        for (written, read) in [(1, 1), (2, NO_VECTOR), (0xfffe, NO_VECTOR), (0, 0)] {
            driver.write_common(at, 2, written);
            assert_eq!(
                driver.read_common(at, 2),
                u64::from(read),
                "{at:#x} {written}"
            );
        }
    }
}

#[test]
fn addresses_are_written_whole_or_by_halves() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for at in [0x20, 0x28, 0x30] {
        driver.write_common(at, 8, 0x1122_3344_5566_7788);
        driver.write_common(at + 4, 4, 0xaabb_ccdd);
        assert_eq!(driver.read_common(at, 8), 0xaabb_ccdd_5566_7788);
        assert_eq!(driver.read_common(at, 4), 0x5566_7788);
    }
}

#[test]
fn accesses_of_another_width_are_counted_and_do_nothing() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for (at, len) in [
        (0x14, 4),
        (0x16, 1),
        (0x00, 8),
        (0x22, 4),
        (0x24, 8),
        (0x3c, 4),
    ] {
        driver.write_common(at, len, u64::MAX);
        assert_eq!(driver.read_common(at, len), 0, "{at:#x}");
    }
    assert_eq!(machine.counter("invalid_accesses"), 12);
}

#[test]
fn a_notification_by_memory_write_wakes_the_io_thread() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.notify(0);
    assert_eq!(
        take(&machine.recorder.kicks),
        [0u16; 0],
        "not before DRIVER_OK"
    );
    assert_eq!(machine.counter("invalid_accesses"), 1);
    driver.start(VERSION_1, 16);
    take(&machine.recorder.kicks);
    driver.notify(0);
    assert_eq!(take(&machine.recorder.kicks), [0]);
    driver.notify(1);
    assert_eq!(machine.counter("invalid_accesses"), 2);
}

#[test]
fn each_queue_has_its_own_notification_address() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let places = driver.places;
    machine.io(|device| {
        assert_eq!(device.notify_address(0), Some(places.notify));
        assert_eq!(device.notify_address(1), None);
    });
    assert_eq!(places.notify_multiplier, 4);
}

#[test]
fn the_configuration_window_reaches_the_bar() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let window = driver.places.window;
    let access = |offset: u32, len: u32| {
        driver.write_config(window + 4, &[0]);
        driver.write_config(window + 8, &offset.to_le_bytes());
        driver.write_config(window + 12, &len.to_le_bytes());
    };
    access(0x14, 1);
    driver.write_config(window + 16, &[3]);
    assert_eq!(driver.status(), 3);
    assert_eq!(driver.read_config8(window + 16), 3);
    for (offset, len) in [(0x14, 3), (0x8000, 4), (0x15, 2), (u32::MAX, 4), (0, 0)] {
        access(offset, len);
        driver.write_config(window + 16, &[0; 4]);
        assert_eq!(driver.status(), 3, "{offset:#x} {len}");
    }
}

#[test]
fn a_reset_forgets_everything_that_was_set_up() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let mut rings = driver.start(VERSION_1, 16);
    rings[0].offer(&[(BUFFERS, 16, WRITE)]);
    driver.reset();
    let _ = notified(&machine);
    assert_eq!(rings[0].used_index(), 0, "nothing is served after a reset");
    assert_eq!(driver.status(), 0);
    for (at, len, value) in [(0x20, 8, 0), (0x18, 2, 64), (0x1a, 2, 0xffff), (0x1c, 2, 0)] {
        assert_eq!(driver.read_common(at, len), value, "{at:#x}");
    }
    let mut rings = driver.start(VERSION_1, 8);
    assert!(answers(&machine, &mut rings[0]), "indices begin at zero");
    assert_eq!(machine.counter("resets"), 3);
}

proptest! {
    #[test]
    fn any_program_of_accesses_is_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..800),
    ) {
        crate::fuzz_entry::rng(&bytes);
    }
}
