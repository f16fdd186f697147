//! What a kernel lacks, by what its guest said: a program's message of a call,
//! family, file system, path or device that is not there names what the mapping
//! has options for.

use std::collections::{BTreeMap, BTreeSet};

use crate::kconfig::Config;
use crate::mapping::{Row, Symbol, Trigger, rows};
use crate::source::Series;

/// What the C library and the kernel say of what is not there, lower case.
const PHRASES: &[&str] = &[
    "function not implemented",
    "enosys",
    "not supported",
    "unsupported",
    "unknown filesystem",
    "no such device",
    "no such file",
    "protocol not available",
    "cannot mount",
    "not implemented",
    "invalid argument",
    "exec format error",
    "errno 38",
    "os error 38",
    "os error 97",
    "os error 19",
];
/// Families by the words that messages have for them.
const FAMILIES: &[(&str, &str)] = &[
    ("ipv6", "AF_INET6"),
    ("inet6", "AF_INET6"),
    ("[::]", "AF_INET6"),
    ("unix", "AF_UNIX"),
    ("netlink", "AF_NETLINK"),
    ("packet", "AF_PACKET"),
    ("vsock", "AF_VSOCK"),
];

/// Longest line that is shown.
const LINE_CHARS: usize = 160;

/// Options that a configuration lacks and a console's lines point at, each with
/// the line.
pub(crate) fn suspects(console: &str, config: &Config, series: Series) -> BTreeMap<Symbol, String> {
    let mut found = BTreeMap::new();
    for line in console.lines().map(plain) {
        let lower = line.to_lowercase();
        if !PHRASES.iter().any(|phrase| lower.contains(phrase)) {
            continue;
        }
        for row in rows(series).iter().filter(|row| is_meant(row, &lower)) {
            for symbol in row.needs.iter().filter(|symbol| !config.has(symbol)) {
                let why = || format!("the guest said: {line}");
                found.entry(symbol.clone()).or_insert_with(why);
            }
        }
    }
    found
}

/// All options of the mapping that a configuration lacks and another has, but for
/// those of hardware: the machine's is there already.
pub fn known(config: &Config, debian: &Config, series: Series) -> BTreeSet<Symbol> {
    let on: BTreeSet<&str> = debian.on().collect();
    let is_hardware = |row: &Row| matches!(row.trigger, Trigger::Targets(_) | Trigger::Parts(_));
    let rows = rows(series)
        .iter()
        .filter(|row| row.cut.is_none() && !is_hardware(row));
    let symbols = rows.flat_map(|row| &row.needs);
    symbols
        .filter(|symbol| on.contains(symbol.name()) && !config.has(symbol))
        .cloned()
        .collect()
}

fn is_meant(row: &Row, line: &str) -> bool {
    let words: BTreeSet<&str> = line
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    let has = |name: &String| words.contains(name.to_lowercase().as_str());
    match &row.trigger {
        Trigger::Calls(names) => names.iter().any(has),
        Trigger::Options(names) | Trigger::Ioctls(names) | Trigger::Prctls(names) => {
            names.iter().any(has)
        }
        Trigger::Families(names) => names.iter().any(|name| has(name) || is_called(name, line)),
        Trigger::FileSystems(names) | Trigger::Mounts(names) => {
            (line.contains("mount") || line.contains("filesystem")) && names.iter().any(has)
        }
        Trigger::Paths(patterns) | Trigger::Devices(patterns) => {
            let mut paths = line
                .split(|c: char| c.is_whitespace() || "'\"`:,()".contains(c))
                .filter(|path| path.starts_with('/'));
            paths.any(|path| patterns.iter().any(|pattern| pattern.matches(path)))
        }
        Trigger::Clones(_)
        | Trigger::Flags(_)
        | Trigger::Protocols(_)
        | Trigger::Always
        | Trigger::Targets(_)
        | Trigger::Parts(_) => false,
    }
}

fn is_called(family: &str, line: &str) -> bool {
    let mut names = FAMILIES.iter().filter(|(_, of)| *of == family);
    names.any(|(word, _)| line.contains(word))
}

/// A line of a guest without colours and control characters, bounded.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            // ECMA-48: a control sequence ends with its first letter.
            '\u{1b}' => drop(rest.find(char::is_ascii_alphabetic)),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text.trim().chars().take(LINE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(console: &str, config: &str) -> Vec<String> {
        let found = suspects(console, &Config::read(config), Series::V6_1);
        found.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn a_message_points_at_the_option() {
        let cases = [
            ("epoll_create1: Function not implemented", "EPOLL"),
            (
                "socket(AF_INET6): Address family not supported by protocol",
                "IPV6",
            ),
            (
                "can't open IPv6 socket: Address family not supported",
                "IPV6",
            ),
            (
                "open '/dev/hwrng': No such file or directory",
                "HW_RANDOM_VIRTIO",
            ),
            ("mount: unknown filesystem type 'xfs'", "XFS_FS"),
            (
                "/proc/sys/vm/overcommit_memory: No such file or directory",
                "PROC_SYSCTL",
            ),
        ];
        for (line, symbol) in cases {
            assert!(names(line, "").contains(&symbol.to_owned()), "{line}");
        }
    }

    #[test]
    fn files_that_exist_or_are_not_complained_of_are_not_suspects() {
        assert!(names("epoll_create1: Function not implemented", "CONFIG_EPOLL=y").is_empty());
        assert!(names("epoll_create1 is ready", "").is_empty());
        assert!(names("/srv/x: No such file or directory", "").is_empty());
    }

    #[test]
    fn what_debian_has_and_no_program_asks_for_is_not_searched() {
        let debian = "CONFIG_SYSVIPC=y\nCONFIG_EPOLL=y\nCONFIG_SERIO=y\nCONFIG_VIRTIO_BLK=m\n";
        let symbols = known(
            &Config::read("CONFIG_EPOLL=y\n"),
            &Config::read(debian),
            Series::V6_1,
        );
        let found: Vec<&str> = symbols.iter().map(Symbol::name).collect();
        assert_eq!(found, ["SYSVIPC"]);
    }

    #[test]
    fn the_reason_is_the_guests_line_without_its_controls() {
        let found = suspects(
            "\u{1b}[31mtimerfd_create: ENOSYS\r",
            &Config::read(""),
            Series::V6_1,
        );
        let why: Vec<&String> = found.values().collect();
        assert_eq!(why, ["the guest said: timerfd_create: ENOSYS"]);
    }
}
