//! The kernel's scripts, with its sources.

use tare_profile::{Call, Profile, SocketUse};

use super::*;
use crate::choose::choose;
use crate::cut::Cut;
use crate::source::Series;
use crate::spec::KernelSpec;
use crate::target::{Part, Target};
use crate::testing::tree;

fn everything(series: Series, target: Target, cuts: &BTreeSet<Cut>) -> Choice {
    let mut profile = Profile::empty();
    for call in ["epoll_wait", "futex", "accept4", "io_uring_setup", "shmget"] {
        profile.calls.insert(
            call.to_owned(),
            Call {
                count: 1,
                ..Call::default()
            },
        );
    }
    for (family, protocol) in [("AF_INET6", 132), ("AF_INET", 262), ("AF_NETLINK", 4)]
        .into_iter()
        .chain([6, 9, 12].map(|number| ("AF_NETLINK", number)))
    {
        profile
            .features
            .sockets
            .push(SocketUse::of(0, 1, protocol, 1));
        profile.features.sockets.last_mut().unwrap().family = family.to_owned();
    }
    choose(&KernelSpec {
        series,
        profile,
        target,
        parts: [
            Part::Disk,
            Part::Network,
            Part::Entropy,
            Part::SeveralCpus,
            Part::Volumes,
        ]
        .into(),
        cuts: cuts.clone(),
        add: BTreeMap::new(),
        keep: BTreeSet::new(),
        parameters: Vec::new(),
        counted: None,
    })
}

#[test]
fn every_target_is_granted_all_that_it_asks() {
    let Some(tree) = tree() else { return };
    let targets = [Target::Tare, Target::Qemu, Target::Firecracker];
    let cuts = [BTreeSet::new(), Cut::by_default(), Cut::all_trusting()];
    for (target, cuts) in targets.into_iter().zip(cuts) {
        let build = tempfile::tempdir().unwrap();
        let config = solve(
            &Starter::Test,
            &Toolchain::Gnu,
            &tree,
            build.path(),
            &everything(tree.series(), target, &cuts),
            &|| true,
        )
        .unwrap();
        assert!(config.has(&Symbol::new("EPOLL").unwrap()));
        assert!(!config.has(&Symbol::new("SOUND").unwrap()));
        assert_eq!(config.modules(), 0);
        let lowest = config.value("DEFAULT_MMAP_MIN_ADDR");
        let is_hardened = !cuts.contains(&Cut::Hardening);
        assert_eq!(lowest, Some(if is_hardened { "65536" } else { "4096" }));
        let restricted = Symbol::new("SECURITY_PERF_EVENTS_RESTRICT").unwrap();
        let text = std::fs::read_to_string(tree.dir().join("security/Kconfig")).unwrap();
        let is_debians = text.contains(restricted.name());
        assert_eq!(config.has(&restricted), is_hardened && is_debians);
    }
}

#[test]
fn parameters_become_the_kernels_own_command_line_and_are_in_its_lock() {
    let Some(tree) = tree() else { return };
    let build = tempfile::tempdir().unwrap();
    let mut spec = KernelSpec::new(Profile::empty(), Target::Qemu);
    let settings = crate::tuning::settings::all().iter();
    spec.parameters = settings.map(|setting| setting.word.clone()).collect();
    let config = solve(
        &Starter::Test,
        &Toolchain::Gnu,
        &tree,
        build.path(),
        &choose(&spec.on(tree.series())),
        &|| true,
    )
    .unwrap();
    let line = format!("CONFIG_CMDLINE=\"{}\"", spec.parameters.join(" "));
    assert!(config.lines().contains(&line), "{line}");
    // As a lock is read, of which nothing is a command.
    let lines = config.lines();
    let given = GivenConfig::of_lines(lines.iter().map(String::as_str)).unwrap();
    assert!(given.text().contains(&line));
}

#[test]
fn numbers_and_what_only_some_sources_have_are_requested() {
    let choice = Choice {
        values: BTreeMap::from([(Symbol::new("HZ_X").unwrap(), 65536)]),
        where_known: BTreeSet::from([Symbol::new("OURS").unwrap()]),
        ..Choice::default()
    };
    let lines = "CONFIG_HZ_X=65536\nCONFIG_OURS=y\n";
    assert_eq!(fragment(&choice), lines);
}

#[test]
fn what_is_not_granted_is_named_with_what_it_depends_on() {
    let Some(tree) = tree() else { return };
    let build = tempfile::tempdir().unwrap();
    let mut choice = Choice::default();
    let symbol = Symbol::new("VIRTIO_NET").unwrap();
    let reasons = BTreeSet::from(["a test".to_owned()]);
    choice.symbols.insert(symbol, reasons);
    let error = solve(
        &Starter::Test,
        &Toolchain::Gnu,
        &tree,
        build.path(),
        &choice,
        &|| true,
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("VIRTIO_NET (for a test; it depends on VIRTIO"),
        "{error}"
    );
}
