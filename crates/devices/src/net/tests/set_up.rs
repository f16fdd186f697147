//! Features, configuration, and a link that fails.

use super::*;

#[test]
fn offloads_are_offered_as_the_link_has_them() {
    let offered = |offload| Driver::new(&machine(offload)).offered();
    let none = offered(LinkOffload::None);
    let trusted = offered(LinkOffload::TrustedRx);
    let tap = offered(LinkOffload::VnetHeader);
    let always = CSUM | MRG_RXBUF | 1 << 3 | 1 << 5 | 1 << 16;
    assert_eq!(none & always, always);
    assert_eq!(none & (GUEST_CSUM | HOST_TSO4 | GUEST_TSO4), 0);
    assert_eq!(trusted, none | GUEST_CSUM);
    assert_eq!(tap, trusted | HOST_TSO4 | GUEST_TSO4 | 1 << 12 | 1 << 8);
}

#[test]
fn segmentation_without_checksums_is_refused() {
    let machine = machine(LinkOffload::VnetHeader);
    let driver = Driver::new(&machine);
    for features in [HOST_TSO4, GUEST_TSO4 | CSUM, HOST_TSO4 | GUEST_CSUM] {
        driver.negotiate(VERSION_1 | features);
        assert_eq!(driver.status() & 8, 0, "{features:#x}");
    }
    driver.negotiate(VERSION_1 | CSUM | HOST_TSO4);
    assert_eq!(driver.status() & 8, 8);
}

#[test]
fn configuration_shows_address_link_and_mtu() {
    let machine = machine(LinkOffload::None);
    let driver = Driver::new(&machine);
    let at = driver.places.device;
    assert_eq!(driver.read_memory(at, 8), 0x0001_0100_0000_0002);
    assert_eq!(driver.read_memory(at + 10, 2), 1500);
    assert_eq!(driver.read_memory(at + 12, 8), 0, "nothing beyond");
    assert_eq!(driver.read_memory(at + 0xfff, 1), 0);
    driver.write_memory(at, 4, u64::MAX);
    assert_eq!(driver.read_memory(at, 1), 2, "read-only");
}

#[test]
fn the_link_learns_what_the_driver_accepts_before_the_first_frame() {
    let machine = machine(LinkOffload::VnetHeader);
    for (features, csum, tso4) in [
        (0, false, false),
        (GUEST_CSUM, true, false),
        (GUEST_CSUM | GUEST_TSO4, true, true),
    ] {
        start(&machine, features);
        let accepted = RxOffload {
            csum,
            tso4,
            tso6: false,
        };
        assert_eq!(link(&machine, |link| link.accepted.take()), Some(accepted));
    }
}

#[test]
fn a_link_that_fails_goes_down_for_the_guest() {
    for direction in [RX, TX] {
        let machine = machine(LinkOffload::None);
        let (mut rx, mut tx) = start(&machine, 0);
        offer(&mut rx, 1, 2048);
        take(&machine.recorder.signals);
        link(&machine, |link| link.fails = true);
        if direction == TX {
            send(&machine, &mut tx, NetHeader::default(), &frame(0, 60));
        }
        let _ = notified(&machine, direction);
        let driver = Driver::new(&machine);
        assert_eq!(driver.read_memory(driver.places.device + 6, 2), 0);
        assert!(
            take(&machine.recorder.signals).contains(&2),
            "configuration"
        );
        assert_eq!(interest(&machine), Interest::default());
        assert_eq!(machine.counter("link_errors"), 1);
        assert_eq!(driver.read_common(0x15, 1), 1, "configuration generation");
    }
}

#[test]
fn frames_for_a_link_that_is_down_are_counted_and_given_back() {
    let machine = machine(LinkOffload::None);
    let (_rx, mut tx) = start(&machine, 0);
    link(&machine, |link| link.fails = true);
    for _ in 0..3 {
        send(&machine, &mut tx, NetHeader::default(), &frame(0, 60));
        let _ = notified(&machine, TX);
    }
    assert_eq!(tx.used_index(), 3);
    assert_eq!(machine.counter("tx_dropped"), 3);
    assert_eq!(
        machine.counter("link_errors"),
        1,
        "the link is not tried again"
    );
}

#[test]
fn an_inactive_device_waits_for_nothing() {
    let machine = machine(LinkOffload::None);
    assert_eq!(interest(&machine), Interest::default());
    start(&machine, 0);
    assert!(interest(&machine).readable || machine.counter("rx_backpressure") == 0);
    Driver::new(&machine).reset();
    assert_eq!(interest(&machine), Interest::default());
    assert_eq!(ready(&machine), Progress::Done);
}

proptest! {
    #[test]
    fn any_guest_over_any_link_is_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..1200),
    ) {
        crate::fuzz_entry::virtio_net(&bytes);
    }
}
