//! Profiles and the symbols they lead to.

use tare_profile::{FileUse, OptionUse, SocketUse};

use super::*;
use crate::cut::Cut;
use crate::source::Series;
use crate::target::{Part, Target};

fn profile(calls: &[(&str, u64, u64)]) -> Profile {
    let mut profile = Profile::empty();
    for (name, count, enosys) in calls {
        let errors = match enosys {
            0 => BTreeMap::new(),
            count => BTreeMap::from([("ENOSYS".to_owned(), *count)]),
        };
        let call = Call {
            count: *count,
            errors,
            ..Call::default()
        };
        profile.calls.insert((*name).to_owned(), call);
    }
    profile
}

fn chosen(profile: &Profile, cuts: &[Cut], parts: &[Part]) -> Choice {
    chosen_for(Target::Qemu, profile, cuts, parts)
}

fn chosen_for(target: Target, profile: &Profile, cuts: &[Cut], parts: &[Part]) -> Choice {
    choose(&KernelSpec {
        series: Series::V6_1,
        profile: profile.clone(),
        target,
        parts: parts.iter().copied().collect(),
        cuts: cuts.iter().copied().collect(),
        add: BTreeMap::new(),
        keep: BTreeSet::new(),
        parameters: Vec::new(),
        counted: None,
    })
}

fn has(choice: &Choice, name: &str) -> bool {
    Symbol::new(name).is_some_and(|symbol| choice.symbols.contains_key(&symbol))
}

#[test]
fn a_call_brings_what_gives_it_and_says_why() {
    let choice = chosen(&profile(&[("epoll_wait", 3, 0)]), &[], &[]);
    let epoll = Symbol::new("CONFIG_EPOLL").map(|symbol| choice.symbols[&symbol].clone());
    assert_eq!(epoll, Some(BTreeSet::from(["epoll_wait".to_owned()])));
    assert!(!has(&choice, "IO_URING"));
    assert!(!has(&chosen(&profile(&[]), &[], &[]), "EPOLL"));
}

#[test]
fn a_console_whose_line_is_in_the_acpi_tables_only_is_found_there() {
    for (target, right) in [
        (Target::Tare, true),
        (Target::Qemu, false),
        (Target::Firecracker, false),
    ] {
        let choice = chosen_for(target, &profile(&[]), &[], &[]);
        assert_eq!(has(&choice, "SERIAL_8250_PNP"), right, "{target:?}");
    }
}

#[test]
fn standard_streams_have_their_ports_where_the_machine_offers_them() {
    for (target, right) in [
        (Target::Tare, true),
        (Target::Qemu, true),
        (Target::Firecracker, false),
    ] {
        let choice = chosen_for(target, &profile(&[]), &[], &[]);
        assert_eq!(has(&choice, "VIRTIO_CONSOLE"), right, "{target:?}");
    }
}

#[test]
fn a_call_that_was_never_there_is_not_built_in() {
    let choice = chosen(
        &profile(&[("io_uring_setup", 2, 2), ("eventfd2", 2, 1)]),
        &[],
        &[],
    );
    assert!(!has(&choice, "IO_URING"));
    assert_eq!(choice.never_there, ["io_uring_setup"]);
    assert!(has(&choice, "EVENTFD"));
}

#[test]
fn safety_stays_unless_its_cut_is_taken() {
    let nothing = profile(&[]);
    let whole = chosen(&nothing, &[], &[]);
    assert!(has(&whole, "PAGE_TABLE_ISOLATION") && has(&whole, "MULTIUSER"));
    let cut = chosen(&nothing, &[Cut::Mitigations, Cut::Dac, Cut::Lsm], &[]);
    assert!(!has(&cut, "PAGE_TABLE_ISOLATION") && !has(&cut, "MULTIUSER"));
    assert!(has(&cut, "STACKPROTECTOR"));
}

#[test]
fn what_a_cut_leaves_out_has_its_substitute() {
    let nothing = profile(&[]);
    let whole = chosen(&nothing, &[], &[]);
    assert!(has(&whole, "HZ_250") && !has(&whole, "HZ_100"));
    let cut = chosen(&nothing, &[Cut::Tick], &[]);
    assert!(!has(&cut, "HZ_250") && has(&cut, "HZ_100"));
}

#[test]
fn several_cpus_bring_locks_only_where_the_machine_has_them() {
    assert!(has(
        &chosen(&profile(&[]), &[], &[Part::SeveralCpus]),
        "SMP"
    ));
    assert!(!has(&chosen(&profile(&[]), &[], &[Part::Network]), "SMP"));
}

