//! What is measured, in the order in which figures are read, and what the figures should be.

use tare_control::stats::Kvm;
use tare_lab::kit::{Goal, Metric};

/// What it measures.
pub(crate) const METRICS: &[Metric] = &[
    Metric::less("cpu_idle_pct", "%"),
    Metric::less("cpu_burst_pct", "%"),
    Metric::less("cpu_1rps_pct", "%"),
    Metric::less("idle_exits_per_s", "1/s"),
    Metric::less("latency_p50_us", "us"),
    Metric::less("latency_p90_us", "us"),
    Metric::less("latency_p99_us", "us"),
    Metric::more("rps_max", "1/s"),
    Metric::less("cpu_us_per_request", "us"),
    Metric::neither("ring", "1"),
    Metric::less("boot_insns", "insns"),
    Metric::less("insns_per_request", "insns"),
    Metric::less("insns_per_connection", "insns"),
    Metric::less("first_byte_ms", "ms"),
    Metric::less("first_line_ms", "ms"),
    Metric::less("monitor_rss_kib", "KiB"),
    Metric::less("image_bytes", "bytes"),
    Metric::less("tcg_insns_per_request", "insns"),
    Metric::less("tcg_insns_per_connection", "insns"),
    Metric::less("tcg_boot_insns", "insns"),
    Metric::less("exits_per_request", "1"),
    Metric::less("exits_per_connection", "1"),
    Metric::less("interrupts_per_request", "1"),
    Metric::less("interrupts_per_connection", "1"),
    Metric::more("carried_rps", "1/s"),
    Metric::less("settled_ms", "ms"),
    Metric::less("stats_request_us", "us"),
    Metric::less("passt_cpu_idle_pct", "%"),
    Metric::less("passt_cpu_burst_pct", "%"),
    Metric::less("passt_cpu_1rps_pct", "%"),
];

const ANY_KVM: &[Kvm] = &[Kvm::Emulated, Kvm::Hardware];
const HARDWARE: &[Kvm] = &[Kvm::Hardware];
const EMULATED: &[Kvm] = &[Kvm::Emulated];
const EVERYWHERE: &[Kvm] = &[Kvm::Emulated, Kvm::Hardware, Kvm::None];

const fn goal(figure: &'static str, at_most: f64, on: &'static [Kvm]) -> Goal {
    Goal::on(on, figure, at_most)
}

/// Goals for the figures.
pub(crate) const GOALS: &[Goal] = &[
    goal("cpu_idle_pct.tare", 0.05, ANY_KVM),
    goal("cpu_idle_pct.tare.2cpu", 0.05, ANY_KVM),
    goal("idle_exits_per_s.tare", 0.1, ANY_KVM),
    goal("idle_exits_per_s.tare.2cpu", 0.1, ANY_KVM),
    goal("cpu_burst_pct.tare", 2.0, EMULATED),
    goal("cpu_1rps_pct.tare", 0.05, EMULATED),
    goal("cpu_1rps_pct.tare", 3.0, HARDWARE),
    Goal::at_least(EMULATED, "rps_max.ring3.1", 4000.0),
    Goal::at_least(EMULATED, "rps_max.ring3.100", 15_000.0),
    goal("cpu_us_per_request.ring3.1", 60.0, EMULATED),
    goal("cpu_us_per_request.ring3.100", 30.0, EMULATED),
    goal("boot_insns", 1_000_000.0, EMULATED),
    goal("insns_per_request", 20_000.0, EMULATED),
    goal("insns_per_connection", 60_000.0, EMULATED),
    goal("first_byte_ms", 60.0, EMULATED),
    goal("first_byte_ms", 1000.0, HARDWARE),
    goal("first_line_ms.tcg", 49.0, EVERYWHERE),
    goal("monitor_rss_kib", 4096.0, ANY_KVM),
    goal("image_bytes", 420_000.0, EVERYWHERE),
];
