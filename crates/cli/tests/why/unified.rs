//! A host with cgroups of version 2 alone: what `tare why` and `tare advise` say about a machine in a
//! group with a quota and one beside a neighbour on its group's CPU, and their commands, executed
//! there as printed.

use serde_json::Value;

use super::host::{Host, IMAGE};
use super::remedies::{allowed, lines};
use super::support::TestDir;
use super::{alone, expect_covered, found, vcpus_share};
use tare_vmtest::{image, or_skip};

const GROUPS: &str = "/sys/fs/cgroup";
/// By how much of a core shares of a window and of a longer time may differ: what a quota's period
/// stops lies on either side of the window's ends.
const EDGES: f64 = 0.15;
/// Windows, of which one must agree: a stall of the host moves the two readings apart, and lets a
/// group use so much at once that it is stopped for longer than a window, which the kernel counts at the end.
const WINDOWS: usize = 5;
/// Seconds in one of which a group must use what it now may.
const TRIES: usize = 5;

/// Starts a machine that spins, with these arguments. A host that is emulated by a busy one may not
/// have it answer in time: it starts sooner the second time, when its code has been translated.
fn spin(host: &mut Host, name: &str, more: &str) {
    host.run(&format!(
        "for try in 1 2 3; do tare run {IMAGE} -d --name {name} --net none {more} --cmdline \
         mode=spin && break; done"
    ));
}

/// The process of a machine of Tare's.
fn pid(host: &mut Host, name: &str) -> u64 {
    let listed: Value = serde_json::from_str(&host.run("tare ps --json")).unwrap();
    let mut rows = listed.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name);
    row.and_then(|row| row["pid"].as_u64()).unwrap()
}

/// The report of `tare why` about a machine of a host's.
fn why(host: &mut Host, target: &str) -> Value {
    let said = host.run(&format!("tare why {target} --seconds 1.5 --json"));
    let document: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    document["machines"][0].clone()
}

/// The host's time, and what a group has used and was stopped for, s.
fn times(host: &mut Host, group: &str) -> [f64; 3] {
    let said = host.run(&format!("cat /proc/uptime {group}/cpu.stat"));
    let field = |name: &str| {
        let value = said.lines().find_map(|line| line.strip_prefix(name));
        let us: f64 = value.unwrap().trim().parse().unwrap();
        us / 1e6
    };
    let now = said.split(' ').next().unwrap().parse().unwrap();
    [now, field("usage_usec"), field("throttled_usec")]
}

/// Share of a core that a group uses in a second.
fn usage(host: &mut Host, group: &str) -> f64 {
    let [since, used_before, _] = times(host, group);
    host.run("sleep 1");
    let [until, used, _] = times(host, group);
    (used - used_before) / (until - since)
}

/// The same once it is beyond a share, which the group may reach late: its last period under an old
/// quota ends first, and a stall of the host takes a whole second.
fn usage_beyond(host: &mut Host, group: &str, share: f64) -> f64 {
    let mut seconds = (0..TRIES).map(|_| usage(host, group));
    let reached = seconds.find(|used| *used > share);
    reached.unwrap_or_else(|| panic!("{group} never used more than {share}"))
}

/// The report about the machine with a quota, and the share of time for which its group was stopped:
/// the report's and that of `cpu.stat`; `None` where the report has no such finding.
fn throttled(host: &mut Host, group: &str) -> Option<(Value, f64, f64)> {
    let [since, _, stopped_before] = times(host, group);
    let told = why(host, "limited");
    let [until, _, stopped] = times(host, group);
    expect_covered(&told);
    let Some(cause) = found(&told, "throttled") else {
        println!("no finding of a quota: {}", told["findings"]);
        return None;
    };
    let (share, truth) = (
        cause["share"].as_f64().unwrap(),
        (stopped - stopped_before) / (until - since),
    );
    println!("{}, {share:.3}, by cpu.stat {truth:.3}", cause["what"]);
    Some((told, share, truth))
}

/// A quota, of `--limit-cpu`: the finding with the kernel's own share, and the quota and what the
/// group uses before and after the command. Returns the quota's file.
fn a_quota_is_named_and_raised(host: &mut Host) -> String {
    spin(host, "limited", "--limit-cpu 1.5");
    let group = host.run(&format!("echo {GROUPS}/tare/limited.*"));
    let (group, quota) = (group.trim_end(), format!("{}/cpu.max", group.trim_end()));
    assert_eq!(host.read(&quota), "150000 100000");
    host.run(&format!("echo 20000 100000 > {quota}"));
    let before = usage(host, group);
    let mut windows = (0..WINDOWS).filter_map(|_| throttled(host, group));
    let told = windows.find_map(|(told, share, truth)| {
        let agrees = (share - truth).abs() <= EDGES;
        agrees.then_some(told)
    });
    let told = told.expect("no window agrees with cpu.stat");
    let cause = found(&told, "throttled").unwrap();
    assert!(told["account"]["emulated"] == false, "{told}");
    let commands = lines(cause);
    assert_eq!(commands.len(), 1, "{cause}");
    host.run(&commands[0]);
    let raised = host.read(&quota);
    let quota_us: u64 = raised.strip_suffix(" 100000").unwrap().parse().unwrap();
    let after = usage_beyond(host, group, 2.0 * before);
    println!(
        "{}: {raised}; used before {before:.3}, after {after:.3}",
        commands[0]
    );
    assert!(quota_us > 100_000, "{raised}");
    quota
}

