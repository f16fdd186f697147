//! DSDT: the PCI root, the serial port, the processors, and the sleep state
//! that means power-off.

use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Memory32Fixed, Name,
    Package, Path, ResourceTemplate, Scope, ZERO,
};
use acpi_tables::sdt::Sdt;
use acpi_tables::{Aml, AmlSink};
use tare_abi::layout::{PCI_ECAM_SIZE, PCI_ECAM_START, PCI_MMIO_SIZE, PCI_MMIO_START};
use tare_abi::ports::{COM1, COM1_IRQ, PCI_ADDRESS, SLEEP_S5};

use super::oem::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};

const HEADER_BYTES: u32 = 36;
const REVISION: u8 = 6;
/// PCI configuration mechanism #1: address and data, four ports each.
const PCI_PORTS: u8 = 8;
const COM_PORTS: u8 = 8;

pub(super) fn dsdt(cpus: u8) -> Sdt {
    let mut body = Vec::new();
    power_off(&mut body);
    pci_root(&mut body);
    motherboard(&mut body);
    serial_port(&mut body);
    (0..cpus).for_each(|cpu| processor(cpu, &mut body));
    let mut dsdt = Sdt::new(
        *b"DSDT",
        HEADER_BYTES,
        REVISION,
        OEM_ID,
        OEM_TABLE_ID,
        OEM_REVISION,
    );
    dsdt.append_slice(&body);
    dsdt
}

/// `\_S5`: the SLP_TYP that guests write to the sleep control register.
fn power_off(out: &mut dyn AmlSink) {
    let sleep_type = SLEEP_S5 >> 2 & 7;
    Name::new(
        Path::new("_S5_"),
        &Package::new(vec![&sleep_type, &sleep_type, &ZERO, &ZERO]),
    )
    .to_aml_bytes(out);
}

fn pci_root(out: &mut dyn AmlSink) {
    let last = |start: u64, size: u64| (start + size - 1) as u32;
    let bus = AddressSpace::new_bus_number(0_u16, 0);
    let mechanism = IO::new(PCI_ADDRESS, PCI_ADDRESS, 1, PCI_PORTS);
    let ports_below = AddressSpace::new_io(0_u16, PCI_ADDRESS - 1, None);
    let ports_above = AddressSpace::new_io(PCI_ADDRESS + u16::from(PCI_PORTS), 0xffff, None);
    let memory = AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        PCI_MMIO_START as u32,
        last(PCI_MMIO_START, PCI_MMIO_SIZE),
        None,
    );
    let resources =
        ResourceTemplate::new(vec![&bus, &mechanism, &ports_below, &ports_above, &memory]);
    let root = Device::new(
        Path::new("PCI0"),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0A08")),
            &Name::new(Path::new("_CID"), &EISAName::new("PNP0A03")),
            &Name::new(Path::new("_SEG"), &ZERO),
            &Name::new(Path::new("_BBN"), &ZERO),
            &Name::new(Path::new("_UID"), &ZERO),
            &Name::new(Path::new("_CRS"), &resources),
        ],
    )
    .bytes();
    in_system_bus(&root, out);
}

/// The configuration space by memory must belong to the motherboard, or Linux
/// does not use it.
fn motherboard(out: &mut dyn AmlSink) {
    let ecam = Memory32Fixed::new(true, PCI_ECAM_START as u32, PCI_ECAM_SIZE as u32);
    let resources = ResourceTemplate::new(vec![&ecam]);
    let device = Device::new(
        Path::new("MBRD"),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0C02")),
            &Name::new(Path::new("_UID"), &ZERO),
            &Name::new(Path::new("_CRS"), &resources),
        ],
    )
    .bytes();
    in_system_bus(&device, out);
}

fn serial_port(out: &mut dyn AmlSink) {
    let ports = IO::new(COM1, COM1, 1, COM_PORTS);
    let (consumer, edge, active_low, shared) = (true, true, false, false);
    let line = Interrupt::new(consumer, edge, active_low, shared, COM1_IRQ);
    let resources = ResourceTemplate::new(vec![&line, &ports]);
    let device = Device::new(
        Path::new("COM1"),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0501")),
            &Name::new(Path::new("_UID"), &ZERO),
            &Name::new(Path::new("_DDN"), &"COM1"),
            &Name::new(Path::new("_CRS"), &resources),
        ],
    )
    .bytes();
    in_system_bus(&device, out);
}

/// A processor device; `_UID` is that of its local APIC in the MADT.
fn processor(cpu: u8, out: &mut dyn AmlSink) {
    let device = Device::new(
        Path::new(&format!("C{cpu:03}")),
        vec![
            &Name::new(Path::new("_HID"), &"ACPI0007"),
            &Name::new(Path::new("_UID"), &cpu),
        ],
    )
    .bytes();
    in_system_bus(&device, out);
}

fn in_system_bus(device: &[u8], out: &mut dyn AmlSink) {
    out.vec(&Scope::raw(Path::new("\\_SB_"), device.to_vec()));
}

/// An object as bytes.
trait Bytes {
    fn bytes(&self) -> Vec<u8>;
}

impl<T: Aml> Bytes for T {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.to_aml_bytes(&mut bytes);
        bytes
    }
}
