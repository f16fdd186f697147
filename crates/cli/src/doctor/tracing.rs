//! What can be observed on this kernel: BPF and trace points.

use std::fs;
use std::path::Path;

use rustix::thread::CapabilitySet;

use super::finding::Finding;

/// Where tracefs is mounted, newer place first.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

pub(super) fn findings() -> Vec<Finding> {
    vec![trace_points(), bpf(), perf_events()]
}

fn trace_points() -> Finding {
    let events = TRACEFS
        .iter()
        .map(|dir| Path::new(dir).join("events"))
        .find(|events| events.join("sched").is_dir());
    match events {
        Some(events) if events.join("kvm/kvm_exit").is_dir() => Finding::ok(
            "trace points",
            format!("{}, with those of KVM", events.display()),
        ),
        Some(events) => Finding::limited(
            "trace points",
            format!("{}, without those of KVM", events.display()),
        )
        .remedy("load the module that has them: modprobe kvm"),
        None => Finding::missing("trace points", "cannot read tracefs")
            .remedy("as root: mount -t tracefs nodev /sys/kernel/tracing"),
    }
}

fn bpf() -> Finding {
    let types = Path::new("/sys/kernel/btf/vmlinux").exists();
    let capable = has_any(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    match (capable, types) {
        (true, true) => Finding::ok("bpf", "allowed, with the kernel's type information"),
        (true, false) => Finding::limited("bpf", "allowed, without /sys/kernel/btf/vmlinux")
            .remedy("use a kernel with CONFIG_DEBUG_INFO_BTF"),
        (false, _) => Finding::missing("bpf", "not allowed for this user")
            .remedy("tare why and top need root, or CAP_BPF and CAP_PERFMON"),
    }
}

fn perf_events() -> Finding {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    let capable = has_any(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN);
    match level {
        Some(level) if capable || level < 0 => {
            Finding::ok("perf events", format!("perf_event_paranoid {level}"))
        }
        Some(level) if level < 2 => Finding::limited(
            "perf events",
            format!("perf_event_paranoid {level}: only this user's processes"),
        ),
        Some(level) => Finding::missing("perf events", format!("perf_event_paranoid {level}"))
            .remedy("run as root, or: sysctl kernel.perf_event_paranoid=-1"),
        None => Finding::missing("perf events", "this kernel has no perf events"),
    }
}

/// Whether this process has one of them.
fn has_any(wanted: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.intersects(wanted))
}
