//! Two threads that signal each other (KVM Message Passing 2015, event objects): the
//! time of a round trip, and how many halts, interrupts and timer writes a
//! message costs, as the library OS's scheduler counts them.

#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use tare_lab::kit::{Entry, Figure, Goal, Make, ReportText, Row, metrics, number, row};

use super::guest_bench::{Arm, RunsIn, Settings, cpus, in_ring_3};
use super::ping_pong::{PingPong, PingPongSpec};

/// Distribution of round trips, in us.
const ROUND_TRIP: &str = "round_trip_us";

metrics! {
    P50: less("round_trip_us_p50", "us");
    P99: less("round_trip_us_p99", "us");
    HALTS: less("halts_per_message", "1");
    IPIS: less("ipis_per_message", "1");
    SKIPPED: more("ipis_skipped_per_message", "1");
    TIMERS: less("timers_per_message", "1");
    CAUGHT: neither("caught_per_message", "1");
}

/// At most one halt and one interrupt a message between two CPUs, no timer
/// writes, none of all on one.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("halts_per_message.event", 1.0),
    Goal::on_any_kvm("halts_per_message.condvar", 1.0),
    Goal::on_any_kvm("halts_per_message.nospin", 1.0),
    Goal::on_any_kvm("halts_per_message.ring3", 1.0),
    Goal::on_any_kvm("halts_per_message.one", 0.0),
    Goal::on_any_kvm("halts_per_message.one3", 0.0),
    Goal::on_any_kvm("ipis_per_message.event", 1.0),
    Goal::on_any_kvm("ipis_per_message.condvar", 1.0),
    Goal::on_any_kvm("ipis_per_message.nospin", 1.0),
    Goal::on_any_kvm("ipis_per_message.ring3", 1.0),
    Goal::on_any_kvm("ipis_per_message.one", 0.0),
    Goal::on_any_kvm("ipis_per_message.one3", 0.0),
    Goal::on_any_kvm("timers_per_message.event", 0.0),
    Goal::on_any_kvm("timers_per_message.condvar", 0.0),
    Goal::on_any_kvm("timers_per_message.nospin", 0.0),
    Goal::on_any_kvm("timers_per_message.one", 0.0),
];

const fn with(count: u8, cmdline: &'static str) -> Settings {
    Settings {
        cmdline,
        ..cpus(count)
    }
}

const SPIN: &str = "by=event halt_spin_ns=1100000 halt_spin_budget=100";

static ARMS: [Arm; 9] = [
    Arm::new(
        "event",
        "event: events, two vCPUs",
        RunsIn::Tare(with(2, "by=event")),
    ),
    Arm::new(
        "condvar",
        "condvar: condition variables, two vCPUs",
        RunsIn::Tare(with(2, "by=condvar")),
    ),
    Arm::new(
        "nospin",
        "nospin: events, two vCPUs, no spin before the halt",
        RunsIn::Tare(with(2, "by=event halt_spin_ns=0")),
    ),
    Arm::new(
        "spin",
        "spin: events, two vCPUs, a spin of up to 1 ms for any share of a CPU",
        RunsIn::Tare(with(2, SPIN)),
    ),
    Arm::new(
        "one",
        "one: events, both threads on one vCPU",
        RunsIn::Tare(with(1, "by=event")),
    ),
    Arm::new(
        "qemu",
        "qemu: events, two vCPUs in QEMU on the same KVM",
        RunsIn::Qemu(with(2, "by=event")),
    ),
    Arm::new(
        "host",
        "host: condition variables, two CPUs of the host",
        RunsIn::Host { cpus: 2 },
    ),
    Arm::new(
        "ring3",
        "ring3: events, two vCPUs, image in ring 3",
        RunsIn::Tare(in_ring_3(with(2, "by=event"))),
    ),
    Arm::new(
        "one3",
        "one3: events, both threads on one vCPU, image in ring 3",
        RunsIn::Tare(in_ring_3(with(1, "by=event"))),
    ),
];

static KIND: PingPongSpec = PingPongSpec {
    image: "events",
    word: "rounds",
    sizes: [(1, 200), (6, 300), (10, 1000)],
    turn: Duration::from_millis(700),
    each: Duration::from_millis(2),
    arms: &ARMS,
    times: "round",
    series: ROUND_TRIP,
    quantiles: [(P50, 0.5), (P99, 0.99)],
    number: "messages",
    counters: &[
        ("halts", HALTS, ""),
        ("ipis", IPIS, ""),
        ("ipis_skipped", SKIPPED, ""),
        ("timers", TIMERS, ""),
        ("spins_caught", CAUGHT, ""),
    ],
    of_kvm: &[],
    // 50 round trips of two messages.
    warm_up: 100.0,
    host: tare_load::round_trips::measure,
    program: None,
    exits: None,
    metrics: METRICS,
    report: report_text,
};

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "events",
    about: "two threads that signal each other: round trips, halts and interrupts a message",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(PingPong::new(&KIND, depth, image))),
};

/// What KVM counts, as the table names it.
const COUNTED: [&str; 5] = [
    "halt_exits",
    "halt_wakeup",
    "irq_injections",
    "halt_attempted_poll",
    "halt_successful_poll",
];

fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    let [two, one] = ["event", "one"].map(|arm| P50.value(figures, arm));
    let is_slower = two.zip(one).is_some_and(|(two, one)| two > 2.0 * one);
    let counters: Vec<&str> = KIND.counters.iter().map(|counter| counter.0).collect();
    let text = experiment
        .text(include_str!("report.md"), figures)
        .set("counters", counters.join(", "))
        .only_if("slower", is_slower);
    let chart = experiment.percentiles("Round-trip time by percentile for the arms");
    let sections = [
        text.section("trips", chart),
        text.tabled(
            "counted",
            ARMS.iter().filter_map(|arm| counted(experiment, arm)),
        ),
    ];
    text.report_with(
        ARMS.iter().map(Arm::row),
        sections,
        &experiment.data.missing,
    )
}

/// KVM's counts for each message, of an arm that has some.
fn counted(experiment: &PingPong, arm: &Arm) -> Option<Row> {
    let data = &experiment.data;
    data.counted.get(arm.name)?;
    let messages = data.of(ROUND_TRIP, arm.name).len() as f64 * 2.0;
    let each = COUNTED.map(|name| {
        let count = data.counter(arm.name, name);
        (name, count.map(|count| number(count / messages)))
    });
    Some(row([("arm", arm.name)]).into_iter().chain(each).collect())
}
