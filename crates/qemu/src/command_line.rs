//! QEMU's arguments, in the order in which they are added.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use tare_abi::ports;

use crate::{Accelerator, GuestSystem, MachineType};

/// QEMU's own system call filter (`-sandbox`, libseccomp): no obsolete calls, no change
/// of user, no new processes, no change of scheduling or limits.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// A port of the host that leads into the guest (`hostfwd=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostForward<'a> {
    /// `tcp` or `udp`.
    pub protocol: &'a str,
    /// Where the host listens.
    pub address: IpAddr,
    /// The host's port.
    pub host: u16,
    /// The guest's port.
    pub guest: u16,
}

impl HostForward<'_> {
    /// From a TCP port of the loopback interface.
    pub const fn loopback(host: u16, guest: u16) -> Self {
        Self {
            protocol: "tcp",
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            host,
            guest,
        }
    }
}

impl fmt::Display for HostForward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            protocol,
            address,
            host,
            guest,
        } = self;
        let at = SocketAddr::from((*address, *host));
        write!(f, "hostfwd={protocol}:{at}-:{guest}")
    }
}

/// The value of `-smp`.
///
/// A translated machine that can have one CPU only has no barriers before QEMU 8.1 (`tcg_gen_mb` in
/// tcg/tcg-op.c; mended by commit c914d46d0a64), although its devices are other threads: Linux
/// publishes a request, misses that the device has gone to sleep, and does not notify it. A second
/// CPU that could be plugged in brings them back. The library OS has a barrier that stays, and under
/// `-icount` there are none in any case.
fn processors(accelerator: Accelerator, guest: GuestSystem, cpus: u8) -> String {
    match (accelerator, guest, cpus) {
        (Accelerator::Tcg, GuestSystem::Linux, 1) => "1,maxcpus=2".to_owned(),
        _ => cpus.to_string(),
    }
}

/// The arguments of one QEMU process.
///
/// ```
/// use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType};
///
/// let mut qemu = CommandLine::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1);
/// qemu.memory_mib(128).append("console=ttyS0").serial("stdio");
/// assert!(qemu.args().len() > 10);
/// ```
#[derive(Clone, Debug)]
pub struct CommandLine {
    machine_type: MachineType,
    args: Vec<OsString>,
}

impl CommandLine {
    /// A machine of `cpus` vCPUs without any default device, configuration file or window,
    /// which ends when the guest resets.
    pub fn new(
        machine_type: MachineType,
        accelerator: Accelerator,
        guest: GuestSystem,
        cpus: u8,
    ) -> Self {
        let mut line = Self {
            machine_type,
            args: Vec::new(),
        };
        let (machine, accelerator_name) = (machine_type.name(cpus), accelerator.name());
        line.flag("-no-user-config")
            .flag("-nodefaults")
            .flag("-no-reboot")
            .option("-display", "none")
            .option("-machine", format!("{machine},accel={accelerator_name}"))
            .option("-cpu", accelerator.cpu(guest))
            .option("-smp", processors(accelerator, guest, cpus));
        if machine_type == MachineType::Microvm {
            // The registers of virtio 1.0.
            line.option("-global", "virtio-mmio.force-legacy=off");
        }
        line
    }

    /// An argument without a value.
    pub fn flag(&mut self, name: &str) -> &mut Self {
        self.args.push(name.into());
        self
    }

    /// An argument with its value.
    pub fn option(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.args.push(name.into());
        self.args.push(value.as_ref().to_owned());
        self
    }

    /// QEMU's own system call filter, for untrusted guests.
    pub fn sandbox(&mut self) -> &mut Self {
        self.option("-sandbox", SANDBOX)
    }

    /// Guest memory in MiB.
    pub fn memory_mib(&mut self, mib: u32) -> &mut Self {
        self.option("-m", mib.to_string())
    }

    /// The kernel or image.
    pub fn kernel(&mut self, path: &Path) -> &mut Self {
        self.option("-kernel", path)
    }

    /// The initial RAM disk.
    pub fn initrd(&mut self, path: &Path) -> &mut Self {
        self.option("-initrd", path)
    }

    /// The guest's command line.
    pub fn append(&mut self, cmdline: &str) -> &mut Self {
        self.option("-append", cmdline)
    }

    /// The next serial port.
    pub fn serial(&mut self, backend: &str) -> &mut Self {
        self.option("-serial", backend)
    }

    /// The port by which a guest ends the machine with a status
    /// ([`tare_abi::exit::GuestExit::from_qemu_status`]).
    pub fn exit_port(&mut self) -> &mut Self {
        let device = format!("isa-debug-exit,iobase={:#x},iosize=4", ports::EXIT);
        self.option("-device", device)
    }

