//! What a core does when it has nothing to do: spin for a bounded time that is
//! chosen at run time, then halt without any periodic timer.
//!
//! The halt: interrupts off, flag the core as halted, look again, arm one
//! deadline unless it is armed already, `sti; hlt` as a pair, look again. See
//! [`crate::sched`] for why no wake-up is lost. The spin's length comes from
//! `tare_policy::spin`, which lets it grow where it pays or its budget allows;
//! the command line bounds it (`halt_spin_ns=N`, `halt_spin_budget=PCT`) or
//! forbids halting (`idle=spin`). While it spins, a core is not flagged: whoever
//! has work for it sends no interrupt.

#[cfg(target_os = "none")]
mod core;
mod mode;

#[cfg(target_os = "none")]
pub(crate) use self::core::{Idle, Work, count_idle_turn, init, stats};
pub use mode::mode;
