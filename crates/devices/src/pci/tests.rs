//! The bus as a guest sees it, with a virtio-rng function on it.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tare_abi::ports::{PCI_ADDRESS, PCI_DATA};

use super::{AddError, MemoryWindow, PciAddress, PciBus, PciFunction};
use crate::MsiMessage;
use crate::rng::{OsEntropy, Rng};
use crate::virtio::driver::{Driver, MockMachine, take};

fn machine() -> MockMachine<Rng<OsEntropy>> {
    MockMachine::new(Rng::new(OsEntropy))
}

struct Plain(Option<u32>);

impl PciFunction for Plain {
    fn bar_size(&self) -> Option<u32> {
        self.0
    }
    fn memory_enabled(&self) -> bool {
        true
    }
    fn bar_read(&mut self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }
    fn config_read(&mut self, _offset: u16, data: &mut [u8]) {
        data.fill(0);
    }
    fn config_write(&mut self, _offset: u16, _data: &[u8]) {}
}

fn function(bar: Option<u32>) -> Arc<Mutex<Plain>> {
    Arc::new(Mutex::new(Plain(bar)))
}

#[test]
fn a_full_bus_takes_no_more() {
    let mut bus = PciBus::new(MemoryWindow { start: 0, size: 0 });
    for device in 1..32 {
        assert_eq!(bus.add(function(None)).unwrap(), PciAddress { device });
    }
    assert!(matches!(bus.add(function(None)), Err(AddError::BusFull)));
}

#[test]
fn bars_are_aligned_and_stay_in_the_window() {
    let start = 0xc000_1000;
    let size = 0x8000;
    let mut bus = PciBus::new(MemoryWindow { start, size });
    bus.add(function(Some(0x4000))).unwrap();
    let full = bus.add(function(Some(0x4000)));
    assert!(matches!(full, Err(AddError::WindowFull { size: 0x4000 })));
    for (address, answered) in [
        (0xc000_4000, true),
        (0xc000_7ffc, true),
        (0xc000_7ffd, false),
        (0xc000_3fff, false),
    ] {
        let mut word = [0xff; 4];
        bus.memory_read(address, &mut word);
        assert_eq!(word == [0; 4], answered, "{address:#x}");
    }
}

#[test]
fn identities_are_found_by_ports_and_by_memory() {
    let machine = machine();
    let driver = Driver::new(&machine);
    assert_eq!(driver.read_config32(0), 0x1044_1af4);
    let mut word = [0; 4];
    machine.bus.ecam_read(1 << 15, &mut word);
    assert_eq!(word, 0x1044_1af4u32.to_le_bytes());
    machine.bus.ecam_read(0, &mut word);
    assert_eq!(word, 0x0008_1b36u32.to_le_bytes(), "host bridge");
    machine.bus.ecam_read((1 << 15) + 256, &mut word);
    assert_eq!(word, [0; 4], "no extended capabilities");
}

#[test]
fn absent_functions_read_as_ones() {
    let machine = machine();
    for place in [2 << 15, (1 << 15) | (1 << 12), 1 << 20, u64::MAX - 4095] {
        let mut word = [0; 4];
        machine.bus.ecam_read(place, &mut word);
        assert_eq!(word, [0xff; 4], "{place:#x}");
    }
    assert_eq!(machine.bus.counters().unclaimed.get(), 4);
}

#[test]
fn the_address_port_reads_back_and_needs_its_enable_bit() {
    let machine = machine();
    let mut word = [0; 4];
    machine
        .bus
        .port_write(PCI_ADDRESS, &0x0000_0800u32.to_le_bytes());
    machine.bus.port_read(PCI_ADDRESS, &mut word);
    assert_eq!(word, 0x0000_0800u32.to_le_bytes());
    machine.bus.port_read(PCI_DATA, &mut word);
    assert_eq!(word, [0xff; 4]);
    assert!(!PciBus::claims_port(PCI_ADDRESS + 1, 1), "the reset port");
    assert!(!PciBus::claims_port(PCI_DATA + 2, 4));
}