/// The advice takes the quota off, and pins the machine to a set of CPUs.
fn the_advice_takes_a_quota_off(host: &mut Host, quota: &str) {
    host.run(&format!("echo 20000 100000 > {quota}"));
    let said = host.run("tare advise limited --seconds 1 --json");
    let document: Value = serde_json::from_str(&said).unwrap();
    let mut told = document[0]["advice"].as_array().unwrap().iter();
    let rule = told.find(|it| it["rule"] == "set-instead-of-quota");
    let command = rule.unwrap_or_else(|| panic!("{document}"))["command"].as_str();
    host.run(command.unwrap());
    assert_eq!(host.read(quota), "max 100000");
    let pid = pid(host, "limited");
    let cpus = host.run(&format!(
        "grep -h Cpus_allowed_list /proc/{pid}/task/*/status"
    ));
    let cpus: Vec<&str> = cpus
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|it| it.1)
        .collect();
    println!("{}: {cpus:?}", command.unwrap());
    assert!(
        cpus.iter().all(|list| matches!(*list, "0" | "1")),
        "{cpus:?}"
    );
    host.run("tare pin limited --undo");
    host.run("tare stop limited --time 2");
}

/// A neighbour on the one CPU of its group: it is named, and the command gives the group every CPU.
fn a_neighbour_is_named_and_left(host: &mut Host) {
    host.run(&format!("mkdir {GROUPS}/beside {GROUPS}/hog"));
    spin(host, "beside", "");
    let pid = pid(host, "beside");
    for group in ["beside", "hog"] {
        host.run(&format!("echo 1 > {GROUPS}/{group}/cpuset.cpus"));
    }
    host.run(&format!("echo {pid} > {GROUPS}/beside/cgroup.procs"));
    host.run(&format!(
        "sh -c 'echo $$ > {GROUPS}/hog/cgroup.procs; while :; do :; done' > /dev/null 2>&1 &"
    ));
    let told = why(host, "beside");
    expect_covered(&told);
    let steal = found(&told, "steal").unwrap_or_else(|| panic!("{told}"));
    let (share, waited) = (
        steal["share"].as_f64().unwrap(),
        vcpus_share(&told, |thread| &thread["off_cpu"]["run_delay_ns"]),
    );
    println!("{}, {share:.3}: {}", steal["what"], steal["evidence"]);
    assert!((share - waited).abs() < 1e-6, "{steal}");
    // Sampled as thinly as here, the evidence may name others before it.
    let threads = told["account"]["threads"].as_array().unwrap().iter();
    let takers = threads.filter_map(|thread| thread["off_cpu"]["preempted_by"].as_array());
    assert!(takers.flatten().any(|it| it["process"] == "sh"), "{told}");
    assert_eq!(allowed(&told), [1]);
    let before = usage(host, &format!("{GROUPS}/beside"));
    for line in lines(steal) {
        println!("{line}");
        host.run(&line);
    }
    let after = usage_beyond(host, &format!("{GROUPS}/beside"), before);
    println!("used before {before:.3}, after {after:.3}");
    assert_eq!(host.read(&format!("{GROUPS}/beside/cpuset.cpus")), "0-1");
}

/// A group whose list of CPUs was empty is pinned and put back: its threads have every CPU
/// again, though the kernel keeps the list of a group with tasks from becoming empty.
fn a_group_without_a_list_is_pinned_and_put_back(host: &mut Host) {
    let group = format!("{GROUPS}/bare");
    host.run(&format!(
        "mkdir {group}; cat {GROUPS}/hog/cgroup.procs > {group}/cgroup.procs"
    ));
    let cpus = format!("{group}/cpuset.cpus");
    assert_eq!(host.read(&cpus), "");
    host.run(&format!("tare pin {group} --cpus 1"));
    assert_eq!(host.read(&cpus), "1");
    let undone = host.run(&format!("tare pin {group} --undo"));
    println!("{undone}");
    assert_eq!(host.read(&format!("{cpus}.effective")), "0-1");
    let status = host.run(&format!("cat /proc/$(cat {group}/cgroup.procs)/status"));
    assert!(status.contains("Cpus_allowed_list:\t0-1\n"), "{status}");
}

#[test]
fn quotas_and_cpusets_of_cgroup_version_2_are_named_and_changed_as_printed() {
    let _alone = alone();
    let Some(image) = or_skip(image("storm")) else {
        return;
    };
    let place = TestDir::new();
    let Some(mut host) = Host::boot(&place, &image) else {
        return;
    };
    let controllers = format!("{GROUPS}/cgroup.subtree_control");
    host.run(&format!("echo '+cpu +cpuset' > {controllers}"));
    let quota = a_quota_is_named_and_raised(&mut host);
    the_advice_takes_a_quota_off(&mut host, &quota);
    a_neighbour_is_named_and_left(&mut host);
    a_group_without_a_list_is_pinned_and_put_back(&mut host);
}
