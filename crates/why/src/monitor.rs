//! The programs that run KVM machines, as far as remedies differ.

use serde::{Deserialize, Serialize};
use tare_account::Vm;

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
    /// The monitor of a machine. libvirt is known by its name for the protocol's
    /// socket, and by its directory, where it puts what it gives every QEMU.
    pub fn of(vm: &Vm) -> Self {
        let signs = ["/libvirt/", "id=charmonitor"];
        let is_libvirts = |arg: &String| signs.iter().any(|sign| arg.contains(sign));
        match vm.monitor {
            tare_account::Monitor::Tare => Self::Tare,
            tare_account::Monitor::Qemu if vm.command.iter().any(is_libvirts) => Self::Libvirt,
            tare_account::Monitor::Qemu => Self::Qemu,
            tare_account::Monitor::Firecracker => Self::Firecracker,
            tare_account::Monitor::CloudHypervisor => Self::CloudHypervisor,
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
            Self::Other => "unknown VMM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor_of(command: &[&str]) -> Monitor {
        Monitor::of(&Vm {
            pid: 1,
            started_ticks: 0,
            name: String::new(),
            monitor: tare_account::Monitor::Qemu,
            command: command.iter().map(|&arg| arg.to_owned()).collect(),
            vcpus: Vec::new(),
        })
    }

    #[test]
    fn a_qemu_of_libvirt_differs_from_one_started_by_hand() {
        // As libvirt 9.0 starts it: as a system's service, and with its own root.
        let key = r#"{"qom-type":"secret","id":"masterKey0","file":"/var/lib/libvirt/qemu/domain-1-db/master-key.aes"}"#;
        assert_eq!(
            monitor_of(&["qemu-system-x86_64", "-object", key]),
            Monitor::Libvirt
        );
        let monitor = "socket,id=charmonitor,fd=22,server=on,wait=off";
        assert_eq!(
            monitor_of(&["qemu-system-x86_64", "-chardev", monitor]),
            Monitor::Libvirt
        );
        let by_hand = [
            "qemu-system-x86_64",
            "-name",
            "guest=db",
            "-qmp",
            "unix:/run/q,server",
        ];
        assert_eq!(monitor_of(&by_hand), Monitor::Qemu);
    }
}
