//! What is measured, and the goals. What vIC 2011 gained is a quotient of two arms, of which less is
//! better.

use tare_control::stats::Kvm;
use tare_lab::kit::{Goal, Metric};

/// What it measures.
pub(crate) const METRICS: &[Metric] = &[
    Metric::more("iops", "1/s"),
    Metric::less("interrupts_per_io", "1"),
    Metric::less("cpu_us_per_io", "us"),
    Metric::less("latency_p50_us", "us"),
    Metric::less("latency_p99_us", "us"),
    Metric::less("instructions_per_io", "insns"),
    Metric::neither("delivered_per_io", "1"),
    Metric::neither("in_flight", "1"),
    Metric::less("fsync_p50_us", "us"),
    Metric::less("fsync_p99_us", "us"),
    Metric::less("commit_p50_us", "us"),
    Metric::less("iops_off_over_vic", "1"),
    Metric::less("cpu_vic_over_off", "1"),
    Metric::less("latency_vic_over_off", "1"),
    Metric::less("latency_p99_vic_over_off", "1"),
    Metric::neither("iops_off_over_again", "1"),
    Metric::neither("cpu_again_over_off", "1"),
    Metric::neither("latencies_in_window", "1"),
    Metric::neither("latency_again_over_off", "1"),
    Metric::neither("latency_p99_again_over_off", "1"),
    Metric::less("fsync_vic_over_off", "1"),
    Metric::less("fsync_plain_over_off", "1"),
    Metric::more("iops_gain_pct", "%"),
    Metric::more("cpu_gain_pct", "%"),
    Metric::more("instructions_gain_pct", "%"),
    Metric::less("instructions_per_interrupt", "insns"),
    Metric::less("interrupt_share_pct", "%"),
    Metric::less("decision_ns", "ns"),
    Metric::less("policy_text_bytes", "bytes"),
    Metric::less("worst_cost", "1"),
    Metric::more("tps", "1/s"),
    Metric::less("db_latency_ms", "ms"),
    Metric::less("db_interrupts_per_s", "1/s"),
    Metric::less("db_interrupts_per_io", "1"),
    Metric::more("db_iops", "1/s"),
    Metric::neither("db_in_flight", "1"),
];

const ANY_KVM: &[Kvm] = &[Kvm::Emulated, Kvm::Hardware];

/// vIC 2011: +19 % IOPS and -17 % CPU for each I/O.
const IOPS: f64 = 1.0 / 1.19;
const CPU: f64 = 0.83;

pub(super) const GOALS: &[Goal] = &[
    // 8/CIF, as the table has it.
    Goal::on_any_kvm("interrupts_per_io.cif16.vic", 0.5),
    Goal::on_any_kvm("interrupts_per_io.cif32.vic", 0.25),
    Goal::on_any_kvm("interrupts_per_io.cif64.vic", 0.125),
    Goal::on_any_kvm("iops_off_over_vic.cif32", IOPS),
    Goal::on_any_kvm("iops_off_over_vic.cif64", IOPS),
    Goal::on_any_kvm("cpu_vic_over_off.cif32", CPU),
    Goal::on_any_kvm("cpu_vic_over_off.cif64", CPU),
    // The same where the guest is never idle, as in vIC 2011.
    Goal::on_any_kvm("iops_off_over_vic.cif32.busy", IOPS),
    Goal::on_any_kvm("iops_off_over_vic.cif64.busy", IOPS),
    Goal::on_any_kvm("cpu_vic_over_off.cif32.busy", CPU),
    Goal::on_any_kvm("cpu_vic_over_off.cif64.busy", CPU),
    // Nothing gets worse where there is little to save.
    Goal::on_any_kvm("latency_vic_over_off.cif1", 1.02),
    Goal::on_any_kvm("latency_vic_over_off.cif2", 1.02),
    Goal::on_any_kvm("latency_vic_over_off.cif3", 1.02),
    Goal::on_any_kvm("latency_vic_over_off.cif4", 1.02),
    Goal::on_any_kvm("latency_vic_over_off.cif6", 1.02),
    Goal::on_any_kvm("latency_vic_over_off.cif8", 1.02),
    // What the data path carries from a disk in memory.
    Goal::at_least(ANY_KVM, "iops.cif64.busy.off", 100_000.0),
    Goal::on_any("worst_cost.mixed", 1.02),
    Goal::on_any("worst_cost.other", 1.02),
    Goal::on_any_kvm("fsync_vic_over_off", 1.05),
];
