use tare_policy::placement::Class;

use super::*;
use crate::advice::{Advice, Gain};
use crate::facts::{Disk, Halting, Layout, Platform, Quota, Resources};
use crate::runs::Figure;

/// A container of 2 CPUs on the study's host of 112, unpinned.
fn container() -> Facts {
    Facts {
        name: "web".to_owned(),
        platform: Some(Platform::Container),
        class: Some(Class::CpuBound),
        kvm_opens: true,
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
            with(&|f| f.quotas = vec![quota(1500, 0, true)]),
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
}

/// Of the group `a`, or of `slice`, which others share.
fn quota(millicpus: u64, throttled: u64, own: bool) -> Quota {
    let group = if own { "/cg/slice/a" } else { "/cg/slice" };
    Quota {
        millicpus,
        throttled,
        group: group.to_owned(),
        off: own.then(|| format!("echo max > {group}/cpu.max")),
    }
}

fn told(facts: &Facts, rule: &str) -> Advice {
    let report = advise(facts, &Runs::default());
    let mut told = report.advice.into_iter().filter(|it| it.rule == rule);
    told.next().unwrap()
}

#[test]
fn a_quota_that_others_share_is_named_and_not_taken_off() {
    let rule = "set-instead-of-quota";
    let mut facts = container();
    facts.quotas = vec![quota(1500, 3, true)];
    let own = told(&facts, rule);
    assert_eq!(own.because, "its quota of 1.5 CPUs was exhausted 3 times");
    let command = own.command.unwrap();
    assert!(
        command.ends_with("--cpus 0-1 && echo max > /cg/slice/a/cpu.max"),
        "{command}"
    );
    // Its own quota never stopped it, that of the slice did.
    facts.quotas = vec![quota(4000, 0, true), quota(300, 9, false)];
    let shared = told(&facts, rule);
    assert_eq!(
        shared.because,
        "the quota of /cg/slice, which other processes share (0.3 CPUs), was exhausted 9 times"
    );
    assert_eq!((shared.command, shared.gain), (None, Gain::Unknown));
    // The one that was used up counts, not the smallest.
    facts.quotas = vec![quota(1500, 9, true), quota(300, 0, false)];
    assert!(told(&facts, rule).because.starts_with("its quota of 1.5"));
    facts.quotas = vec![quota(1500, 0, true), quota(300, 0, false)];
    assert!(!rules(&facts).contains(&rule));
}

#[test]
fn a_pinned_target_leaves_a_quota_that_others_share_to_them() {
    let rule = "no-quota-on-own-cpus";
    let mut facts = machine(Class::IoBound);
    (facts.layout.threads, facts.layout.bound_threads) = (4, 4);
    facts.quotas = vec![quota(4000, 0, true), quota(300, 0, false)];
    let shared = told(&facts, rule);
    assert_eq!(shared.command, None);
    assert!(
        shared
            .because
            .ends_with("0.3 CPUs, the quota of /cg/slice, which other processes share"),
        "{}",
        shared.because
    );
    facts.quotas = vec![quota(200, 0, true), quota(300, 0, false)];
    let own = told(&facts, rule);
    assert_eq!(
        own.command.as_deref(),
        Some("echo max > /cg/slice/a/cpu.max")
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
fn a_virtual_machine_is_recommended_only_where_kvm_runs_it() {
    for class in [Class::IoBound, Class::UltraIoBound] {
        let mut planned = container();
        (planned.platform, planned.class) = (None, Some(class));
        let command = told(&planned, "platform").command.unwrap();
        assert!(command.starts_with("tare run"), "{command}");
        for change in [
            (|facts| facts.kvm_opens = false) as fn(&mut Facts),
            |facts| facts.emulated = true,
        ] {
            let mut without = planned.clone();
            change(&mut without);
            assert!(!rules(&without).contains(&"platform"), "{without:?}");
            assert!(untold_of(&without).contains(&"platform"), "{without:?}");
        }
    }
    // A container needs no KVM.
    let mut planned = container();
    (planned.platform, planned.kvm_opens) = (None, false);
    let told = told(&planned, "platform");
    assert!(
        told.what.contains("container") && told.command.is_none(),
        "{told:?}"
    );
}

#[test]
fn a_translated_machine_is_told_to_use_a_kvm_that_can_run_it() {
    let rule = "kvm-instead-of-translator";
    let mut facts = machine(Class::IoBound);
    facts.platform = Some(Platform::Vm);
    assert!(!rules(&facts).contains(&rule));
    facts.translated = true;
    let advice = told(&facts, rule);
    assert!(advice.what.contains("-accel kvm"), "{advice:?}");
    for change in [
        (|facts| facts.kvm_opens = false) as fn(&mut Facts),
        |facts| facts.emulated = true,
    ] {
        let mut without = facts.clone();
        change(&mut without);
        assert!(!rules(&without).contains(&rule), "{without:?}");
        assert!(untold_of(&without).contains(&rule), "{without:?}");
    }
}

#[test]
fn a_machine_that_only_timers_wake_is_not_pinned_as_i_o_bound() {
    let mut facts = machine(Class::IoBound);
    assert!(rules(&facts).contains(&"pin-io-bound"));
    (facts.class, facts.timer_driven) = (None, true);
    assert_eq!(rules(&facts), [""; 0]);
    assert_eq!(untold_of(&facts), ["pin-io-bound"]);
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
            let named = ["2011", "2015", "2020", "later sources"]
                .iter()
                .any(|word| advice.evidence.contains(word));
            assert!(named, "{advice:?}");
            let command = advice.command.unwrap_or_default();
            let about = command.is_empty() || command.contains("web") || command.contains("IMAGE");
            assert!(about, "{command}");
        }
    }
}

#[test]
fn a_planned_workload_has_the_gain_of_a_kept_run_in_a_container() {
    let figure = |name: &str, value| Figure {
        name: name.to_owned(),
        value,
        low: 1.0,
        high: 9.0,
        run: "out/platforms".to_owned(),
    };
    // As the study of platforms names them.
    let measured = [
        figure("quota_to_set_pct.ffmpeg.container.2", 4.0),
        figure("pin_control_pct.ffmpeg.container.4", 0.1),
        figure("pin_control_pct.ffmpeg.bare.4", 0.2),
        figure("pin_gain_pct.ffmpeg.vm.4", 5.0),
        figure("quota_to_set_pct.ffmpeg-2.container.3", 6.0),
    ];
    let mut facts = container();
    (facts.platform, facts.workload) = (None, Some("ffmpeg"));
    let report = advise(&facts, &Runs::new(measured.to_vec()));
    let rule = "pin-cpu-bound-container";
    let advice = report.advice.iter().find(|it| it.rule == rule).unwrap();
    assert_eq!(advice.gain, Gain::Measured(measured[0].clone()));
    assert_eq!(
        advice.gain.to_string(),
        "4.0 % [1.0, 9.0] (measured, a set of CPUs against a quota, another mechanism than \
         pinning alone: quota_to_set_pct.ffmpeg.container.2 in out/platforms)"
    );
    facts.class = Some(Class::IoBound);
    let others = advise(&facts, &Runs::new(measured[1..4].to_vec()));
    let rule = "pin-io-bound";
    let advice = others.advice.iter().find(|it| it.rule == rule).unwrap();
    // Neither a control nor a machine says what pinning brings to a container.
    assert_eq!(advice.gain, Gain::Unknown);
}
