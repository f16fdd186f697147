//! Real-time clock
/// Ports 0x70 and 0x71.
#[derive(Debug, Default)]
pub struct Cmos;
impl Cmos {
    /// A clock that shows the host's time, UTC.
    pub fn new() -> Self { Self }
    /// vCPU thread: a read of port 0x70 or 0x71.
    pub fn read(&mut self, port: u16, data: &mut [u8]) { let _ = (port, data); todo!() }
    /// vCPU thread: a write.
    pub fn write(&mut self, port: u16, data: &[u8]) { let _ = (port, data); todo!() }
}
