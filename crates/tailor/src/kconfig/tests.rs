//! The kernel's scripts, with its sources.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use tare_profile::{Call, Profile, SocketUse};

use super::*;
use crate::choose::choose;
use crate::cut::Cut;
use crate::spec::KernelSpec;
use crate::target::{Part, Target};
use crate::testing::tree;

fn everything(target: Target, cuts: &BTreeSet<Cut>) -> Choice {
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
        profile,
        target,
        parts: [Part::Disk, Part::Network, Part::Entropy, Part::SeveralCpus].into(),
        cuts: cuts.clone(),
        add: BTreeMap::new(),
        keep: BTreeSet::new(),
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
            &tree,
            build.path(),
            &everything(target, &cuts),
        )
        .unwrap();
        assert!(config.has(&Symbol::new("EPOLL").unwrap()));
        assert!(!config.has(&Symbol::new("SOUND").unwrap()));
        assert_eq!(config.modules(), 0);
    }
}

#[test]
fn what_is_not_granted_is_named_with_what_it_depends_on() {
    let Some(tree) = tree() else { return };
    let build = tempfile::tempdir().unwrap();
    let mut choice = Choice::default();
    let symbol = Symbol::new("VIRTIO_NET").unwrap();
    let reasons = BTreeSet::from(["a test".to_owned()]);
    choice.symbols.insert(symbol, reasons);
    let error = solve(&Starter::Test, &tree, build.path(), &choice)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("VIRTIO_NET (for a test; it depends on VIRTIO"),
        "{error}"
    );
}
