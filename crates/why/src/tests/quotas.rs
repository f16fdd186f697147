//! Quotas of cgroups: those whose stops have ended within the window, and one whose stop had not.

use tare_account::CgroupVersion;

use super::{first, idle};
use crate::load::Throttled;
use crate::{Cause, Load, diagnose};

/// A group that was stopped for 69 % of the time.
fn group(version: CgroupVersion) -> Throttled {
    Throttled {
        directory: "/sys/fs/cgroup/cpu/vm".to_owned(),
        version,
        cpus: 0.3,
        period_us: 100_000,
        share: 0.69,
        periods: 9,
        threads: vec![77],
    }
}

#[test]
fn a_quota_is_named_with_the_command_that_raises_it() {
    let mut load = idle();
    load.vcpus[0].cpu = 0.3;
    load.vcpus[0].waiting = 0.7;
    load.vcpus[0].tid = 77;
    load.throttled = vec![group(CgroupVersion::V1)];
    let found = first(&load);
    assert_eq!(found.cause, Cause::Throttled);
    assert!(found.what.contains("0.30 CPUs"), "{found:?}");
    assert_eq!(
        found.remedy,
        "raise the quota to 1.1 CPUs: echo 110000 > /sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us"
    );
    let steal = diagnose(&load, None).findings;
    let steal = steal.iter().find(|found| found.cause == Cause::Steal);
    assert!(steal.unwrap().share < 0.02, "{steal:?}");
    load.throttled = vec![group(CgroupVersion::V2)];
    assert!(
        first(&load)
            .remedy
            .ends_with("echo 110000 100000 > /sys/fs/cgroup/cpu/vm/cpu.max")
    );
    for unit in ["machine.slice", "vm.scope", "vm.service"] {
        load.throttled[0].directory = format!("/sys/fs/cgroup/{unit}");
        let command = format!("systemctl set-property --runtime {unit} CPUQuota=110%");
        assert!(first(&load).remedy.ends_with(&command), "{command}");
    }
}

/// `systemctl` alone asks the system's manager, which has no units of a user's.
#[test]
fn a_quota_of_a_users_unit_is_raised_by_the_users_manager() {
    let mut load = idle();
    (load.vcpus[0].cpu, load.vcpus[0].waiting) = (0.3, 0.7);
    load.vcpus[0].tid = 77;
    load.throttled = vec![group(CgroupVersion::V2)];
    let user = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service";
    for (directory, command) in [
        (
            format!("{user}/app.slice/run-x.scope"),
            "systemctl --user --machine=1000@.host set-property --runtime run-x.scope CPUQuota=110%",
        ),
        (
            format!("{user}/app.slice"),
            "systemctl --user --machine=1000@.host set-property --runtime app.slice CPUQuota=110%",
        ),
        (
            user.to_owned(),
            "systemctl set-property --runtime user@1000.service CPUQuota=110%",
        ),
    ] {
        load.throttled[0].directory = directory;
        let remedy = first(&load).remedy;
        assert!(remedy.ends_with(&format!(": {command}")), "{remedy}");
    }
}

/// The kernel adds a stop to the group's time when it ends: one that spans the window is in the
/// number of periods alone.
#[test]
fn a_stop_that_spans_the_window_is_named() {
    let mut load = idle();
    load.vcpus[0].tid = 77;
    (load.vcpus[0].waiting, load.vcpus[0].unfinished) = (1.0, 1.0);
    let quota = Throttled {
        share: 0.0,
        periods: 20,
        ..group(CgroupVersion::V2)
    };
    load.throttled = vec![quota.clone()];
    let found = first(&load);
    assert_eq!((found.cause, found.share), (Cause::Throttled, 1.0));
    assert!(found.evidence[1].contains("rose by 20"), "{found:?}");
    let causes = |load: &Load| -> Vec<Cause> {
        let found = diagnose(load, None).findings;
        found.into_iter().map(|found| found.cause).collect()
    };
    assert!(!causes(&load).contains(&Cause::Steal));
    // It did not stop the group within the window: others have its CPU.
    load.throttled[0].periods = 0;
    assert_eq!(causes(&load), [Cause::Steal]);
    // A wait that is shorter than a period began after the period's end.
    load.throttled = vec![quota];
    load.vcpus[0].unfinished = 0.04;
    assert_eq!(causes(&load), [Cause::Steal]);
}

/// Stops that have ended, and one that has not, of the same window.
#[test]
fn a_stop_that_goes_on_adds_to_those_that_have_ended() {
    let mut load = idle();
    load.vcpus[0].tid = 77;
    load.vcpus[0].cpu = 0.1;
    (load.vcpus[0].waiting, load.vcpus[0].unfinished) = (0.9, 0.5);
    load.throttled = vec![Throttled {
        share: 0.35,
        ..group(CgroupVersion::V2)
    }];
    let findings = diagnose(&load, None).findings;
    let share = |cause| findings.iter().find(|it| it.cause == cause).unwrap().share;
    assert!(
        (share(Cause::Throttled) - 0.85).abs() < 1e-9,
        "{findings:?}"
    );
    assert!((share(Cause::Steal) - 0.05).abs() < 1e-9, "{findings:?}");
}
