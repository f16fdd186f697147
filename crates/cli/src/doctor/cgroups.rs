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
        "no cgroup controller: only by thread (sched_setaffinity)",
    )
    .remedy("a kernel with CONFIG_CPUSETS, and the controller delegated to this user")
}

/// Every figure is a difference of clock readings.
fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path).as_deref().map(str::trim) {
        Ok(source @ ("tsc" | "kvm-clock")) => Finding::ok("clock", source),
        Ok(source) => Finding::limited("clock", format!("{source}: reading it is slow"))
            .remedy("a host whose TSC is stable has tsc here"),
        Err(error) => Finding::missing("clock", format!("its source is not readable ({error})")),
    }
}
