//! KVM as a mechanism: machines, vCPUs, statistics, and the probe of what
//! this KVM is. No policy, no devices, no threads (the probe's
//! watchdog apart).
//!
//! ```text
//! Kvm::open ── Probe::run          what this KVM can do, found by running code
//!     │
//!     └─ Vm::new(&kvm, memory)     slots, irqchip, GSI routes, irqfd, ioeventfd
//!          └─ vm.vcpu(index, ..)   CPUID, MSRs, registers, run, statistics
//! ```
//!
//! # Interface
//!
//! [`Vcpu::run`] returns an [`Exit`]: an access with its data, a shutdown or an internal error with
//! a [`Crash`] (registers and the bytes at RIP). A [`KickHandle`] ends a run from another thread.
//! [`Vm::irqfd`], [`Vm::ioeventfd`] and MSI routes connect devices without exits, and [`StatsFd`]
//! reads KVM's counters.
//!
//! Neighbours: `abi` (layout, entry state, CPUID leaves) below, `monitor`
//! above. The host's unsafe code lives here, in modules that allow it by name.
//! Limits: x86-64 only; the full in-kernel irqchip, without a PIT, since
//! nothing in a Tare machine ticks.
//! Reference: Linux `Documentation/virt/kvm/api.rst`.

// One unsafe operation a block, each with its reason.

mod cpuid;
mod crash;
mod disable_exits;
mod kvm;
mod memory;
mod probe;
mod probing;
mod routing;
mod stats;
mod vcpu;
mod vm;

pub use crash::{Code, Crash, CrashCause};
pub use disable_exits::DisableExits;
pub use kvm::{Kvm, OpenError};
pub use memory::{
    GuestMemoryMmap, HugePages, MemoryError, advise_huge_page, guest_memory, machine_memory,
    map_file,
};
pub use probe::{
    Capabilities, Feature, Instruction, InstructionResult, KvmKind, Probe, ProbeOutcome,
};
pub use probing::ProbeError;
pub use stats::{Stat, StatsError, StatsFd, StatsUnit, StatsValue};
pub use tare_abi::msi::MsiMessage;
pub use vcpu::{Exit, KickHandle, RunError, SystemEvent, Vcpu, VcpuError};
pub use vm::{IoAddress, Vm, VmError, WriteMatch};
