//! Names of virtual machines by their monitors' command lines.

use super::Monitor;

/// The name that a monitor was given.
pub(super) fn of(monitor: Monitor, command: &[String]) -> Option<String> {
    let found = match monitor {
        Monitor::Qemu => value(command, &["-name", "--name"]).and_then(qemu),
        Monitor::Firecracker => value(command, &["--id"]),
        Monitor::Crosvm => value(command, &["--name"]),
        Monitor::Tare | Monitor::CloudHypervisor | Monitor::Other => None,
    };
    found.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// `NAME`, `guest=NAME,debug-threads=on`, `debug-threads=on,guest=NAME`.
fn qemu(value: &str) -> Option<&str> {
    let parts = || value.split(',');
    parts()
        .find_map(|part| part.strip_prefix("guest="))
        .or_else(|| parts().next().filter(|part| !part.contains('=')))
}

/// The value of the first of these options: the next argument, or what follows `=`.
pub(super) fn value<'a>(command: &'a [String], options: &[&str]) -> Option<&'a str> {
    let mut args = command.iter();
    while let Some(arg) = args.next() {
        for option in options {
            if arg == option {
                return args.next().map(String::as_str);
            }
            let rest = arg
                .strip_prefix(option)
                .and_then(|rest| rest.strip_prefix('='));
            if rest.is_some() {
                return rest;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(monitor: Monitor, line: &str) -> Option<String> {
        let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of(monitor, &command)
    }

    #[test]
    fn each_monitor_s_way_of_naming_is_understood() {
        let cases = [
            (
                Monitor::Qemu,
                "qemu -name web,debug-threads=on",
                Some("web"),
            ),
            (
                Monitor::Qemu,
                "qemu -name guest=db,debug-threads=on",
                Some("db"),
            ),
            (Monitor::Qemu, "qemu -name debug-threads=on", None),
            (Monitor::Qemu, "qemu -m 1", None),
            (Monitor::Firecracker, "firecracker --id=f1", Some("f1")),
            (Monitor::Crosvm, "crosvm run --name c1", Some("c1")),
            (Monitor::Crosvm, "crosvm run --name", None),
        ];
        for (monitor, line, name) in cases {
            assert_eq!(named(monitor, line).as_deref(), name, "{line}");
        }
    }
}
