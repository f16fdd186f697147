//! What ends a run and what does not.

use proptest::prelude::*;
use tare_abi::exit::GuestExit;
use tare_abi::ports;

use super::{Power, PowerEvent};

fn write(port: u16, data: &[u8]) -> (Option<PowerEvent>, u64) {
    let mut power = Power::new();
    let event = power.write(port, data);
    (event, power.counters().snapshot()["malformed"])
}

#[test]
fn each_way_to_end_a_run_works() {
    let exit = GuestExit::Status(3);
    for (port, data, event) in [
        (ports::I8042, vec![ports::I8042_RESET], PowerEvent::Reset),
        (ports::RESET, vec![ports::RESET_VALUE], PowerEvent::Reset),
        (ports::RESET, vec![0x0e], PowerEvent::Reset),
        (
            ports::SLEEP_CONTROL,
            vec![ports::SLEEP_S5],
            PowerEvent::PowerOff,
        ),
        (
            ports::EXIT,
            exit.to_value().to_le_bytes().to_vec(),
            PowerEvent::Exit(exit),
        ),
        (ports::EXIT, vec![0x20], PowerEvent::Exit(GuestExit::Panic)),
    ] {
        assert_eq!(write(port, &data), (Some(event), 0), "{port:#x}");
    }
}

#[test]
fn preparing_a_reset_or_a_wake_up_raises_no_event() {
    for (port, value) in [
        (ports::RESET, 0x02),
        (ports::SLEEP_CONTROL, 0x00),
        (ports::SLEEP_STATUS, 0x80),
    ] {
        assert_eq!(write(port, &[value]), (None, 0), "{port:#x}");
    }
}

#[test]
fn values_without_meaning_are_counted() {
    for (port, data) in [
        (ports::I8042, vec![0xff]),
        (ports::SLEEP_CONTROL, vec![0x20]),
        (ports::EXIT, vec![0xff; 4]),
        (ports::EXIT, vec![0x10, 0, 0, 0, 0]),
    ] {
        assert_eq!(write(port, &data), (None, 1), "{port:#x}");
    }
}

#[test]
fn the_reset_register_reads_back_its_kind() {
    let mut power = Power::new();
    let mut data = [0xff];
    assert_eq!(power.write(ports::RESET, &[0x02]), None);
    power.read(ports::RESET, &mut data);
    assert_eq!(data, [0x02]);
}

#[test]
fn wide_accesses_at_the_reset_port_belong_to_pci() {
    assert!(Power::claims_port(ports::RESET, 1));
    assert!(!Power::claims_port(ports::RESET, 2));
    assert!(!Power::claims_port(ports::PCI_ADDRESS, 4));
}

proptest! {
    #[test]
    fn any_access_is_harmless(accesses: Vec<(bool, u16, Vec<u8>)>) {
        let mut power = Power::new();
        for (write, port, mut data) in accesses {
            if write { let _ = power.write(port, &data); } else { power.read(port, &mut data) }
        }
    }
}
