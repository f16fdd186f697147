//! Interrupts: raised lines, accepted vectors, IPIs.

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::vm::Role;

/// An interrupt line that was raised (`kvm_set_irq` with level 1), or a message
/// (`kvm_msi_set_irq`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCount {
    /// Which.
    pub line: IrqLine,
    /// Who raised it.
    pub injector: Injector,
    /// How often.
    pub count: u64,
    /// By how much that may be off, as of [`ExitCount`](crate::ExitCount).
    #[serde(default)]
    pub margin: Option<u64>,
    /// Times between two in a row by this injector.
    pub intervals: Histogram,
}

/// Raises of a line that KVM's 8259s saw (`kvm_pic_set_irq`), without those that found
/// the pin pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PicCount {
    /// Pin, 0 to 15: the line's number.
    pub pin: u32,
    /// The guest masks the pin there: its local or I/O APIC delivers, or nothing does.
    pub masked: bool,
    /// Who raised it.
    pub injector: Injector,
    /// How often.
    pub count: u64,
    /// By how much that may be off, as of [`ExitCount`](crate::ExitCount).
    #[serde(default)]
    pub margin: Option<u64>,
}

/// Where an interrupt enters KVM's interrupt controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqLine {
    /// A global system interrupt: 0 is the PIT's (or the HPET's in legacy mode, as
    /// is 2), 4 the first serial port's, 8 the RTC's; from 24 on messages by irqfd.
    Gsi(u32),
    /// A message to this vector.
    Msi {
        /// The vector.
        vector: u8,
    },
}

/// Who made an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Injector {
    /// The vCPU that takes it: its own timer, or a self-IPI.
    OwnVcpu,
    /// Another vCPU: an IPI.
    OtherVcpu,
    /// A thread of the monitor or of the kernel that works for this VM.
    Thread {
        /// Its ID.
        tid: u32,
        /// What it does.
        role: Role,
    },
    /// A thread outside the VM: a back end in another process, a kernel worker.
    /// It may have worked for another VM.
    Outside {
        /// Its ID.
        tid: u32,
        /// Its name.
        name: String,
    },
}

/// Interrupts that one vCPU's local APIC accepted (`kvm_apic_accept_irq`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCount {
    /// The accepting local APIC's ID; the vCPU's index where IDs are dense.
    pub apic_id: u32,
    /// The vector.
    pub vector: u8,
    /// Who made it.
    pub injector: Injector,
    /// How often.
    pub count: u64,
    /// By how much that may be off, as of [`ExitCount`](crate::ExitCount).
    #[serde(default)]
    pub margin: Option<u64>,
    /// Times between two in a row of this vector on this APIC by this injector.
    pub intervals: Histogram,
}

/// IPIs as their sender wrote them to its ICR (`kvm_apic_ipi`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpiCount {
    /// Index of the sending vCPU.
    pub sender: u32,
    /// Delivery mode.
    pub mode: IpiMode,
    /// Whom it was sent to.
    pub target: IpiTarget,
    /// The vector, for modes that have one.
    pub vector: u8,
    /// How often.
    pub count: u64,
    /// By how much that may be off, as of [`ExitCount`](crate::ExitCount).
    #[serde(default)]
    pub margin: Option<u64>,
}

/// Delivery mode of the ICR (bits 8 to 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpiMode {
    /// Fixed.
    Fixed,
    /// To the lowest priority.
    LowestPriority,
    /// System management.
    Smi,
    /// Not maskable.
    Nmi,
    /// INIT.
    Init,
    /// Start-up.
    Startup,
    /// A reserved value.
    Reserved,
}

/// Destination shorthand of the ICR (bits 18 and 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpiTarget {
    /// The destination field's.
    Destination,
    /// The sender.
    Myself,
    /// All.
    All,
    /// All but the sender.
    Others,
}
