//! Exits as the rules group them, with the names of what a guest touched.

use serde::{Deserialize, Serialize};
use tare_account::Device;

use crate::load::Source;

/// Registers of the local APIC by the offset that the manual gives them.
const EOI: u32 = 0xb0;
const ICR: u32 = 0x300;
const ICR_HIGH: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const SELF_IPI: u32 = 0x3f0;
const TSC_DEADLINE: u32 = 0x6e0;

/// What made the guest exit, whichever trace point showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// An I/O port.
    Port {
        /// Its number.
        port: u16,
        /// Whose it is.
        device: Device,
    },
    /// A page of registers.
    Memory {
        /// Its guest-physical address.
        page: u64,
        /// Whose it is.
        device: Device,
    },
    /// A register of the local APIC, by its offset.
    Apic {
        /// The offset.
        register: u32,
    },
    /// A model-specific register.
    Msr {
        /// Its index.
        index: u32,
    },
    /// CPUID.
    Cpuid,
    /// A hypercall.
    Hypercall,
    /// More kinds than are counted apart.
    Various,
}

impl Exit {
    /// As it is called in sentences.
    pub fn name(&self) -> String {
        match self {
            Self::Port { port, device } => format!("accesses to I/O port {port:#x} ({device})"),
            Self::Memory { page, device } => {
                format!("accesses to MMIO page {page:#x} ({device})")
            }
            Self::Apic { register } => format!("accesses to the local APIC's {}", apic(*register)),
            Self::Msr { index } => format!("accesses to MSR {}", msr(*index)),
            Self::Cpuid => "CPUID instructions".to_owned(),
            Self::Hypercall => "hypercalls".to_owned(),
            Self::Various => "exits at more addresses than are listed".to_owned(),
        }
    }

    /// Whether these are accesses to the same place, whatever is known of the device there.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Port { port, .. }, Self::Port { port: other, .. }) => port == other,
            (Self::Memory { page, .. }, Self::Memory { page: other, .. }) => page == other,
            _ => self == other,
        }
    }

    /// The device that serves it, if one does.
    pub fn device(&self) -> Option<Device> {
        match self {
            Self::Port { device, .. } | Self::Memory { device, .. } => Some(*device),
            _ => None,
        }
    }

    /// Whether the monitor serves it, judged by the device.
    pub(crate) fn is_monitors(&self) -> bool {
        use Device::{Doorbell, IoApic, LocalApic, Pic, Pit};
        self.device()
            .is_some_and(|device| !matches!(device, Doorbell | IoApic | LocalApic | Pic | Pit))
    }

    /// The source of interrupts that a guest serves with it.
    pub fn owner(&self) -> Option<Source> {
        match self {
            Self::Apic {
                register: ICR | ICR_HIGH | SELF_IPI,
            } => Some(Source::Ipi),
            Self::Apic {
                register: LVT_TIMER | INITIAL_COUNT | CURRENT_COUNT,
            }
            | Self::Msr {
                index: TSC_DEADLINE,
            } => Some(Source::Timer),
            _ => match self.device()? {
                Device::Hpet => Some(Source::Hpet),
                Device::Pit => Some(Source::Pit),
                Device::Rtc => Some(Source::Rtc),
                _ => None,
            },
        }
    }

    /// Whether a guest may serve interrupts of this source with it: one register sends IPIs to other
    /// vCPUs and to the own one.
    pub(crate) fn may_serve(&self, source: Source) -> bool {
        let source = match source {
            Source::SelfIpi => Source::Ipi,
            other => other,
        };
        self.owner() == Some(source)
    }

    /// Whether it programs a timer of the vCPU.
    pub(crate) fn is_timer(&self) -> bool {
        self.owner() == Some(Source::Timer)
    }

    /// Whether it interrupts the vCPU itself.
    pub(crate) fn is_self_ipi(&self) -> bool {
        matches!(self, Self::Apic { register: SELF_IPI })
    }

    /// Whether it sets the deadline of the vCPU's timer.
    pub(crate) fn is_tsc_deadline(&self) -> bool {
        matches!(
            self,
            Self::Msr {
                index: TSC_DEADLINE
            }
        )
    }

    /// Whether it ends an interrupt, of whichever source.
    pub(crate) fn is_end_of_interrupt(&self) -> bool {
        matches!(self, Self::Apic { register: EOI })
    }
}

fn apic(register: u32) -> String {
    let name = match register {
        0x80 => "task priority",
        EOI => "end of interrupt",
        ICR | ICR_HIGH => "interrupt command",
        LVT_TIMER => "timer entry",
        INITIAL_COUNT => "initial count",
        CURRENT_COUNT => "current count",
        SELF_IPI => "self-IPI",
        _ => return format!("register {register:#x}"),
    };
    format!("{name} register")
}

fn msr(index: u32) -> String {
    let name = match index {
        0x10 => "TSC",
        0x1b => "APIC_BASE",
        0x3b => "TSC_ADJUST",
        TSC_DEADLINE => "TSC_DEADLINE",
        0xc000_0080 => "EFER",
        0xc000_0100 => "FS_BASE",
        0xc000_0101 => "GS_BASE",
        0x4b56_4d01 => "KVM_SYSTEM_TIME",
        0x4b56_4d04 => "KVM_PV_EOI",
        _ => return format!("{index:#x}"),
    };
    name.to_owned()
}
