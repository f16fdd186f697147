//! The time stamp counter as the clock.

#![allow(unsafe_code)]

use core::arch::x86_64::_rdtsc;
use core::cell::UnsafeCell;

use super::Scale;
use super::count::Count;

/// Source of the counter's frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// CPUID, the processor's leaf or the hypervisor's.
    Cpuid,
    /// KVM's clock.
    Kvm,
    /// No source: it was measured.
    Measured,
}

pub(super) struct Clock {
    pub(super) frequency: Frequency,
    /// Counter when the image began.
    pub(super) base: u64,
    pub(super) to_ns: Scale,
    pub(super) from_ns: Scale,
    /// For timers that count ticks of the APIC's clock.
    pub(super) timer_from_ns: Option<Scale>,
}

struct Cell(UnsafeCell<Clock>);
// SAFETY: 1. `set` writes the clock on the first CPU, before the others start (`clock::init`). 2.
//    Nothing writes it afterwards.
unsafe impl Sync for Cell {}

static CLOCK: Cell = Cell(UnsafeCell::new(Clock {
    frequency: Frequency::Measured,
    base: 0,
    to_ns: Scale::new(1, 1),
    from_ns: Scale::new(1, 1),
    timer_from_ns: None,
}));

pub(super) const GIGA: u64 = 1_000_000_000;

/// Starts the clock: on the first CPU, before the others start.
pub(super) fn set(clock: Clock) {
    // SAFETY: 1. On the first CPU, before the others start: nothing else reads or writes the clock
    //    (`clock::init`). 2. No reference is held: each function takes its own, and has returned.
    unsafe { *CLOCK.0.get() = clock };
}

/// Nanoseconds since the image began.
#[inline]
pub fn now_ns() -> u64 {
    let clock = clock();
    clock.to_ns.apply(ticks().wrapping_sub(clock.base))
}

/// Nanoseconds that have passed since the counter was at `ticks`.
#[inline]
pub fn since_ns(ticks: u64) -> u64 {
    clock().to_ns.apply(self::ticks().saturating_sub(ticks))
}

/// The counter when the image began, and the nanoseconds of a tick, of which 32 bits lie after the
/// point ([`Scale::factor`]).
pub(super) fn base_and_factor() -> (u64, u64) {
    let clock = clock();
    (clock.base, clock.to_ns.factor())
}

/// Source of the counter's frequency.
pub(crate) fn frequency() -> Frequency {
    clock().frequency
}

/// The counter's value at `ns`, not earlier.
#[inline]
pub(crate) fn ticks_at(ns: u64) -> u64 {
    let clock = clock();
    // Beyond the clock's range there is no deadline to keep.
    let ticks = clock.from_ns.apply(ns.min(1 << 62)) + 2;
    clock.base.wrapping_add(ticks)
}

/// The APIC timer's count from now until `ns`, at least one; `None` when the timer takes
/// deadlines.
pub(crate) fn timer_count_until(ns: u64) -> Option<Count> {
    let scale = clock().timer_from_ns?;
    let left = ns.saturating_sub(now_ns()).min(1 << 44);
    Some(Count::at_least(scale.apply(left) + 1))
}

/// Whether the timer takes deadlines of the counter.
pub(crate) fn timer_takes_deadlines() -> bool {
    clock().timer_from_ns.is_none()
}

/// The counter's frequency, Hz.
pub fn ticks_per_s() -> u64 {
    clock().from_ns.apply(GIGA)
}

/// The counter itself.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: 1. Every 64-bit processor has the counter. 2. Either ring may read it: CR4.TSD is
    //    clear after a reset, and nothing sets it.
    unsafe { _rdtsc() }
}

#[inline]
fn clock() -> &'static Clock {
    // SAFETY: 1. Nothing writes the clock after `set`, which runs before the other CPUs start.
    unsafe { &*CLOCK.0.get() }
}
