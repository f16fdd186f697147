//! ACPI tables: what the machine has, for guests that look there.
//!
//! Hardware-reduced: no power management timer, no PIT, no 8259 behind it;
//! reset and power-off by a register each, which both the hal and Linux use. (Without
//! that flag Linux insists on a working PIT.)
//! References: ACPI 6.5, chapters 5 and 6; PCI Firmware Specification 3.3, 4.1.

mod dsdt;
mod fixed;
mod oem;

use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use acpi_tables::{Aml, AmlSink};
use tare_abi::layout::{ACPI_END, RSDP};

use self::oem::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::error::LoadError;

/// Tables begin at multiples of this.
const ALIGN: usize = 16;

/// All tables of a machine with `cpus` processors, to be put at [`RSDP`].
pub fn tables(cpus: u8) -> Result<Vec<u8>, LoadError> {
    let mut area = Area::default();
    let rsdp_room = area.reserve(Rsdp::len());
    let dsdt = area.add(&dsdt::dsdt(cpus));
    let tables = [
        area.add(&fixed::fadt(dsdt)),
        area.add(&fixed::madt(cpus)),
        area.add(&fixed::mcfg()),
    ];
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    tables.into_iter().for_each(|table| xsdt.add_entry(table));
    let xsdt = area.add(&xsdt);
    area.fill(rsdp_room, &Rsdp::new(OEM_ID, xsdt));
    area.finish()
}

/// Tables one after another, with the guest address of each.
#[derive(Default)]
struct Area {
    bytes: Vec<u8>,
}

impl Area {
    fn add(&mut self, table: &dyn Aml) -> u64 {
        let start = self.reserve(0);
        table.to_aml_bytes(&mut self.bytes);
        RSDP + start as u64
    }

    fn reserve(&mut self, count: usize) -> usize {
        let start = self.bytes.len().next_multiple_of(ALIGN);
        self.bytes.resize(start + count, 0);
        start
    }

    fn fill(&mut self, start: usize, table: &dyn Aml) {
        let mut filled = Vec::new();
        filled.vec(&self.bytes[..start]);
        table.to_aml_bytes(&mut filled);
        filled.vec(&self.bytes[filled.len()..]);
        self.bytes = filled;
    }

    fn finish(self) -> Result<Vec<u8>, LoadError> {
        let (bytes, room) = (self.bytes.len() as u64, ACPI_END - RSDP);
        if bytes > room {
            return Err(LoadError::Acpi { bytes, room });
        }
        Ok(self.bytes)
    }
}
