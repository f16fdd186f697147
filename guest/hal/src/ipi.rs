//! Interrupts between CPUs.

use crate::{apic, smp};

/// Ends the halt of `cpu`. Costs an exit here and an interrupt there: to be
/// sent only to a CPU that has said that it halts.
pub fn wake(cpu: usize) {
    apic::send_wake(smp::apic_id(cpu));
}
