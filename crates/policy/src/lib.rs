//! Decision rules, pure: poller idleness, spin before halt, looks before a sleep, halt polling,
//! interrupt coalescing, limits of disks and networks, placement on CPUs.
//!
//! Host and guest share these rules, so that what is simulated and measured on
//! the host is what decides in the appliance. Nothing here reads a clock, waits
//! or does I/O: times are passed in, in nanoseconds of any monotonic clock.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod coalesce;
pub mod early_timer;
pub mod halt;
pub mod limit;
pub mod looks;
pub mod placement;
pub mod poller;
pub mod spin;
