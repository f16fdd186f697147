//! PCI: one bus of single-function devices, reached by configuration mechanism
//! #1 and by ECAM, with fixed BARs and MSI-X.
mod bus;
pub use bus::{AddError, MemoryWindow, PciAddress, PciBus, PciFunction};
