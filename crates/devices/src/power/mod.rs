//! How a guest ends a run: power-off (ACPI sleep control, hardware-reduced,
//! ACPI 6.5 4.8.3.7), reset (i8042 command, reset control register 0xcf9), and
//! Tare's exit port ([`tare_abi::exit`]).

mod counters;
mod device;
#[cfg(test)]
mod tests;

pub use counters::PowerCounters;
pub use device::{Power, PowerEvent};
