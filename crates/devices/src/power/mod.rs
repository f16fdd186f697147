//! Power
use tare_abi::exit::GuestExit;
use std::sync::Arc;
use crate::CounterSource;
/// What the guest asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent { /// ACPI S5.
    PowerOff, /// Reset.
    Reset, /// Exit port.
    Exit(GuestExit) }
/// Ports 0x64, 0xcf9, 0x600, 0x601, 0xf4.
#[derive(Debug, Default)]
pub struct Power;
impl Power {
    /// Powered on.
    pub fn new() -> Self { Self }
    /// Whether the access is this device's.
    pub fn claims_port(port: u16, len: usize) -> bool { let _ = (port, len); todo!() }
    /// vCPU thread: read.
    pub fn read(&mut self, port: u16, data: &mut [u8]) { let _ = (port, data); todo!() }
    /// vCPU thread: write; an event ends the run.
    pub fn write(&mut self, port: u16, data: &[u8]) -> Option<PowerEvent> { let _ = (port, data); todo!() }
    /// Counters.
    pub fn counters(&self) -> Arc<dyn CounterSource> { todo!() }
}
