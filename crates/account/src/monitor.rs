//! Which program runs a virtual machine.

use std::path::Path;

use crate::vm::Monitor;

impl Monitor {
    /// By the executable, else by the command line's first argument (an executable that
    /// was replaced or runs in another root has no useful path).
    pub fn of(exe: &Path, command: &[String]) -> Self {
        let first = command.first().map(Path::new);
        let names = [Some(exe), first].into_iter().flatten();
        names
            .filter_map(|path| path.file_name()?.to_str())
            .map(Self::of_name)
            .find(|monitor| *monitor != Self::Other)
            .unwrap_or(Self::Other)
    }

    fn of_name(name: &str) -> Self {
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        match name {
            "tare-monitor" => Self::Tare,
            "qemu-kvm" | "kvm" => Self::Qemu,
            "cloud-hypervisor" | "cloud-hypervisor-static" => Self::CloudHypervisor,
            "crosvm" => Self::Crosvm,
            name if name.starts_with("qemu-system-") => Self::Qemu,
            name if name.starts_with("firecracker") => Self::Firecracker,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_are_recognised_by_executable_or_first_word() {
        let of = |exe: &str, arg: &str| Monitor::of(Path::new(exe), &[arg.to_owned()]);
        assert_eq!(of("/usr/bin/qemu-system-x86_64", "x"), Monitor::Qemu);
        assert_eq!(
            of("/opt/firecracker-v1.7 (deleted)", ""),
            Monitor::Firecracker
        );
        assert_eq!(of("/memfd:x (deleted)", "crosvm"), Monitor::Crosvm);
        assert_eq!(of("/usr/bin/tare-monitor (deleted)", "tare"), Monitor::Tare);
        assert_eq!(of("", "vmm"), Monitor::Other);
    }
}