    /// A virtio device on the machine's bus; `properties` are separated by commas, or empty.
    pub fn virtio(&mut self, name: &str, properties: &str) -> &mut Self {
        let mut device = self.machine_type.device(name);
        if !properties.is_empty() {
            device.push(',');
            device.push_str(properties);
        }
        self.option("-device", device)
    }

    /// QEMU's user network with a network card. A restricted one reaches nothing but the
    /// forwarded ports.
    pub fn user_network(&mut self, forwards: &[HostForward<'_>], is_restricted: bool) -> &mut Self {
        let mut backend = "user,id=net".to_owned();
        if is_restricted {
            backend.push_str(",restrict=on");
        }
        for forward in forwards {
            backend.push_str(&format!(",{forward}"));
        }
        // No boot by network: its ROM need not be installed.
        let properties = match self.machine_type {
            MachineType::Q35 => "netdev=net,romfile=",
            MachineType::Microvm => "netdev=net",
        };
        self.option("-netdev", backend)
            .virtio("virtio-net", properties)
    }

    /// Puts guest memory into a memfd. Shared memory can be handed to a vhost-user back-end.
    pub fn memory_in_memfd(&mut self, mib: u32, is_shared: bool) -> &mut Self {
        let share = if is_shared { "on" } else { "off" };
        let object = format!("memory-backend-memfd,id=ram,size={mib}M,share={share}");
        self.memory_mib(mib)
            .option("-object", object)
            .option("-machine", "memory-backend=ram")
    }

    /// The arguments so far, without the program.
    pub fn args(&self) -> &[OsString] {
        &self.args
    }

    /// Adds the arguments to the command of a program.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.args(&self.args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escaped;

    fn text(line: &CommandLine) -> Vec<&str> {
        line.args().iter().filter_map(|arg| arg.to_str()).collect()
    }

    #[test]
    fn every_machine_starts_without_default_devices() {
        for machine_type in [MachineType::Q35, MachineType::Microvm] {
            let line = CommandLine::new(machine_type, Accelerator::Tcg, GuestSystem::Linux, 1);
            for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
                assert!(text(&line).contains(&flag), "{flag} in {line:?}");
            }
        }
    }

    #[test]
    fn a_sandbox_denies_processes_and_privileges() {
        let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1);
        line.sandbox();
        let filter = text(&line).pop().unwrap_or_default().to_owned();
        for denied in ["obsolete", "elevateprivileges", "spawn", "resourcecontrol"] {
            assert!(filter.contains(&format!("{denied}=deny")), "{filter}");
        }
    }

    #[test]
    fn a_card_is_on_the_bus_of_its_machine() {
        let forwards = [HostForward::loopback(8080, 80)];
        for (machine_type, card) in [
            (MachineType::Q35, "virtio-net-pci,netdev=net,romfile="),
            (MachineType::Microvm, "virtio-net-device,netdev=net"),
        ] {
            let mut line =
                CommandLine::new(machine_type, Accelerator::Kvm, GuestSystem::LibraryOs, 1);
            line.user_network(&forwards, true);
            let backend = "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:8080-:80";
            assert!(text(&line).ends_with(&["-netdev", backend, "-device", card]));
        }
    }

    #[test]
    fn a_microvm_has_tables_for_further_cpus_only() {
        for (cpus, machine) in [
            (1, "microvm,rtc=on,acpi=off,accel=tcg"),
            (2, "microvm,rtc=on,acpi=on,accel=tcg"),
        ] {
            let line = CommandLine::new(
                MachineType::Microvm,
                Accelerator::Tcg,
                GuestSystem::LibraryOs,
                cpus,
            );
            assert!(text(&line).contains(&machine));
        }
    }

    #[test]
    fn a_translated_linux_has_barriers_with_one_cpu_too() {
        use Accelerator::{Kvm, Tcg};
        use GuestSystem::{CountedLinux, LibraryOs, Linux};
        for (accelerator, guest, cpus, processors) in [
            (Tcg, Linux, 1, "1,maxcpus=2"),
            (Tcg, Linux, 2, "2"),
            (Tcg, CountedLinux, 1, "1"),
            (Tcg, LibraryOs, 1, "1"),
            (Kvm, Linux, 1, "1"),
        ] {
            let line = CommandLine::new(MachineType::Q35, accelerator, guest, cpus);
            assert!(text(&line).windows(2).any(|it| it == ["-smp", processors]));
        }
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(escaped(Path::new("/a,b/c")), "/a,,b/c");
    }
}
