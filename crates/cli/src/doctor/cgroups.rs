//! Placement of threads: CPU sets.

use std::fs;
use std::path::Path;

use super::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![cpusets(), clock()]
}

fn cpusets() -> Finding {
    let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if unified
        .split_ascii_whitespace()
        .any(|name| name == "cpuset")
    {
        return Finding::ok("cpusets", "cgroup v2");
    }
    if Path::new("/sys/fs/cgroup/cpuset/cpuset.cpus").exists() {
        return Finding::ok("cpusets", "cgroup v1");
    }
    Finding::limited(
        "cpusets",
        "no cpuset controller: tare pin can pin only by thread (sched_setaffinity)",
    )
    .remedy("use a kernel with CONFIG_CPUSETS, and delegate the controller to this user")
}

/// Every figure is a difference of clock readings.
fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path).as_deref().map(str::trim) {
        Ok(source @ ("tsc" | "kvm-clock")) => Finding::ok("clock", source),
        Ok(source) => Finding::limited("clock", format!("{source}, which is slow to read"))
            .remedy("a host with a stable TSC uses tsc"),
        Err(error) => Finding::missing("clock", format!("cannot read the clock source ({error})")),
    }
}
