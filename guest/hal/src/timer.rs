//! One deadline for each CPU, by TSC deadline or a one-shot count. There is no
//! periodic timer.

use core::sync::atomic::Ordering;

use crate::{apic, clock, percpu};

/// Interrupts this CPU at `deadline_ns` of the clock. A deadline that is armed
/// already and not later stays: it only ends a halt early, and re-arming costs
/// an exit. With that rule a deadline that keeps moving away, as those of
/// retransmissions do, is armed once for many.
/// Says whether the timer was set.
pub fn arm(deadline_ns: u64) -> bool {
    if deadline_ns >= percpu::armed_ns() {
        return false;
    }
    percpu::current()
        .armed_ns
        .store(deadline_ns, Ordering::Relaxed);
    match clock::timer_ticks_until(deadline_ns) {
        None => apic::arm_tsc(clock::ticks_at(deadline_ns)),
        Some(ticks) => apic::arm_ticks(ticks),
    }
    true
}
