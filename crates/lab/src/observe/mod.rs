//! Observing a machine from outside: CPU time and memory from /proc, which costs the
//! machine nothing, since reading its statistics over the control socket wakes
//! its I/O thread.

pub(crate) mod counters;
mod cpu;
mod crowding;
mod memory;

pub(crate) use cpu::{CpuReading, CpuSpent, descendants, helpers_with};
pub(crate) use crowding::{Crowd, Crowding, Helper};
pub(crate) use memory::resident_bytes;
