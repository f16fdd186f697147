//! KVM's paravirtual features, and which of them this image uses.

use crate::clock::Frequency;
use crate::{apic, clock, cpuid, percpu};

/// Features, and their use on the calling CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paravirt {
    /// The EOI flag, which saves the write at the end of an interrupt.
    pub offers_eoi: bool,
    /// KVM has the address of this CPU's flag, and sets it.
    pub eoi_enabled: bool,
    /// Ends of interrupts that it has saved on this CPU. A KVM that executes ring
    /// 0 instruction by instruction takes the flag back before each of them: there
    /// it saves none.
    pub ends_saved: u64,
    /// Ends of interrupts that were written on this CPU.
    pub ends_written: u64,
    /// A clock in memory.
    pub offers_clock: bool,
    /// The clock is the same on all CPUs: so are the counters that this image
    /// takes as its clock.
    pub clock_is_stable: bool,
    /// Source of the counter's frequency.
    pub frequency: Frequency,
    /// The wall clock, if it was read already, came from there.
    pub wall_clock_used: bool,
    /// Interrupts to several CPUs in one call.
    pub offers_send_ipi: bool,
}

/// The state now, on this CPU.
pub fn account() -> Paravirt {
    let cpu = percpu::current();
    Paravirt {
        offers_eoi: cpuid::has_pv_eoi(),
        eoi_enabled: apic::eoi::pv_eoi_is_enabled(),
        ends_saved: cpu.ends_saved.get(),
        ends_written: cpu.ends_written.get(),
        offers_clock: cpuid::has_pv_clock(),
        clock_is_stable: cpuid::has_stable_clock(),
        frequency: clock::frequency(),
        wall_clock_used: clock::wall_clock_is_kvms(),
        offers_send_ipi: cpuid::has_pv_send_ipi(),
    }
}
