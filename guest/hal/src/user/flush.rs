//! Requests to other CPUs to forget translations: each serves those to itself at a wake-up
//! interrupt.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::MAX;
use crate::ring::service;

/// Requests to each CPU, and the last that it has served.
static WANTED: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];
static DONE: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];

/// Asks a CPU, which then needs a wake-up interrupt.
pub(super) fn ask(cpu: usize) {
    WANTED[cpu].fetch_add(1, Ordering::AcqRel);
}

/// Requests to each CPU so far.
pub(super) fn asked() -> [u32; MAX] {
    core::array::from_fn(|cpu| WANTED[cpu].load(Ordering::Acquire))
}

/// Whether a CPU has served this many.
pub(super) fn has_served(cpu: usize, count: u32) -> bool {
    count.wrapping_sub(DONE[cpu].load(Ordering::Acquire)) as i32 <= 0
}

/// Serves the requests to this CPU. Called for each wake-up interrupt.
#[inline]
pub(crate) fn serve(cpu: usize) {
    let wanted = WANTED[cpu % MAX].load(Ordering::Acquire);
    if wanted != DONE[cpu % MAX].load(Ordering::Relaxed) {
        service::call(service::FLUSH, [0; 3]);
        DONE[cpu % MAX].store(wanted, Ordering::Release);
    }
}