#[test]
fn bytes_and_words_reach_the_same_registers_as_dwords() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let whole = driver.read_config32(8).to_le_bytes();
    let bytes = [8, 9, 10, 11].map(|at| driver.read_config8(at));
    assert_eq!(bytes, whole);
    assert_eq!(driver.read_config16(10).to_le_bytes(), whole[2..]);
}

#[test]
fn sizing_a_bar_gives_its_size_and_its_address_back() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let assigned = driver.read_config32(0x10);
    driver.write_config(0x10, &[0xff; 4]);
    assert_eq!(driver.read_config32(0x10), !0x7fff);
    driver.write_config(0x10, &assigned.to_le_bytes());
    assert_eq!(driver.read_config32(0x10), assigned);
    for byte in 0x10..0x14 {
        driver.write_config(byte, &[0xff]);
    }
    assert_eq!(driver.read_config32(0x10), !0x7fff, "byte by byte");
    assert_eq!(machine.counter("bar_moves_refused"), 0);
    for absent in (0x14..0x28).step_by(4) {
        driver.write_config(absent, &[0xff; 4]);
        assert_eq!(driver.read_config32(absent), 0);
    }
}

#[test]
fn a_bar_does_not_move_and_goes_on_working() {
    let machine = machine();
    let driver = Driver::new(&machine);
    let assigned = driver.read_config32(0x10);
    driver.write_config(0x10, &0xd000_0000u32.to_le_bytes());
    assert_eq!(driver.read_config32(0x10), assigned);
    assert_eq!(machine.counter("bar_moves_refused"), 1);
    assert_eq!(driver.queue_count(), 1);
}

#[test]
fn without_memory_decoding_a_bar_is_not_there() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.write_config(4, &0u16.to_le_bytes());
    assert_eq!(driver.queue_count(), 0xffff);
    driver.write_config(4, &2u16.to_le_bytes());
    assert_eq!(driver.queue_count(), 1);
}

#[test]
fn a_route_is_set_once_before_its_first_signal() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.enable_msix();
    let message = MsiMessage {
        address: 0xfee0_0000,
        data: 0x40,
    };
    let routes = take(&machine.recorder.routes);
    assert_eq!(routes[0], (0, Some(message)));
    assert_eq!(routes.len(), 2);
    driver.mask_vector(0, 1);
    driver.mask_vector(0, 0);
    assert_eq!(take(&machine.recorder.routes), [], "masking moves no route");
    driver.write_config(driver.places.msix + 2, &0u16.to_le_bytes());
    assert_eq!(take(&machine.recorder.routes), [(0, None), (1, None)]);
}

#[test]
fn a_masked_signal_waits_and_shows_in_the_pending_bits() {
    let machine = machine();
    let driver = Driver::new(&machine);
    for masked in ["vector", "function"] {
        let mut rings = driver.start(1 << 32, 8);
        match masked {
            "vector" => driver.mask_vector(0, 1),
            _ => driver.write_config(driver.places.msix + 2, &0xc000u16.to_le_bytes()),
        }
        take(&machine.recorder.signals);
        rings[0].offer(&[(0x8_0000, 16, 2)]);
        let _ = machine.io(|device| device.notified(0));
        assert_eq!(take(&machine.recorder.signals), [0u16; 0], "{masked}");
        assert_eq!(driver.read_memory(driver.places.pba, 4), 1, "{masked}");
        match masked {
            "vector" => driver.mask_vector(0, 0),
            _ => driver.write_config(driver.places.msix + 2, &0x8000u16.to_le_bytes()),
        }
        assert_eq!(take(&machine.recorder.signals), [0], "{masked}");
        assert_eq!(driver.read_memory(driver.places.pba, 4), 0, "{masked}");
    }
}

#[test]
fn reserved_bits_of_the_table_stay_as_they_are() {
    let machine = machine();
    let driver = Driver::new(&machine);
    driver.write_memory(driver.places.table, 8, u64::MAX);
    driver.write_memory(driver.places.table + 8, 8, u64::MAX);
    assert_eq!(driver.read_memory(driver.places.table, 8), u64::MAX - 3);
    let control = driver.read_memory(driver.places.table + 12, 4);
    assert_eq!(control, 1);
}

proptest! {
    #[test]
    fn any_bytes_on_the_bus_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzz_entry::pci_config(&bytes);
    }
}
