//! The scheduler: each core has its own, cooperative and without any lock that
//! another core takes often.
//!
//! - A core's ready threads wait in a queue that only the core touches.
//! - Other cores and interrupt handlers put threads into the core's *inbox*; a
//!   halted core is flagged, and only a flagged core is sent an interrupt.
//! - A thread that blocks looks for the next one itself and, if there is none,
//!   halts the core (`idle`) on its own stack: waking up the thread that ran
//!   last needs no switch at all.
//!
//! [`core_stats`] says how each core spent its time.

// The host has it for its tests.
#[cfg(any(target_os = "none", test))]
pub(crate) mod timers;

#[cfg(target_os = "none")]
mod core;
#[cfg(target_os = "none")]
mod current;
#[cfg(target_os = "none")]
mod inbox;
pub(crate) mod stats;
#[cfg(target_os = "none")]
mod task;
#[cfg(target_os = "none")]
mod token;

/// Those of the processor; a test of [`token`] has loom's.
#[cfg(target_os = "none")]
mod atomics {
    pub(super) use core::sync::atomic::{AtomicU8, Ordering};
}

pub use stats::CoreStats;

#[cfg(target_os = "none")]
pub(crate) use self::core::local;
#[cfg(target_os = "none")]
pub use current::{
    active, after_program, before_program, core_stats, cores, current, current_core,
    may_run_program, park, park_until, yield_idle, yield_now,
};
#[cfg(target_os = "none")]
pub(crate) use current::{adopt, running, start};
#[cfg(target_os = "none")]
pub(crate) use task::INBOXES;
#[cfg(target_os = "none")]
pub use task::{Thread, unpark_all};

/// The host has no such account.
#[cfg(not(target_os = "none"))]
pub fn core_stats(_core: usize) -> CoreStats {
    CoreStats::default()
}
