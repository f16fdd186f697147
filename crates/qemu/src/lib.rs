//! QEMU command lines. `tare run`, `tare profile`, `tare tailor`, the experiments and the
//! tests of whole machines all start QEMU; [`CommandLine`] is the one place that knows its
//! options, the processor that a guest can be given, and how paths are escaped. What controls a
//! QEMU that runs does so by [`qmp`].
//!
//! Source: `qemu-system-x86_64(1)`, version 7.2.

#![forbid(unsafe_code)]

mod command_line;
pub mod qmp;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

pub use command_line::{CommandLine, HostForward};

/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Linux's `ip=` option for the address that QEMU's user network gives the guest.
pub const USER_NETWORK: &str = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off";

/// What executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's translator (TCG).
    Tcg,
    /// `/dev/kvm`.
    Kvm,
}

impl Accelerator {
    /// The value of `accel=`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }

    /// The processor that a guest of this kind gets.
    ///
    /// - KVM: the host's, without features that a KVM which emulates ring 0 cannot execute.
    /// - TCG and Linux: a plain Haswell, without the features that TCG warns about. On `max`
    ///   Linux's self-tests of patched code fail, and its tracers crash with several CPUs.
    /// - TCG and Linux under `-icount`, which counts each iteration of a string instruction: no
    ///   ERMS either, so that Linux zeroes and copies by 8 bytes and not by single ones.
    /// - TCG and the library OS: all that TCG has.
    pub const fn cpu(self, guest: GuestSystem) -> &'static str {
        match (self, guest) {
            (Self::Kvm, _) => "host,-arch-capabilities,-cx16",
            (Self::Tcg, GuestSystem::LibraryOs) => "max",
            (Self::Tcg, GuestSystem::Linux) => {
                "Haswell,-pcid,-x2apic,-tsc-deadline,-invpcid,-hle,-rtm"
            }
            (Self::Tcg, GuestSystem::CountedLinux) => {
                "Haswell,-pcid,-x2apic,-tsc-deadline,-invpcid,-hle,-rtm,-erms,-fsrm"
            }
        }
    }
}

/// What the machine boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestSystem {
    /// An image of Tare's library OS.
    LibraryOs,
    /// A Linux kernel.
    Linux,
    /// A Linux kernel under `-icount`.
    CountedLinux,
}

/// QEMU's machine type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineType {
    /// PCI, ACPI and firmware. Kernels of distributions find all their devices here.
    Q35,
    /// virtio over MMIO, a real-time clock, no PCI. There are ACPI tables with more than one
    /// vCPU only: without them a start takes 4 ms less.
    Microvm,
}

impl MachineType {
    /// The value of `-machine`, without the accelerator.
    const fn name(self, cpus: u8) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Microvm if cpus > 1 => "microvm,rtc=on,acpi=on",
            Self::Microvm => "microvm,rtc=on,acpi=off",
        }
    }

    /// The name of a virtio device on this machine's bus, from a name such as `virtio-blk`.
    pub fn device(self, virtio: &str) -> String {
        match self {
            Self::Q35 => format!("{virtio}-pci"),
            Self::Microvm => format!("{virtio}-device"),
        }
    }
}

/// A path as a value in QEMU's options, where a comma separates unless it is doubled.
pub fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// A TCP port of the loopback interface that is free now. If another process takes it
/// before QEMU does, QEMU ends with an error.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
