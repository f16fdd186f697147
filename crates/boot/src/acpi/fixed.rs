//! FADT, MADT and MCFG.

use acpi_tables::fadt::{FADT, FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::mcfg::MCFG;
use tare_abi::layout::{IOAPIC, LAPIC, PCI_ECAM_START};
use tare_abi::ports::{RESET, RESET_VALUE, SLEEP_CONTROL, SLEEP_STATUS};

use super::oem::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};

/// No VGA, so that the guest does not look for it (IA-PC boot architecture flags).
const BOOT_ARCH_NO_VGA: u16 = 1 << 2;

pub(super) fn fadt(dsdt: u64) -> FADT {
    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::Wbinvd)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless)
        .flag(Flags::HwReducedAcpi);
    fadt.iapc_boot_arch = BOOT_ARCH_NO_VGA.into();
    fadt.reset_reg = byte_port(RESET);
    fadt.reset_value = RESET_VALUE;
    fadt.sleep_control_reg = byte_port(SLEEP_CONTROL);
    fadt.sleep_status_reg = byte_port(SLEEP_STATUS);
    fadt.finalize()
}

fn byte_port(port: u16) -> GAS {
    GAS::new(
        AddressSpace::SystemIo,
        8,
        0,
        AccessSize::ByteAccess,
        u64::from(port),
    )
}

/// Local APICs, whose IDs are their indices, and the IOAPIC. No interrupt
/// source overrides: each ISA line is the IOAPIC pin of its number.
pub(super) fn madt(cpus: u8) -> MADT {
    let lapic = LocalInterruptController::Address(LAPIC as u32);
    let mut madt = MADT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, lapic);
    for cpu in 0..cpus {
        madt.add_structure(ProcessorLocalApic::new(cpu, cpu, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(cpus, IOAPIC as u32, 0));
    madt
}

pub(super) fn mcfg() -> MCFG {
    let mut mcfg = MCFG::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    mcfg.add_ecam(PCI_ECAM_START, 0, 0, 0);
    mcfg
}
