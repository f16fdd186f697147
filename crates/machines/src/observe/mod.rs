//! Observing a machine from outside: CPU time and memory from /proc, which costs the
//! machine nothing, since reading its statistics over the control socket wakes
//! its I/O thread.

pub mod counters;
mod cpu;
mod crowding;
mod memory;

pub use cpu::{CpuReading, CpuSpent};
pub(crate) use cpu::{descendants, helpers_with};
pub(crate) use crowding::Helper;
pub use crowding::{Crowd, Crowding};
pub(crate) use memory::resident_bytes;
