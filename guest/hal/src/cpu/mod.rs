//! The CPU that runs this code: its index, its interrupt flag, `pause`, `hlt`.
//!
//! | file | what |
//! |---|---|
//! | `set` | how many CPUs there can be, sets of them |
//! | `pause` | the pause of wait loops |
//! | `flag` | the software interrupt flag as a state machine |
//! | `interrupts` | the same, of this CPU |
//! | `halt` | letting interrupts in, and halting until one comes |
//! | `doorbell` | who wakes a CPU that halts |
//! | `fault` | a fault at will |

mod doorbell;
#[cfg(target_os = "none")]
mod fault;
mod flag;
#[cfg(target_os = "none")]
mod halt;
#[cfg(not(target_os = "none"))]
mod host;
mod interrupts;
mod pause;
mod set;

/// Those of [`Doorbell`]; a test of all interleavings has others.
mod atomics {
    pub(super) use core::sync::atomic::{AtomicBool, Ordering, fence};
}

#[cfg(target_os = "none")]
pub use crate::percpu::index;
#[cfg(target_os = "none")]
pub use crate::smp::count;
pub use doorbell::Doorbell;
#[cfg(target_os = "none")]
pub use fault::fault;
#[cfg(target_os = "none")]
pub use halt::{halt_if, start_interrupts};
#[cfg(not(target_os = "none"))]
pub use host::*;
pub use interrupts::InterruptState;
#[cfg(target_os = "none")]
pub use interrupts::{disable_interrupts, in_interrupt, restore_interrupts};
#[cfg(not(target_os = "none"))]
pub(crate) use interrupts::{disable_interrupts, restore_interrupts};
#[cfg(target_os = "none")]
pub(crate) use interrupts::{enable_interrupts, interrupts_are_on};
pub use pause::pause;
pub use set::{CpuSet, MAX};
