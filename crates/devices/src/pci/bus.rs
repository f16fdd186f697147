//! bus
use std::sync::{Arc, Mutex};
use crate::counters::counters;

/// Guest-physical addresses from which BARs are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryWindow { /// First address.
    pub start: u64, /// Bytes.
    pub size: u64 }

/// Address of a function on bus 0: device 0 to 31, function 0. Displays as `00:01.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress { /// Device number.
    pub device: u8 }

/// Why a function cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// full
    #[error("no free device number on the bus")]
    BusFull,
    /// window
    #[error("no room for a BAR of {size} bytes")]
    WindowFull { /// wanted
        size: u64 },
}

counters! {
    /// Counters of the bus.
    pub struct BusCounters {
        /// accesses
        config_accesses,
        /// Accesses that nobody answers.
        unclaimed,
    }
}

/// One function on the bus; implemented by [`crate::virtio::VirtioPci`].
pub trait PciFunction: Send {
    /// Size of BAR 0, a power of two of at least 16; `None` without BAR.
    fn bar_size(&self) -> Option<u64>;
    /// Told once where BAR 0 is, before the guest runs.
    fn assign_bar(&mut self, address: u64);
    /// Reads configuration space.
    fn config_read(&mut self, offset: u16, data: &mut [u8]);
    /// Writes configuration space.
    fn config_write(&mut self, offset: u16, data: &[u8]);
    /// Reads from BAR 0.
    fn bar_read(&mut self, offset: u64, data: &mut [u8]);
    /// Writes to BAR 0.
    fn bar_write(&mut self, offset: u64, data: &[u8]);
}

/// The bus. Shared by all vCPU threads (`&self` methods); functions are added before they start.
pub struct PciBus { counters: Arc<BusCounters> }

impl PciBus {
    /// A bus with its host bridge at 00:00.0.
    pub fn new(window: MemoryWindow) -> Self { let _ = window; todo!() }
    /// Puts a function at the next free device number and assigns its BAR.
    pub fn add<F: PciFunction + 'static>(&mut self, function: Arc<Mutex<F>>) -> Result<PciAddress, AddError> { let _ = function; todo!() }
    /// Whether the access to ports 0xcf8 to 0xcff is the bus's (0xcf9 byte-wide is the reset port).
    pub fn claims_port(port: u16, len: usize) -> bool { let _ = (port, len); todo!() }
    /// A port read, 0xcf8 to 0xcff.
    pub fn port_read(&self, port: u16, data: &mut [u8]) { let _ = (port, data); todo!() }
    /// A port write, 0xcf8 to 0xcff.
    pub fn port_write(&self, port: u16, data: &[u8]) { let _ = (port, data); todo!() }
    /// A read at `offset` into the ECAM window.
    pub fn ecam_read(&self, offset: u64, data: &mut [u8]) { let _ = (offset, data); todo!() }
    /// A write at `offset` into the ECAM window.
    pub fn ecam_write(&self, offset: u64, data: &[u8]) { let _ = (offset, data); todo!() }
    /// A read at guest-physical `address` in the BAR window.
    pub fn memory_read(&self, address: u64, data: &mut [u8]) { let _ = (address, data); todo!() }
    /// A write at guest-physical `address` in the BAR window.
    pub fn memory_write(&self, address: u64, data: &[u8]) { let _ = (address, data); todo!() }
    /// Counters.
    pub fn counters(&self) -> Arc<BusCounters> { Arc::clone(&self.counters) }
}
