//! ACPI tables: found by address from the RSDP, summed, and read by iasl.

use std::process::Command;

use tare_abi::layout::{ACPI_END, IOAPIC, LAPIC, MAX_CPUS, PCI_ECAM_START, RSDP};
use tare_boot::acpi::tables;

struct Tables {
    bytes: Vec<u8>,
}

impl Tables {
    fn of(cpus: u8) -> Self {
        Self {
            bytes: tables(cpus).unwrap(),
        }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn at(&self, address: u64) -> &[u8] {
        let start = (address - RSDP) as usize;
        let length = u32::from_le_bytes(self.bytes[start + 4..start + 8].try_into().unwrap());
        &self.bytes[start..start + length as usize]
    }

    fn xsdt(&self) -> &[u8] {
        self.at(self.word(24))
    }

    /// The tables that the XSDT names, and the DSDT.
    fn all(&self) -> Vec<&[u8]> {
        let entries = self.xsdt()[36..].chunks_exact(8);
        let mut all: Vec<_> = entries
            .map(|it| self.at(u64::from_le_bytes(it.try_into().unwrap())))
            .collect();
        let fadt = all.iter().find(|it| it.starts_with(b"FACP")).unwrap();
        all.push(self.at(u64::from_le_bytes(fadt[140..148].try_into().unwrap())));
        all
    }

    fn table(&self, signature: &[u8; 4]) -> &[u8] {
        let all = self.all();
        all.into_iter()
            .find(|it| it.starts_with(signature))
            .unwrap()
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[test]
fn every_table_is_found_and_sums_to_zero() {
    let tables = Tables::of(4);
    assert!(tables.bytes.starts_with(b"RSD PTR "));
    assert_eq!(sum(&tables.bytes[..20]), 0);
    assert_eq!(sum(&tables.bytes[..36]), 0);
    assert_eq!(sum(tables.xsdt()), 0);
    let signatures: Vec<_> = tables.all().iter().map(|it| it[..4].to_vec()).collect();
    assert_eq!(signatures, [b"FACP", b"APIC", b"MCFG", b"DSDT"]);
    for table in tables.all() {
        assert_eq!(sum(table), 0, "{}", String::from_utf8_lossy(&table[..4]));
    }
}

#[test]
fn the_tables_of_the_largest_machine_fit_their_area() {
    assert!((tables(MAX_CPUS).unwrap().len() as u64) < ACPI_END - RSDP);
}

#[test]
fn the_fadt_resets_and_powers_off_by_registers() {
    let tables = Tables::of(1);
    let fadt = tables.table(b"FACP");
    let flags = u32::from_le_bytes(fadt[112..116].try_into().unwrap());
    assert_ne!(flags & 1 << 20, 0, "hardware-reduced");
    assert_ne!(flags & 1 << 10, 0, "reset register");
    // Port space, 8 bits wide, byte access.
    let port = |at: usize| (fadt[at..at + 4].to_vec(), fadt[at + 4]);
    assert_eq!(port(116), (vec![1, 8, 0, 1], 0xf9));
    assert_eq!(fadt[128], 6);
    assert_eq!(port(244), (vec![1, 8, 0, 1], 0x00));
    assert_eq!(port(256), (vec![1, 8, 0, 1], 0x01));
    assert_eq!((fadt[249], fadt[261]), (6, 6), "ports 0x600 and 0x601");
    assert_eq!(fadt[76..80], [0; 4], "no power management timer");
}

#[test]
fn the_madt_lists_every_processor_and_the_ioapic() {
    let tables = Tables::of(3);
    let madt = tables.table(b"APIC");
    assert_eq!(madt[36..40], (LAPIC as u32).to_le_bytes());
    let mut entries = &madt[44..];
    let mut apic_ids = Vec::new();
    let mut ioapics = Vec::new();
    while let [kind, length, ..] = *entries {
        match kind {
            0 => apic_ids.push((entries[2], entries[3], entries[4])),
            1 => ioapics.push(entries[4..8].to_vec()),
            other => panic!("entry {other}"),
        }
        entries = &entries[usize::from(length)..];
    }
    assert_eq!(apic_ids, [(0, 0, 1), (1, 1, 1), (2, 2, 1)]);
    assert_eq!(ioapics, [(IOAPIC as u32).to_le_bytes()]);
}

#[test]
fn the_mcfg_names_the_configuration_space_of_bus_0() {
    let tables = Tables::of(1);
    let mcfg = tables.table(b"MCFG");
    assert_eq!(mcfg[44..52], PCI_ECAM_START.to_le_bytes());
    assert_eq!(mcfg[52..56], [0, 0, 0, 0], "segment 0, buses 0 to 0");
}

#[test]
fn iasl_reads_every_table_and_finds_the_devices() {
    let found = Command::new("iasl").arg("-v").output();
    if !found.is_ok_and(|output| output.status.success()) {
        tare_vmtest::lacks("iasl is missing (Debian: acpica-tools)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tables = Tables::of(2);
    for table in tables.all() {
        let name = String::from_utf8_lossy(&table[..4]).into_owned();
        std::fs::write(dir.path().join(format!("{name}.aml")), table).unwrap();
        let text = disassembled(dir.path(), &name);
        assert!(!text.contains("Invalid"), "{text}");
    }
    let dsdt = disassembled(dir.path(), "DSDT");
    for word in [
        "PNP0A08",
        "PNP0501",
        "PNP0C02",
        "ACPI0007",
        "_S5",
        "C001",
        "0xC0000000",
    ] {
        assert!(dsdt.contains(word), "{word} is missing:\n{dsdt}");
    }
    assert!(!dsdt.contains("C002"), "{dsdt}");
    compile_again(dir.path());
}

fn disassembled(dir: &std::path::Path, name: &str) -> String {
    let output = Command::new("iasl")
        .args(["-d", &format!("{name}.aml")])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::read_to_string(dir.join(format!("{name}.dsl"))).unwrap()
}

/// The compiler checks what the disassembler takes as it is.
fn compile_again(dir: &std::path::Path) {
    let output = Command::new("iasl")
        .args(["-p", "again", "DSDT.dsl"])
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("0 Errors, 0 Warnings"), "{said}");
}
