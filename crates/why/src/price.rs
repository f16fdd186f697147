//! What an event costs where its time cannot be observed, in ns of the vCPU's
//! thread. Prices turn counts into estimates; what is measured is never priced.
//!
//! Exits cost what `tare weigh vmexit` measured on this computer, where it did
//! (`measured`). Everything else is built in. Hardware: the range that kvm-unit-tests'
//! `vmexit` prints on current servers (cpuid and wrmsr 1,200-2,500 cycles, a port of
//! QEMU's 8,000-15,000, an IPI with its wake-up about 5,000). Emulated: `tare weigh
//! vmexit` on a KVM that executes ring 0 itself.

use crate::exit::Exit;
use crate::load::{Execution, Load, Source};
use crate::measured::Measured;
use crate::monitor::Monitor;

/// Prices of one machine's events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prices<'a> {
    /// Those that were built in.
    pub(crate) built_in: BuiltIn,
    measured: Option<&'a Measured>,
    monitor: Monitor,
}

/// The price of one exit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    /// In ns.
    pub(crate) ns: f64,
    /// Whether it was measured on this computer.
    pub(crate) is_measured: bool,
}

/// Prices of one kind of KVM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BuiltIn {
    /// An exit that the kernel serves.
    kernel_ns: f64,
    /// An exit that the monitor serves.
    monitor_ns: f64,
    /// An interrupt sent to another vCPU.
    ipi_ns: f64,
    /// An interrupt that a running guest takes, with its end.
    pub(crate) interrupt_ns: f64,
    /// Longest time awake that is the interrupt's; what a guest does beyond it is
    /// its own work.
    pub(crate) awake_ns: f64,
    /// A timer of the monitor's main loop: poll, callback, KVM_IRQ_LINE.
    pub(crate) monitor_timer_ns: f64,
    /// Part of a vCPU's time that exits must explain at least by their prices for
    /// all of it to be theirs: an emulated guest's instructions between two exits
    /// cost about as much as the exits.
    pub(crate) whole_from: f64,
}

const HARDWARE: BuiltIn = BuiltIn {
    kernel_ns: 700.0,
    monitor_ns: 4_000.0,
    ipi_ns: 1_800.0,
    interrupt_ns: 1_500.0,
    awake_ns: 50_000.0,
    monitor_timer_ns: 30_000.0,
    whole_from: 0.8,
};

const EMULATED: BuiltIn = BuiltIn {
    kernel_ns: 4_000.0,
    monitor_ns: 9_000.0,
    ipi_ns: 9_000.0,
    interrupt_ns: 60_000.0,
    awake_ns: 5_000_000.0,
    monitor_timer_ns: 30_000.0,
    whole_from: 0.2,
};

impl<'a> Prices<'a> {
    /// Of a machine; what was measured on another kind of KVM says nothing about it.
    pub(crate) fn of(load: &Load, measured: Option<&'a Measured>) -> Self {
        Self {
            built_in: match load.execution {
                Execution::Hardware => HARDWARE,
                Execution::Emulated => EMULATED,
            },
            measured: measured.filter(|measured| measured.execution() == load.execution),
            monitor: load.monitor,
        }
    }

    /// Of an exit of this kind.
    pub(crate) fn exit(&self, exit: &Exit) -> Price {
        let measured = self.measured;
        match measured.and_then(|measured| measured.exit_ns(exit, self.monitor)) {
            Some(ns) => Price {
                ns,
                is_measured: true,
            },
            None => Price {
                ns: self.built_in.exit_ns(exit),
                is_measured: false,
            },
        }
    }
}

impl BuiltIn {
    fn exit_ns(&self, exit: &Exit) -> f64 {
        match exit.owner() {
            _ if exit.is_monitors() => self.monitor_ns,
            Some(Source::Ipi) => self.ipi_ns,
            _ => self.kernel_ns,
        }
    }
}