#[test]
fn directories_of_the_host_are_for_machines_that_have_them() {
    let volumes = ["FUSE_FS", "VIRTIO_FS"];
    let with = chosen(&profile(&[]), &[], &[Part::Volumes]);
    assert!(volumes.iter().all(|name| has(&with, name)));
    let without = chosen(&profile(&[]), &[], &[Part::Disk, Part::Network]);
    assert!(!volumes.iter().any(|name| has(&without, name)));
}

#[test]
fn what_is_only_looked_at_is_reported_and_not_built() {
    let mut profile = profile(&[]);
    profile.features.files.push(FileUse {
        file_system: "sysfs".to_owned(),
        path: "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
        count: 1,
    });
    let choice = chosen(&profile, &[], &[]);
    assert!(!has(&choice, "TRANSPARENT_HUGEPAGE"));
    let optional: Vec<&str> = choice.optional.keys().map(Symbol::name).collect();
    assert_eq!(optional, ["TRANSPARENT_HUGEPAGE"]);
}

#[test]
fn a_family_of_sockets_brings_its_protocols() {
    let mut profile = profile(&[]);
    profile.features.sockets.push(SocketUse {
        family: "AF_INET6".to_owned(),
        kind: "SOCK_STREAM".to_owned(),
        protocol: 0,
        count: 1,
    });
    let choice = chosen(&profile, &[], &[]);
    assert!(
        ["NET", "INET", "IPV6"]
            .iter()
            .all(|name| has(&choice, name))
    );
}

#[test]
fn a_sockets_protocol_brings_what_speaks_it() {
    let with = |family: &str, protocol| {
        let mut profile = profile(&[]);
        profile.features.sockets.push(SocketUse {
            family: family.to_owned(),
            kind: "SOCK_STREAM".to_owned(),
            protocol,
            count: 1,
        });
        chosen(&profile, &[], &[])
    };
    assert!(has(&with("AF_INET", 132), "IP_SCTP"));
    assert!(has(&with("AF_INET6", 262), "MPTCP"));
    assert!(has(&with("AF_NETLINK", 12), "NF_TABLES"));
    let plain = with("AF_INET", 6);
    assert!(!has(&plain, "IP_SCTP") && !has(&plain, "MPTCP"));
}

#[test]
fn a_socket_of_mptcp_on_ipv6_brings_both() {
    let choice_of = |family: &str| {
        let mut profile = profile(&[]);
        profile.features.sockets.push(SocketUse {
            family: family.to_owned(),
            kind: "SOCK_STREAM".to_owned(),
            protocol: 262,
            count: 1,
        });
        chosen(&profile, &[], &[])
    };
    let names = |choice: &Choice| ["MPTCP", "IPV6", "MPTCP_IPV6"].map(|name| has(choice, name));
    assert_eq!(names(&choice_of("AF_INET6")), [true; 3]);
    assert_eq!(names(&choice_of("AF_INET")), [true, false, false]);
}

#[test]
fn a_congestion_control_is_built_in_by_its_name_beside_the_default_one() {
    let with = |name: &str| {
        let mut profile = profile(&[]);
        profile.features.socket_options.push(OptionUse {
            level: "IPPROTO_TCP".to_owned(),
            name: name.to_owned(),
            count: 1,
        });
        chosen(&profile, &[], &[])
    };
    let bbr = with("TCP_CONGESTION=bbr");
    assert!(has(&bbr, "TCP_CONG_BBR") && has(&bbr, "TCP_CONG_CUBIC"));
    assert!(!has(&with("TCP_CONGESTION=reno"), "TCP_CONG_ADVANCED"));
}

/// `fcntl(fd, F_SETLK)` without `flock`, as SQLite and MySQL lock.
#[test]
fn a_lock_of_fcntl_brings_file_locks() {
    let mut locks = profile(&[("fcntl", 2, 0)]);
    assert!(!has(&chosen(&locks, &[], &[]), "FILE_LOCKING"));
    locks.features.flags = vec![tare_profile::FlagsUse::of_fcntl(6, 1)];
    let choice = chosen(&locks, &[], &[]);
    assert!(has(&choice, "FILE_LOCKING"));
    let symbol = Symbol::new("FILE_LOCKING").unwrap();
    assert!(
        choice.symbols[&symbol].contains("fcntl F_SETLK"),
        "{choice:?}"
    );
}
