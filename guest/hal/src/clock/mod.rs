//! Monotonic time from the time stamp counter, wall-clock time from the
//! hypervisor or the CMOS clock. Reading either causes no exit. The counters of
//! a machine's CPUs are taken to be synchronous, as those of virtual ones are.

#[cfg(target_os = "none")]
mod calibrate;
pub(crate) mod count;
#[cfg(not(target_os = "none"))]
mod host;
#[cfg(target_os = "none")]
mod pvclock;
mod scale;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod tsc;
#[cfg(target_os = "none")]
mod wall;
mod windows;

#[cfg(not(target_os = "none"))]
pub use host::*;
#[cfg(target_os = "none")]
pub(crate) use pvclock::SHARED_REGISTERS;
pub use scale::Scale;
#[cfg(target_os = "none")]
pub(crate) use start::init;
#[cfg(target_os = "none")]
pub use tsc::{Frequency, now_ns, since_ns, ticks, ticks_per_s};
#[cfg(target_os = "none")]
pub(crate) use tsc::{frequency, ticks_at, timer_count_until, timer_takes_deadlines};
#[cfg(target_os = "none")]
pub use wall::wall_ns;
#[cfg(target_os = "none")]
pub(crate) use wall::{Rate, rate, wall_clock_is_kvms};
