//! PCI: one bus of single-function devices, reached by configuration mechanism
//! #1 and by ECAM, with one fixed memory BAR each and MSI-X (PCI Local Bus 3.0).
//!
//! The bus knows nothing of virtio; [`crate::virtio::VirtioPci`] is a
//! [`PciFunction`]. What a guest may rely on: BARs are assigned and memory
//! decoding is on when it starts, as firmware would leave them.
//!
//! Limits: no bridges, no INTx, no I/O BARs, no function-level reset. BARs do
//! not move ([`Bar`]). Bus mastering is not enforced: a device works with the
//! bit off.

mod address;
mod bar;
mod bus;
mod config;
mod counters;
mod host_bridge;
mod msix;
#[cfg(test)]
mod tests;

pub use address::{MemoryWindow, PciAddress};
pub use bar::Bar;
pub use bus::{AddError, PciBus, PciFunction};
pub use config::{ConfigSpace, ConfigWrite, Identity};
pub use counters::BusCounters;
pub use msix::{Msix, MsixControl, MsixDelivery};

/// Bytes of configuration space that a function fills; ECAM shows zeros beyond.
pub(crate) const CONFIG_LEN: usize = 256;
/// MSI-X capability identifier.
pub(crate) const CAPABILITY_MSIX: u8 = 0x11;
/// Vendor-specific capability identifier.
pub(crate) const CAPABILITY_VENDOR: u8 = 0x09;
