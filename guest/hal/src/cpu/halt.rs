//! Letting interrupts in, and halting until one comes.

use super::interrupts::{enable_interrupts, in_interrupt, wait_if};
use crate::{apic, ring};

/// Lets the hardware interrupt this CPU, once, and handlers run.
pub fn start_interrupts() {
    ring::open_interrupts();
    apic::find_end_of_interrupt();
    enable_interrupts();
}

/// Halts until an interrupt has been handled, unless `may_halt`, called
/// with interrupts off, says no. The halt begins only if no interrupt is
/// pending, so none is lost between look and halt.
#[inline]
pub fn halt_if(may_halt: impl FnOnce() -> bool) -> bool {
    assert!(!in_interrupt(), "interrupt handlers cannot halt");
    wait_if(ring::wait_for_interrupt, may_halt)
}
