//! What an event costs where its time cannot be observed, in ns of the vCPU's
//! thread. Prices turn counts into estimates; what is measured is never priced.
//!
//! Hardware: the range that kvm-unit-tests' `vmexit` prints on current servers
//! (cpuid and wrmsr 1,200-2,500 cycles, a port of QEMU's 8,000-15,000, an IPI with
//! its wake-up about 5,000). Emulated: `tare weigh vmexit` on a KVM that
//! executes ring 0 itself. A machine's own prices come from the same experiment.

use crate::exit::Exit;
use crate::load::{Execution, Source};

/// Prices of one kind of KVM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// An exit that the kernel serves.
    pub kernel_ns: f64,
    /// An exit that the monitor serves.
    pub monitor_ns: f64,
    /// An interrupt sent to another vCPU.
    pub ipi_ns: f64,
    /// An interrupt that a running guest takes, with its end.
    pub interrupt_ns: f64,
    /// Longest time awake that is the interrupt's; what a guest does beyond it is
    /// its own work.
    pub awake_ns: f64,
    /// A timer of the monitor's main loop: poll, callback, KVM_IRQ_LINE.
    pub monitor_timer_ns: f64,
    /// Part of a vCPU's time that exits must explain at least by their prices for
    /// all of it to be theirs: an emulated guest's instructions between two exits
    /// cost about as much as the exits.
    pub whole_from: f64,
}

const HARDWARE: Prices = Prices {
    kernel_ns: 700.0,
    monitor_ns: 4_000.0,
    ipi_ns: 1_800.0,
    interrupt_ns: 1_500.0,
    awake_ns: 50_000.0,
    monitor_timer_ns: 30_000.0,
    whole_from: 0.8,
};

const EMULATED: Prices = Prices {
    kernel_ns: 4_000.0,
    monitor_ns: 9_000.0,
    ipi_ns: 9_000.0,
    interrupt_ns: 60_000.0,
    awake_ns: 5_000_000.0,
    monitor_timer_ns: 30_000.0,
    whole_from: 0.2,
};

impl Prices {
    /// Of that kind of KVM.
    pub const fn of(execution: Execution) -> Self {
        match execution {
            Execution::Hardware => HARDWARE,
            Execution::Emulated => EMULATED,
        }
    }

    /// Of an exit of this kind.
    pub fn exit_ns(&self, exit: &Exit) -> f64 {
        match exit.owner() {
            _ if exit.is_monitors() => self.monitor_ns,
            Some(Source::Ipi) => self.ipi_ns,
            _ => self.kernel_ns,
        }
    }
}
