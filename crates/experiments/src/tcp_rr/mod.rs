//! TCP_RR over the loopback (KVM Message Passing 2015): one byte each way between
//! two threads, inside the library OS and on the host, on one CPU and on two;
//! with what a transaction costs in halts, interrupts and timer writes.

#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use tare_control::stats::Kvm;
use tare_lab::kit::{Entry, Figure, Goal, Make, Metric, ReportText, metrics, row};

use super::guest_bench::{Arm, RunsIn, cpus, in_ring_3};
use super::ping_pong::{PingPong, PingPongSpec, suffix};

metrics! {
    RR: less("rr_us", "us");
    P99: less("rr_p99_us", "us");
    EXITS: less("exits_per_rr", "1");
}

/// At most one halt and one interrupt a message (two a transaction) between two
/// vCPUs, none on one. The timer is not written on a transaction's way. Its own
/// interrupt, for whatever deadline is nearest, comes once in 200 ms and is
/// followed by a write, which an emulated transaction of 8 to 16 ms meets more
/// often than one of 20 us.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("exits_per_rr.halt.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.ipi.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.timer.2vcpu", 0.0),
    Goal::on(&[Kvm::Emulated], "exits_per_rr.timer_renewed.2vcpu", 0.1),
    Goal::on(&[Kvm::Hardware], "exits_per_rr.timer_renewed.2vcpu", 0.001),
    Goal::on_any_kvm("exits_per_rr.halt.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.ipi.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.timer.1vcpu", 0.0),
];

/// What the guest counts, as its line names it.
const OWN: &[(&str, Metric, &str)] = &[
    ("halts", EXITS, "halt"),
    ("ipis", EXITS, "ipi"),
    ("timers", EXITS, "timer"),
    ("timers_renewed", EXITS, "timer_renewed"),
];

/// What KVM itself counts, then what the monitor serves. KVM's `exits` are more
/// than those on a KVM that emulates: also turns of the guest's loop.
const OF_KVM: &[(&str, Metric, &str)] = &[
    ("halt_exits", EXITS, "kvm_halt"),
    ("irq_injections", EXITS, "kvm_injected"),
    ("irq_window_exits", EXITS, "kvm_irq_window"),
    ("exits", EXITS, "kvm_exits"),
    ("insn_emulation", EXITS, "kvm_emulated"),
    ("pio_out", EXITS, "pio_out"),
    ("mmio_write", EXITS, "mmio_write"),
];

static ARMS: [Arm; 10] = [
    Arm::new("1vcpu.libos", "library OS, one vCPU", RunsIn::Tare(cpus(1))),
    Arm::new(
        "2vcpu.libos",
        "library OS, two vCPUs",
        RunsIn::Tare(cpus(2)),
    ),
    Arm::new(
        "1vcpu.qemu",
        "library OS in QEMU on the same KVM, one vCPU",
        RunsIn::Qemu(cpus(1)),
    ),
    Arm::new(
        "2vcpu.qemu",
        "library OS in QEMU on the same KVM, two vCPUs",
        RunsIn::Qemu(cpus(2)),
    ),
    Arm::new(
        "1vcpu.linux",
        "Linux guest in QEMU, one vCPU (translated where KVM emulates)",
        RunsIn::Linux { cpus: 1 },
    ),
    Arm::new(
        "2vcpu.linux",
        "Linux guest in QEMU, two vCPUs (translated where KVM emulates)",
        RunsIn::Linux { cpus: 2 },
    ),
    Arm::new(
        "1vcpu.host",
        "host, both threads pinned to one CPU",
        RunsIn::Host { cpus: 1 },
    ),
    Arm::new(
        "2vcpu.host",
        "host, threads pinned to two CPUs",
        RunsIn::Host { cpus: 2 },
    ),
    Arm::new(
        "1vcpu.ring3",
        "library OS in ring 3, one vCPU",
        RunsIn::Tare(in_ring_3(cpus(1))),
    ),
    Arm::new(
        "2vcpu.ring3",
        "library OS in ring 3, two vCPUs",
        RunsIn::Tare(in_ring_3(cpus(2))),
    ),
];

static KIND: PingPongSpec = PingPongSpec {
    image: "tcp-rr",
    word: "transactions",
    sizes: [(1, 60), (6, 100), (10, 1000)],
    turn: Duration::from_millis(900),
    each: Duration::from_millis(16),
    arms: &ARMS,
    times: "rr",
    series: RR.name,
    quantiles: [(RR, 0.5), (P99, 0.99)],
    number: "transactions",
    counters: OWN,
    of_kvm: OF_KVM,
    warm_up: 20.0,
    host: tare_load::transactions::measure,
    program: Some("tare-rr"),
    exits: Some(EXITS),
    metrics: METRICS,
    report: report_text,
};

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "tcp-rr",
    about: "one byte each way over the loopback, on one and two CPUs, guest and host",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(PingPong::new(&KIND, depth, image))),
};

fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    let text = experiment.text(include_str!("report.md"), figures);
    let guests = ARMS
        .iter()
        .filter(|arm| match arm.runs_in {
            RunsIn::Tare(_) | RunsIn::Qemu(_) => !experiment.data.of(RR.name, arm.name).is_empty(),
            RunsIn::Linux { .. } | RunsIn::Host { .. } => false,
        })
        .map(|arm| row([("about", arm.about), ("arm", suffix(arm))]));
    let kinds = kinds(figures).into_iter().map(|kind| row([("kind", kind)]));
    let sections = [
        text.section(
            "trips",
            experiment.percentiles("Transaction time by percentile"),
        ),
        text.tabled("costs", guests),
        text.tabled("kinds", kinds),
    ];
    text.report_with([], sections, &experiment.data.missing)
}

/// Kinds of exit as trace points tell them: whose names are not the counters' of the guest or
/// of KVM's statistics.
fn kinds(figures: &[Figure]) -> BTreeSet<&str> {
    let counted = |kind: &str| OWN.iter().chain(OF_KVM).any(|(_, _, it)| *it == kind);
    let kinds = figures.iter().filter_map(|figure| {
        let name = figure.name.strip_prefix(EXITS.name)?.strip_prefix('.')?;
        let (kind, cpus) = name.rsplit_once('.')?;
        let is_ours = ["1vcpu", "2vcpu"].contains(&cpus) && !kind.contains('.');
        (is_ours && !counted(kind)).then_some(kind)
    });
    kinds.collect()
}
