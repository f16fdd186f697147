//! Remedies for vCPUs that the sets of CPUs of their cgroups keep from CPUs.

use tare_account::{CgroupVersion, Cpuset};

use super::{first, idle};
use crate::{Cause, Load, diagnose};

/// A thread gets no CPU that its cgroup does not leave it.
#[test]
fn a_cgroup_that_keeps_a_vcpu_from_cpus_is_widened_from_the_outer_one_on() {
    let set = |directory: &str, cpus: &[u32], version| Cpuset {
        directory: directory.to_owned(),
        version,
        cpus: cpus.to_vec(),
        threads: vec![1],
    };
    let mut load = idle();
    load.vcpus[0].waiting = 0.5;
    load.vcpus[0].tid = 1;
    load.vcpus[0].allowed = vec![2];
    load.cpusets = vec![
        set("/cgroup/a", &[1, 2], CgroupVersion::V2),
        set("/cgroup/a/b", &[2], CgroupVersion::V2),
    ];
    let lines = |load: &Load| {
        let found = diagnose(load, None).findings;
        let steal = found.iter().find(|it| it.cause == Cause::Steal).unwrap();
        let lines = steal.remedies.iter().map(|it| it.render(str::to_owned));
        lines.collect::<Vec<_>>()
    };
    let wider = |place: &str| format!("let its cgroup use every CPU: echo 0-3 > {place}");
    let both = ["/cgroup/a/cpuset.cpus", "/cgroup/a/b/cpuset.cpus"].map(wider);
    assert_eq!(lines(&load), both);
    // Its own CPUs are fewer than those of its cgroup.
    load.cpusets.pop();
    let pinned = "let vCPU 0 use every CPU: taskset -cp 0-3 1".to_owned();
    assert_eq!(lines(&load), [both[0].clone(), pinned]);
    let unit = |version| vec![set("/cgroup/vm.scope", &[2], version)];
    load.cpusets = unit(CgroupVersion::V2);
    let by_unit =
        "let its cgroup use every CPU: systemctl set-property --runtime vm.scope AllowedCPUs=0-3";
    assert_eq!(lines(&load), [by_unit]);
    load.cpusets = unit(CgroupVersion::V1);
    assert_eq!(lines(&load), [wider("/cgroup/vm.scope/cpuset.cpus")]);
    // Two vCPUs there share its CPU, whatever `tare pin` would choose.
    let mut second = load.vcpus[0].clone();
    (second.index, second.tid) = (1, 2);
    load.vcpus.push(second);
    let found = first(&load);
    assert_eq!(found.cause, Cause::PinnedTogether);
    let text = found.remedies.iter().map(|it| it.render(str::to_owned));
    let text: Vec<_> = text.collect();
    assert_eq!(text.len(), 2, "{text:?}");
    assert_eq!(text[0], wider("/cgroup/vm.scope/cpuset.cpus"));
}
