//! 16550
use std::{io::Write, sync::Arc};
use crate::CounterSource;
use vmm_sys_util::eventfd::EventFd;
/// The interrupt line: an eventfd bound as irqfd to [`tare_abi::ports::COM1_IRQ`].
pub struct IrqLine(pub EventFd);
/// A serial port that writes to `W`.
pub struct SerialPort<W: Write> { _out: W }
impl<W: Write> SerialPort<W> {
    /// A port. `out` should not block; a byte that it refuses is counted and lost.
    pub fn new(line: IrqLine, out: W) -> Self { let _ = line; Self { _out: out } }
    /// vCPU thread: read at `offset` (0 to 7) from the first port.
    pub fn read(&mut self, offset: u16, data: &mut [u8]) { let _ = (offset, data); todo!() }
    /// vCPU thread: write at `offset` (0 to 7).
    pub fn write(&mut self, offset: u16, data: &[u8]) { let _ = (offset, data); todo!() }
    /// I/O thread: input for the guest; returns how many bytes were taken (the queue is bounded). Offer the rest again when `input_room` is not 0.
    pub fn push_input(&mut self, input: &[u8]) -> usize { let _ = input; todo!() }
    /// Bytes of input that would be taken now.
    pub fn input_room(&self) -> usize { todo!() }
    /// Counters.
    pub fn counters(&self) -> Arc<dyn CounterSource> { todo!() }
}
