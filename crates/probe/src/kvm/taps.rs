//! Bytes of machines' tap devices: `fdinfo` names the device of a descriptor, and
//! `/proc/net/dev` has all of this network namespace in one reading.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::proc;
use crate::vm::Descriptors;
use tare_account::Network;

/// What a descriptor of a tap device is.
const TUN: &str = "/dev/net/tun";

/// Bytes by interface: received from the guest, sent to it.
pub(super) type Interfaces = HashMap<String, (u64, u64)>;

/// Names of the tap devices of this network namespace that a process has open.
pub(super) fn of(pid: u32, open: &Descriptors) -> Vec<String> {
    let name = |number: i32| {
        let file = proc::process(pid).join("fdinfo").join(number.to_string());
        interface(&fs::read_to_string(file).ok()?)
    };
    let mut names: Vec<String> = open.at(Path::new(TUN)).filter_map(name).collect();
    // A queue each.
    names.sort_unstable();
    names.dedup();
    if names.is_empty() || proc::shares_network(pid) {
        return names;
    }
    let theirs = fs::read_to_string(proc::process(pid).join("net/dev"));
    theirs.map_or(Vec::new(), |text| ours(names, &parse(&text)))
}

/// The names that mean no interface of the process's own namespace. Tare's monitor opens its
/// device in the host's and then enters an empty one; a QEMU of a container has its own.
fn ours(mut names: Vec<String>, theirs: &Interfaces) -> Vec<String> {
    names.retain(|name| !theirs.contains_key(name));
    names
}

/// All interfaces now.
pub(super) fn read() -> Interfaces {
    parse(&fs::read_to_string("/proc/net/dev").unwrap_or_default())
}

/// What some of them carried; `None` if none is here.
pub(super) fn sum(names: &[String], interfaces: &Interfaces) -> Option<Network> {
    let here: Vec<_> = names
        .iter()
        .filter_map(|name| interfaces.get(name))
        .collect();
    (!here.is_empty()).then(|| Network {
        from_guest_bytes: here.iter().map(|(received, _)| received).sum(),
        to_guest_bytes: here.iter().map(|(_, sent)| sent).sum(),
    })
}

/// The difference of two sums.
pub(super) fn since(now: Network, then: Network) -> Network {
    Network {
        to_guest_bytes: now.to_guest_bytes.saturating_sub(then.to_guest_bytes),
        from_guest_bytes: now.from_guest_bytes.saturating_sub(then.from_guest_bytes),
    }
}

/// `iff:` of an `fdinfo` (drivers/net/tun.c).
fn interface(text: &str) -> Option<String> {
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("iff:"))?
        .trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn parse(text: &str) -> Interfaces {
    let line = |line: &str| {
        let (name, figures) = line.split_once(':')?;
        let mut figures = figures.split_whitespace().map(str::parse);
        let received = figures.next()?.ok()?;
        // Packets, errors, drops and four more come between.
        Some((name.trim().to_owned(), (received, figures.nth(7)?.ok()?)))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 1234 5 0 0 0 0 0 0 1234 5 0 0 0 0 0 0
  tap0:  100 1 0 0 0 0 0 0  2000 9 0 0 0 0 0 0
  cut0:  100 1
";

    #[test]
    fn bytes_of_a_machine_are_those_of_its_tap_devices() {
        let interfaces = parse(DEV);
        assert_eq!(interfaces.len(), 2);
        let names = ["tap0".to_owned(), "gone".to_owned()];
        let network = sum(&names, &interfaces).unwrap();
        assert_eq!(
            (network.from_guest_bytes, network.to_guest_bytes),
            (100, 2_000)
        );
        assert_eq!(sum(&names[1..], &interfaces), None);
        let later = Network {
            to_guest_bytes: 2_500,
            from_guest_bytes: 90,
        };
        let added = since(later, network);
        assert_eq!((added.to_guest_bytes, added.from_guest_bytes), (500, 0));
    }

    #[test]
    fn a_machine_in_an_empty_network_namespace_keeps_the_hosts_device() {
        let names = || vec!["tap0".to_owned()];
        let empty = parse("    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(ours(names(), &empty), names());
        // Its own device of that name.
        assert_eq!(ours(names(), &parse(DEV)), Vec::<String>::new());
    }

    #[test]
    fn a_descriptor_names_its_interface() {
        let text = "pos:\t0\nflags:\t0104002\niff:\ttap0\n";
        assert_eq!(interface(text).as_deref(), Some("tap0"));
        assert_eq!(interface("pos:\t0\niff:\t\n"), None);
    }
}
