//! What QEMU's command line says about a machine: options that a remedy names.

/// The arguments of a QEMU; empty for other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    arguments: Vec<String>,
}

/// Prefixes of USB controllers and devices, whose frames QEMU's main loop times.
const USB: [&str; 5] = ["usb-", "piix3-usb", "piix4-usb", "ich9-usb", "nec-usb"];

impl CommandLine {
    /// From a process's arguments, the program first.
    pub fn new(arguments: &[String]) -> Self {
        Self {
            arguments: arguments.iter().skip(1).cloned().collect(),
        }
    }

    /// The machine type, if it is given.
    pub fn machine(&self) -> Option<&str> {
        let given = self.values(&["-M", "-machine"]);
        given
            .filter_map(|value| {
                let first = value.split(',').next()?;
                first
                    .strip_prefix("type=")
                    .or((!first.contains('=')).then_some(first))
            })
            .last()
    }

    /// A property of the machine, of whichever `-machine` sets it last.
    pub(crate) fn machine_property(&self, name: &str) -> Option<&str> {
        let given = self.values(&["-M", "-machine"]);
        given.filter_map(|value| property(value, name)).last()
    }

    /// Whether the machine can have no HPET.
    pub(crate) fn has_no_hpet(&self) -> bool {
        self.is_microvm()
            || self.machine_property("hpet") == Some("off")
            || self.arguments.iter().any(|argument| argument == "-no-hpet")
    }

    /// QEMU's minimal machine type.
    pub(crate) fn is_microvm(&self) -> bool {
        self.machine() == Some("microvm")
    }

    /// USB controllers and devices, as their options.
    pub(crate) fn usb(&self) -> Vec<String> {
        let is_usb = |value: &&str| USB.iter().any(|prefix| value.starts_with(prefix));
        let devices = self.values(&["-device"]).filter(is_usb);
        let mut options: Vec<String> = devices
            .filter_map(|value| Some(format!("-device {}", value.split(',').next()?)))
            .collect();
        let old = self.values(&["-usbdevice"]);
        options.extend(old.map(|value| format!("-usbdevice {value}")));
        if self.arguments.iter().any(|argument| argument == "-usb") {
            options.push("-usb".to_owned());
        }
        if self.machine_property("usb") == Some("on") {
            options.push("-machine usb=on".to_owned());
        }
        options
    }

    /// Network back ends that QEMU's main loop serves itself.
    pub(crate) fn slow_networks(&self) -> Vec<String> {
        let netdevs = self.given(&["-netdev", "-nic"]);
        let is_slow = |value: &str| {
            let kind = value.split(',').next().unwrap_or_default();
            kind == "user" || (kind == "tap" && property(value, "vhost") != Some("on"))
        };
        netdevs
            .filter(|(_, value)| is_slow(value))
            .filter_map(|(option, value)| Some(format!("{option} {}", value.split(',').next()?)))
            .collect()
    }

    /// Whether a disk is served by the main loop although it could have a thread.
    pub(crate) fn lacks_iothread(&self) -> bool {
        let mut devices = self.values(&["-device"]);
        let is_disk =
            |value: &str| value.starts_with("virtio-blk") || value.starts_with("virtio-scsi");
        let mut drives = self.values(&["-drive"]);
        devices.any(|value| is_disk(value) && property(value, "iothread").is_none())
            || drives.any(|value| property(value, "if") == Some("virtio"))
    }

    /// Sockets at which QEMU takes commands.
    pub(crate) fn control_sockets(&self) -> Vec<&str> {
        let direct = self
            .values(&["-qmp", "-monitor"])
            .filter_map(|value| value.strip_prefix("unix:")?.split(',').next());
        let chardevs = self
            .values(&["-chardev"])
            .filter(|value| value.starts_with("socket,"));
        direct
            .chain(chardevs.filter_map(|value| property(value, "path")))
            .collect()
    }

    /// An argument of the guest kernel's command line that makes its idle loop poll.
    pub(crate) fn idle_poll(&self) -> Option<&str> {
        let mut append = self.values(&["-append"]);
        let mut args = append.next()?.split_whitespace();
        args.rfind(|arg| matches!(*arg, "idle=poll" | "idle=spin"))
    }

    /// Whether guests execute HLT without leaving the CPU.
    pub(crate) fn halts_in_guest(&self) -> bool {
        let mut given = self.values(&["-overcommit"]);
        given.any(|value| property(value, "cpu-pm") == Some("on"))
    }

    /// Values of these options.
    fn values<'a>(&'a self, options: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.given(options).map(|(_, value)| value)
    }

    /// These options with their values. QEMU takes them with two dashes too.
    fn given<'a>(&'a self, options: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.arguments.windows(2);
        pairs.filter_map(|pair| {
            let given = pair[0].as_str();
            let option = given.strip_prefix('-').filter(|rest| rest.starts_with('-'));
            let is_one = options.contains(&option.unwrap_or(given));
            is_one.then_some((given, pair[1].as_str()))
        })
    }
}

/// The value of `name=` in a list that commas separate.
fn property<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
        CommandLine::new(&args)
    }

    #[test]
    fn the_machine_and_its_properties_are_read() {
        let microvm = line("qemu -M microvm,pit=on -m 1");
        assert!(microvm.is_microvm() && microvm.has_no_hpet());
        assert_eq!(microvm.machine_property("pit"), Some("on"));
        let q35 = line("qemu -machine type=q35 -machine hpet=off,kernel_irqchip=split");
        assert_eq!(q35.machine(), Some("q35"));
        assert!(q35.has_no_hpet() && !q35.is_microvm());
        assert!(!line("qemu -M pc").has_no_hpet());
        assert_eq!(line("qemu -M").machine(), None);
    }

    #[test]
    fn devices_and_back_ends_of_the_main_loop_are_named() {
        let busy = line(
            "qemu -usb -device usb-tablet,id=t -device piix3-usb-uhci -netdev user,id=n \
             -netdev tap,vhost=on -device virtio-blk-pci,drive=d -qmp unix:/run/q,server=on \
             -chardev socket,id=c,path=/run/c -overcommit cpu-pm=on",
        );
        let usb = ["-device usb-tablet", "-device piix3-usb-uhci", "-usb"];
        assert_eq!(busy.usb(), usb);
        assert_eq!(busy.slow_networks(), ["-netdev user"]);
        // As they are given: a remedy says what to take away.
        let short = line("qemu -M pc,usb=on --nic user,model=virtio");
        assert_eq!(short.slow_networks(), ["--nic user"]);
        assert_eq!(short.usb(), ["-machine usb=on"]);
        assert!(busy.lacks_iothread() && busy.halts_in_guest());
        assert_eq!(busy.control_sockets(), ["/run/q", "/run/c"]);
        let served = line("qemu -device virtio-blk-pci,drive=d,iothread=io0 -append idle=poll");
        assert!(!served.lacks_iothread() && served.usb().is_empty());
        assert_eq!(served.idle_poll(), Some("idle=poll"));
    }
}
