//! The serial port: a 16550A by vm-superio (National Semiconductor PC16550D),
//! eight ports from [`tare_abi::ports::COM1`].
//!
//! Output goes byte by byte to a `Write`, input waits in a bounded queue.
//! Limits: no flow control, no baud rate.

mod counters;
mod device;
mod line;
#[cfg(test)]
mod tests;

pub use counters::SerialCounters;
pub use device::SerialPort;
pub use line::IrqLine;

/// Bytes of input that wait for the guest, beyond the port's own buffer.
pub(crate) const INPUT_LEN: usize = 4096;
