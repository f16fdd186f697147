//! The programs that run KVM machines, as far as remedies differ.

use serde::{Deserialize, Serialize};
use tare_probe::vm::{self, Vm};

/// Which monitor runs a machine, and who started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Monitor {
    /// `tare-monitor`.
    Tare,
    /// QEMU, started by hand or a script.
    Qemu,
    /// QEMU, started by libvirt.
    Libvirt,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// Something else.
    Other,
}

impl Monitor {
    /// The monitor of a machine. libvirt is known by its directory, where it puts
    /// the secret and the sockets that it gives every QEMU.
    pub fn of(vm: &Vm) -> Self {
        let is_libvirts = |word: &String| word.contains("/libvirt/");
        match vm.monitor {
            vm::Monitor::Tare => Self::Tare,
            vm::Monitor::Qemu if vm.command.iter().any(is_libvirts) => Self::Libvirt,
            vm::Monitor::Qemu => Self::Qemu,
            vm::Monitor::Firecracker => Self::Firecracker,
            vm::Monitor::CloudHypervisor => Self::CloudHypervisor,
            _ => Self::Other,
        }
    }

    /// As it is called in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tare => "Tare",
            Self::Qemu => "QEMU",
            Self::Libvirt => "QEMU under libvirt",
            Self::Firecracker => "Firecracker",
            Self::CloudHypervisor => "Cloud Hypervisor",
            Self::Other => "unknown monitor",
        }
    }
}
