//! PCI configuration space by ports and by memory, BARs, MSI-X.
#![no_main]

libfuzzer_sys::fuzz_target!(|guest: &[u8]| tare_devices::fuzz_entry::pci_config(guest));
