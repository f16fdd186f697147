//! Why `KVM_RUN` returned, as Tare's own type.

use thiserror::Error;

use crate::crash::Crash;

/// What a vCPU requests from the monitor, or why it cannot go on.
///
/// For reads the monitor fills `data` before the next [`run`](super::Vcpu::run).
#[derive(Debug)]
pub enum Exit<'a> {
    /// Read from a port. A string instruction reads several items of `width` bytes:
    /// `data` holds them all.
    PioIn {
        /// The port.
        port: u16,
        /// Bytes of one item: 1, 2 or 4.
        width: u8,
        /// Where the answer goes.
        data: &'a mut [u8],
    },
    /// Write to a port; a string instruction writes several items of `width` bytes.
    PioOut {
        /// The port.
        port: u16,
        /// Bytes of one item: 1, 2 or 4.
        width: u8,
        /// What was written.
        data: &'a [u8],
    },
    /// Read of guest-physical memory that is not RAM, 1 to 8 bytes.
    MmioRead {
        /// Guest-physical address.
        address: u64,
        /// Where the answer goes.
        data: &'a mut [u8],
    },
    /// Write to guest-physical memory that is not RAM, 1 to 8 bytes.
    MmioWrite {
        /// Guest-physical address.
        address: u64,
        /// What was written.
        data: &'a [u8],
    },
    /// HLT; only from a machine without irqchip.
    Hlt,
    /// An instruction that KVM's emulator lacks (INT3, FWAIT) has been executed; nothing is left to
    /// do.
    Emulated,
    /// The processor shut down (triple fault).
    Shutdown(Box<Crash>),
    /// KVM could not go on, for example at an instruction that its emulator lacks.
    InternalError(Box<Crash>),
    /// The hardware refused to enter the guest.
    FailEntry(Box<Crash>),
    /// The guest requested something about the machine from the hypervisor.
    SystemEvent(SystemEvent),
    /// A signal or a [`KickHandle`](super::KickHandle) ended the run; nothing happened in the guest.
    Interrupted,
    /// An exit that a Tare machine does not enable.
    Unexpected(Box<Crash>),
}

impl Exit<'_> {
    /// The exit's kind as statistics name it (`tare_control::stats::VcpuStats::exits`).
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PioIn { .. } => "pio_in",
            Self::PioOut { .. } => "pio_out",
            Self::MmioRead { .. } => "mmio_read",
            Self::MmioWrite { .. } => "mmio_write",
            Self::Hlt => "hlt",
            Self::Emulated => "emulator_gap",
            Self::Shutdown(_) => "shutdown",
            Self::InternalError(_) => "internal_error",
            Self::FailEntry(_) => "fail_entry",
            Self::SystemEvent(_) => "system_event",
            Self::Interrupted => "interrupted",
            Self::Unexpected(_) => "unexpected",
        }
    }
}

/// `KVM_EXIT_SYSTEM_EVENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemEvent {
    /// Power off.
    Shutdown,
    /// Reset.
    Reset,
    /// The guest reports that it crashed.
    Crash,
    /// Another one, by its number.
    Other(u32),
}

/// `KVM_RUN` failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// An errno that no guest can cause alone: lack of memory, a bad state.
    #[error("KVM_RUN failed on vCPU {index}")]
    Run {
        /// Which vCPU.
        index: u8,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM described a port access that lies outside its own page.
    #[error("KVM described a malformed port access on vCPU {index}")]
    PortAccess {
        /// Which vCPU.
        index: u8,
    },
}
