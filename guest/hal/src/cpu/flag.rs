//! The software interrupt flag as a state machine: when handlers run, and when a vector that
//! has arrived is only noted as pending.
//!
//! It reaches the CPU through [`Area`] alone, so that `tests/lost_wake_ups.rs` runs this very
//! code in all interleavings with interrupts. What happens before it, where an interrupt
//! arrives, is the entry code's (`trap::entry`, `ring::gate`): if the flag is on, it turns the
//! flag off and calls [`arrived`]; else it notes the vector.

/// What the flag needs of the CPU that runs this code. Each method but `handle` is one access
/// to the CPU's own memory; an interrupt may come before and after it. Accesses keep their
/// order.
pub(crate) trait Area {
    /// Whether handlers may run.
    fn is_on(&self) -> bool;
    /// Sets the flag.
    fn set(&self, on: bool);
    /// Vectors that arrived while the flag was off, bit by vector.
    fn pending(&self) -> u64;
    /// The same, and clears them, in one access.
    fn take_pending(&self) -> u64;
    /// Runs the handler of a vector, by its bit, and ends the interrupt.
    fn handle(&self, bit: u32);
    /// Ends as many interrupts as were delivered of vectors that were pending already.
    fn end_merged(&self);
}

/// Turns the flag off; gives whether it was on. A handler between the two accesses leaves the
/// flag as it was.
#[inline(always)]
pub(crate) fn disable(area: &impl Area) -> bool {
    let was_on = area.is_on();
    area.set(false);
    was_on
}

/// Turns the flag on and handles what is pending. A vector that arrives after the flag is on
/// is handled at once; one that came before is seen by the look.
#[inline(always)]
pub(crate) fn enable(area: &impl Area) {
    area.set(true);
    if area.pending() != 0 {
        handle_pending(area);
    }
}

/// Handles what is pending, and leaves the flag on.
#[cold]
pub(crate) fn handle_pending(area: &impl Area) {
    area.set(false);
    finish(area);
}

/// Handles a vector that arrived while the flag was on, which is off now, then what is
/// pending; leaves the flag on.
#[inline(always)]
pub(crate) fn arrived(area: &impl Area, bit: u32) {
    area.handle(bit);
    finish(area);
}

/// Handles what is pending until nothing is, and leaves the flag on.
#[inline(always)]
fn finish(area: &impl Area) {
    loop {
        // Mostly nothing is, and an exchange costs more than a look.
        let mut pending = match area.pending() {
            0 => 0,
            _ => area.take_pending(),
        };
        while pending != 0 {
            area.handle(pending.trailing_zeros());
            pending &= pending - 1;
        }
        area.end_merged();
        // One that arrives from here on finds the flag on, or is seen below.
        area.set(true);
        if area.pending() == 0 {
            return;
        }
        area.set(false);
    }
}

/// Waits by `wait` for an interrupt, unless `may_halt` says no, which is called with the flag
/// off. `wait` returns at once if one is pending, so that none is lost between look and halt.
#[inline(always)]
pub(crate) fn halt_if(
    area: &impl Area,
    wait: impl FnOnce(),
    may_halt: impl FnOnce() -> bool,
) -> bool {
    disable(area);
    let halts = may_halt();
    if halts {
        wait();
    }
    enable(area);
    halts
}
