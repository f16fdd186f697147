//! Registers of the local APIC as they are measured (`crate::exits`).

use core::sync::atomic::Ordering;

use super::registers::{EOI, INITIAL_COUNT, LVT_TIMER, write};
use super::{MASKED, TSC_DEADLINE};
use crate::trap::vector;
use crate::{cpu, cpuid, percpu};

/// An end of interrupt at the register, whatever the flag of KVM says.
#[inline]
pub(crate) fn end() {
    write(EOI, 0);
}

/// Calls `act` with what writes the initial count, while the timer counts
/// instead of taking deadlines and raises nothing. Nothing is armed afterwards.
pub(crate) fn with_counting_timer<R>(act: impl FnOnce(fn(u32)) -> R) -> R {
    let interrupts = cpu::disable_interrupts();
    write(LVT_TIMER, MASKED | u32::from(vector::TIMER));
    let result = act(|count| write(INITIAL_COUNT, count));
    write(INITIAL_COUNT, 0);
    let mode = if cpuid::has_tsc_deadline() {
        TSC_DEADLINE
    } else {
        0
    };
    write(LVT_TIMER, mode | u32::from(vector::TIMER));
    percpu::current()
        .armed_ns
        .store(percpu::NOTHING, Ordering::Relaxed);
    cpu::restore_interrupts(interrupts);
    result
}
