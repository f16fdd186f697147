use tare_policy::placement::Class;

use super::*;
use crate::facts::{Disk, Halting, Layout, Platform, Resources};

/// A container of 2 CPUs on the study's host of 112, unpinned.
fn container() -> Facts {
    Facts {
        name: "web".to_owned(),
        platform: Some(Platform::Container),
        class: Some(Class::CpuBound),
        resources: Resources {
            host_cpus: 112,
            host_nodes: 4,
            assigned_millicpus: 2000,
            ..Resources::default()
        },
        layout: Layout {
            threads: 4,
            nodes: 1,
            ..Layout::default()
        },
        ..Facts::default()
    }
}

fn machine(class: Class) -> Facts {
    let mut facts = container();
    facts.platform = Some(Platform::TareVm);
    facts.class = Some(class);
    facts.resources.vcpus = 2;
    facts
}

/// A disk that would coalesce from 4 requests in flight.
fn disk(coalesces: bool, depth_permille: u64) -> Disk {
    Disk {
        name: "disk0".to_owned(),
        coalesces,
        completions_per_s: 2000,
        interrupts_permille: 990,
        depth_permille,
        least_completions_per_s: 2000,
        least_depth: 4,
    }
}

fn rules(facts: &Facts) -> Vec<&'static str> {
    let report = advise(facts, &Runs::default());
    report.advice.iter().map(|advice| advice.rule).collect()
}

fn untold_of(facts: &Facts) -> Vec<&'static str> {
    let report = advise(facts, &Runs::default());
    report
        .not_applicable
        .iter()
        .map(|not_applicable| not_applicable.rule)
        .collect()
}

#[test]
fn the_practices_of_cpu_pinning_2020_apply_to_their_cases() {
    let io = |facts: Facts| Facts {
        class: Some(Class::IoBound),
        ..facts
    };
    let mut pinned = container();
    pinned.layout.bound_threads = 4;
    pinned.resources.assigned_millicpus = 10_000;
    let cases: [(Facts, &[&str]); 5] = [
        (
            container(),
            &[
                "small-vanilla-container",
                "pin-cpu-bound-container",
                "size-by-chr",
            ],
        ),
        (
            io(container()),
            &[
                "small-vanilla-container",
                "pin-io-bound",
                "size-by-chr",
                "platform",
            ],
        ),
        (machine(Class::CpuBound), &["leave-cpu-bound-machine"]),
        (machine(Class::UltraIoBound), &["pin-io-bound"]),
        (pinned, &[]),
    ];
    for (facts, expected) in cases {
        assert_eq!(rules(&facts), expected, "{facts:?}");
    }
}

#[test]
fn what_came_since_applies_to_its_cases() {
    let quiet = || Facts {
        layout: Layout {
            threads: 4,
            bound_threads: 4,
            nodes: 1,
            isolated_vcpus: 2,
            ..Layout::default()
        },
        ..machine(Class::IoBound)
    };
    let with = |change: &dyn Fn(&mut Facts)| {
        let mut facts = quiet();
        change(&mut facts);
        facts
    };
    let halting = |halts_per_s, polled_permille, wasted_millicpus| {
        Some(Halting {
            halts_per_s,
            polled_permille,
            wasted_millicpus,
        })
    };
    let cases: Vec<(Facts, &[&str])> = vec![
        (quiet(), &[]),
        (with(&|f| f.layout.nodes = 2), &["one-node"]),
        (
            with(&|f| (f.layout.sibling_vcpus, f.layout.free_cores) = (1, 3)),
            &["cores-of-their-own"],
        ),
        (with(&|f| f.layout.helpers_on_vcpus = 1), &["helpers-apart"]),
        (
            with(&|f| (f.resources.isolated_cpus, f.layout.isolated_vcpus) = (4, 0)),
            &["use-isolated-cpus"],
        ),
        (
            with(&|f| f.resources.quota_millicpus = Some(1500)),
            &["no-quota-on-own-cpus"],
        ),
        (with(&|f| f.halting = halting(10, 0, 30)), &["halt-polling"]),
        (
            with(&|f| f.halting = halting(5000, 10, 0)),
            &["halt-polling"],
        ),
        (with(&|f| f.halting = halting(5000, 900, 1)), &[]),
        (
            with(&|f| f.disks = vec![disk(false, 4000)]),
            &["coalesce-disk-interrupts"],
        ),
        (with(&|f| f.disks = vec![disk(true, 4000)]), &[]),
        (with(&|f| f.disks = vec![disk(false, 3999)]), &[]),
    ];
    for (facts, expected) in cases {
        assert_eq!(rules(&facts), expected, "{facts:?}");
    }
    let mut throttled = container();
    throttled.throttled = 3;
    throttled.resources.quota_millicpus = Some(1500);
    throttled.quota_off = Some("echo max > /sys/fs/cgroup/a/cpu.max".to_owned());
    let report = advise(&throttled, &Runs::default());
    let told = report
        .advice
        .iter()
        .find(|it| it.rule == "set-instead-of-quota");
    let command = told.unwrap().command.as_deref().unwrap();
    assert!(
        command.ends_with("--cpus 0-1 && echo max > /sys/fs/cgroup/a/cpu.max"),
        "{command}"
    );
}

#[test]
fn what_is_unknown_here_is_listed_with_the_reason() {
    let mut small = container();
    small.resources = Resources {
        host_cpus: 2,
        host_nodes: 1,
        assigned_millicpus: 1000,
        ..Resources::default()
    };
    assert_eq!(untold_of(&small), ["one-node", "size-by-chr"]);
    let report = advise(&small, &Runs::default());
    assert!(
        report.not_applicable[1]
            .why
            .contains("less than one of this host's 2 cores")
    );
    small.resources.host_cpus = 1;
    small.resources.assigned_millicpus = 10;
    assert!(untold_of(&small).contains(&"pin-cpu-bound-container"));
    let mut emulated = machine(Class::CpuBound);
    emulated.emulated = true;
    assert_eq!(untold_of(&emulated), ["machine-on-emulating-kvm"]);
}

#[test]
fn a_target_that_did_nothing_gets_no_advice_by_its_kind() {
    let mut idle = container();
    idle.class = None;
    assert_eq!(rules(&idle), [""; 0]);
}

#[test]
fn every_advice_names_its_evidence_and_commands_name_the_target() {
    for facts in [
        container(),
        machine(Class::IoBound),
        machine(Class::CpuBound),
    ] {
        for advice in advise(&facts, &Runs::default()).advice {
            let named = ["2011", "2015", "2020", "since then"]
                .iter()
                .any(|word| advice.evidence.contains(word));
            assert!(named, "{advice:?}");
            let command = advice.command.unwrap_or_default();
            let about = command.is_empty() || command.contains("web") || command.contains("IMAGE");
            assert!(about, "{command}");
        }
    }
}
