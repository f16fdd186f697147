//! What a thread does, by its name.

use crate::vm::{Monitor, Role};

impl Role {
    /// Whether it runs a vCPU.
    pub fn is_vcpu(self) -> bool {
        matches!(self, Self::Vcpu(_))
    }

    /// The role of thread `tid` called `name` in process `pid`.
    pub fn of(monitor: Monitor, pid: u32, tid: u32, name: &str) -> Self {
        if let Some(index) = vcpu(name) {
            return Self::Vcpu(index);
        }
        if name.starts_with("vhost-") {
            return Self::Vhost;
        }
        if name.starts_with("kvm-pit/") || name.starts_with("kvm-nx-") {
            return Self::Kvm;
        }
        if tid == pid {
            return Self::Emulator;
        }
        match monitor {
            Monitor::Qemu => qemu(name),
            Monitor::Tare if name == "io" => Self::Io,
            Monitor::CloudHypervisor if name == "vmm" => Self::Emulator,
            Monitor::CloudHypervisor if name.starts_with('_') => Self::Io,
            Monitor::Crosvm if name.starts_with("v_") || name.starts_with("virtio") => Self::Io,
            Monitor::Tare
            | Monitor::Firecracker
            | Monitor::CloudHypervisor
            | Monitor::Crosvm
            | Monitor::Other => Self::Other,
        }
    }
}

/// With `-name x,debug-threads=on`; without, all are called like the process.
fn qemu(name: &str) -> Role {
    match name {
        name if name.starts_with("IO ") || name.starts_with("iothread") => Role::Io,
        name if name.starts_with("io") && name.len() <= 5 => Role::Io,
        name if name.starts_with("worker") || name.starts_with("pool") => Role::Worker,
        name if name.starts_with("threaded-") || name.starts_with("iou-wrk") => Role::Worker,
        _ => Role::Other,
    }
}

/// `CPU 0/KVM` (QEMU), `fc_vcpu 0` (Firecracker), `vcpu0` (Tare, Cloud
/// Hypervisor), `crosvm_vcpu0`.
fn vcpu(name: &str) -> Option<u32> {
    let index = match name.strip_prefix("CPU ") {
        Some(rest) => rest.strip_suffix("/KVM")?,
        None => ["fc_vcpu ", "crosvm_vcpu", "vcpu"]
            .into_iter()
            .find_map(|prefix| name.strip_prefix(prefix))?,
    };
    index.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_classified_by_each_monitor_s_names() {
        let role = |monitor, name| Role::of(monitor, 10, 11, name);
        assert_eq!(role(Monitor::Qemu, "CPU 3/KVM"), Role::Vcpu(3));
        assert_eq!(role(Monitor::Qemu, "CPU 3/TCG"), Role::Other);
        assert_eq!(role(Monitor::Qemu, "IO iothread0"), Role::Io);
        assert_eq!(role(Monitor::Qemu, "worker"), Role::Worker);
        assert_eq!(role(Monitor::Firecracker, "fc_vcpu 1"), Role::Vcpu(1));
        assert_eq!(role(Monitor::Tare, "vcpu0"), Role::Vcpu(0));
        assert_eq!(role(Monitor::Tare, "io"), Role::Io);
        assert_eq!(role(Monitor::CloudHypervisor, "_disk0_q0"), Role::Io);
        assert_eq!(role(Monitor::Crosvm, "crosvm_vcpu2"), Role::Vcpu(2));
        assert_eq!(role(Monitor::Qemu, "vhost-10"), Role::Vhost);
        assert_eq!(role(Monitor::Qemu, "vcpux"), Role::Other);
        assert_eq!(Role::of(Monitor::Qemu, 10, 10, "qemu"), Role::Emulator);
    }
}
