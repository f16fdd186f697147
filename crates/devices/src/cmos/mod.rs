//! The real-time clock (Motorola MC146818), ports 0x70 and 0x71: the host's
//! time in UTC, as a guest reads it once at boot.
//!
//! Limits: the clock cannot be set, there are no alarms and no interrupts, and
//! the battery-backed bytes beyond the clock read as zero.

mod calendar;
mod device;
#[cfg(test)]
mod tests;

pub use device::Cmos;
