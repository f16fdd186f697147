//! What makes a guest exit, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of exit. Kinds are views of the same exits from several trace points:
/// [`ExitKind::UserSpace`] counts returns to the monitor, whose causes
/// ([`ExitKind::Port`], [`ExitKind::Memory`], ...) are counted too, and
/// [`ExitKind::Hardware`] counts all exits once more by the CPU's reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "exit")]
pub enum ExitKind {
    /// RDMSR or WRMSR of this index.
    Msr {
        /// Its index.
        index: u32,
        /// Read or written.
        access: Access,
    },
    /// An access to an I/O port.
    Port {
        /// The port.
        port: u16,
        /// Read or written.
        access: Access,
        /// Whose port that is by convention.
        device: Device,
    },
    /// An access to memory that has no RAM behind it.
    Memory {
        /// The page's guest-physical address.
        page: u64,
        /// Read or written.
        access: Access,
        /// Whose page that is by convention.
        device: Device,
    },
    /// An access to a register of the local APIC in memory. In x2APIC mode they are
    /// [`ExitKind::Msr`] from 0x800 on.
    Apic {
        /// Offset of the register.
        register: u32,
        /// Read or written.
        access: Access,
    },
    /// CPUID of this leaf.
    Cpuid {
        /// EAX.
        leaf: u32,
    },
    /// VMCALL or VMMCALL of this number.
    Hypercall {
        /// RAX.
        number: u64,
    },
    /// KVM_RUN returned to the monitor with this reason.
    UserSpace {
        /// `KVM_EXIT_...`, or the error of an interrupted call as [`USER_SIGNAL`].
        reason: u32,
    },
    /// HLT (a halt of a vCPU that KVM waited for).
    Halt,
    /// The CPU's own reason (`kvm_exit`).
    Hardware {
        /// Whose numbering.
        isa: Isa,
        /// The number.
        reason: u32,
    },
    /// More kinds than are counted apart.
    Various,
}

/// [`ExitKind::UserSpace`]'s reason for a KVM_RUN that a signal interrupted.
pub const USER_SIGNAL: u32 = u32::MAX;

/// Direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The guest read.
    Read,
    /// The guest wrote.
    Write,
}

/// Numbering of hardware exit reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isa {
    /// Intel's VT-x.
    Vmx,
    /// AMD's SVM.
    Svm,
}

/// Devices with well-known addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// Interval timer 8254.
    Pit,
    /// Real-time clock and CMOS.
    Rtc,
    /// Interrupt controller 8259.
    Pic,
    /// UART 16550.
    Serial,
    /// ACPI power-management timer.
    PmTimer,
    /// ACPI power-management registers.
    Acpi,
    /// High-precision event timer.
    Hpet,
    /// I/O APIC.
    IoApic,
    /// Local APIC in memory.
    LocalApic,
    /// PCI configuration space.
    PciConfig,
    /// Keyboard controller and system port.
    Keyboard,
    /// VGA.
    Vga,
    /// pvpanic.
    PvPanic,
    /// QEMU's firmware configuration.
    FwCfg,
    /// POST codes and I/O delay.
    Post,
    /// DMA controller.
    Dma,
    /// A virtio device (its BAR is known).
    Virtio,
    /// A doorbell that KVM passes to an eventfd.
    Doorbell,
    /// Not known.
    Unknown,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pit => "PIT",
            Self::Rtc => "RTC",
            Self::Pic => "PIC",
            Self::Serial => "serial port",
            Self::PmTimer => "ACPI PM timer",
            Self::Acpi => "ACPI",
            Self::Hpet => "HPET",
            Self::IoApic => "I/O APIC",
            Self::LocalApic => "local APIC",
            Self::PciConfig => "PCI configuration",
            Self::Keyboard => "keyboard controller",
            Self::Vga => "VGA",
            Self::PvPanic => "pvpanic",
            Self::FwCfg => "fw_cfg",
            Self::Post => "POST code port",
            Self::Dma => "DMA controller",
            Self::Virtio => "virtio device",
            Self::Doorbell => "doorbell with an eventfd",
            Self::Unknown => "device",
        })
    }
}
