//! Two threads that signal each other (KVM Message Passing 2015, event objects): the
//! time of a round trip, and how many halts, interrupts and timer writes a
//! message costs, as the library OS's scheduler counts them.

mod host;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::guest_bench::Exchange;
use super::ping_pong::{Arm, PingPong, PingPongSpec, Where};
use crate::goal::Goal;
use crate::request::Depth;

/// Distribution of round trips, in us.
const ROUND_TRIP: &str = "round_trip_us";
/// The guest's counters that are given for each message, with their figures.
const PER_MESSAGE: [(&str, &str); 5] = [
    ("halts", "halts_per_message"),
    ("ipis", "ipis_per_message"),
    ("ipis_skipped", "ipis_skipped_per_message"),
    ("timers", "timers_per_message"),
    ("spins_caught", "caught_per_message"),
];

/// At most one halt and one interrupt a message between two CPUs, no timer
/// writes, none of all on one.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("halts_per_message.event", 1.0),
    Goal::on_any_kvm("halts_per_message.condvar", 1.0),
    Goal::on_any_kvm("halts_per_message.nospin", 1.0),
    Goal::on_any_kvm("halts_per_message.one", 0.0),
    Goal::on_any_kvm("ipis_per_message.event", 1.0),
    Goal::on_any_kvm("ipis_per_message.condvar", 1.0),
    Goal::on_any_kvm("ipis_per_message.nospin", 1.0),
    Goal::on_any_kvm("ipis_per_message.one", 0.0),
    Goal::on_any_kvm("timers_per_message.event", 0.0),
    Goal::on_any_kvm("timers_per_message.condvar", 0.0),
    Goal::on_any_kvm("timers_per_message.nospin", 0.0),
    Goal::on_any_kvm("timers_per_message.one", 0.0),
];

const fn arm(name: &'static str, about: &'static str, place: Where) -> Arm {
    Arm {
        name,
        suffix: name,
        about,
        place,
    }
}

const fn tare(cpus: u8, words: &'static str) -> Where {
    Where::Tare { cpus, words }
}

static ARMS: [Arm; 7] = [
    arm("event", "event: events, two vCPUs", tare(2, "by=event")),
    arm(
        "condvar",
        "condvar: condition variables, two vCPUs",
        tare(2, "by=condvar"),
    ),
    arm(
        "nospin",
        "nospin: events, two vCPUs, no spin before the halt",
        tare(2, "by=event halt_spin_ns=0"),
    ),
    arm(
        "spin",
        "spin: events, two vCPUs, a spin of up to 1 ms for any share of a CPU",
        tare(2, "by=event halt_spin_ns=1100000 halt_spin_budget=100"),
    ),
    arm(
        "one",
        "one: events, both threads on one vCPU",
        tare(1, "by=event"),
    ),
    arm(
        "qemu",
        "qemu: events, two vCPUs in QEMU on the same KVM",
        Where::Qemu {
            cpus: 2,
            words: "by=event",
        },
    ),
    arm(
        "host",
        "host: condition variables, two CPUs of the host",
        Where::Host { cpus: 2 },
    ),
];

static KIND: PingPongSpec = PingPongSpec {
    image: "events",
    exchange: Exchange {
        times: "round",
        series: ROUND_TRIP,
        number: "messages",
        counters: &PER_MESSAGE,
        of_kvm: &[],
        // 50 round trips of two messages.
        warm_up: 100.0,
    },
    word: "rounds",
    sizes: |depth| match depth {
        Depth::Quick => (1, 200),
        Depth::Standard => (6, 300),
        Depth::Full => (10, 1000),
    },
    turn: Duration::from_millis(700),
    each: Duration::from_millis(2),
    arms: &ARMS,
    program: None,
    exits: None,
    host: |rounds, _cpus| Ok(host::round_trips(rounds)),
    quantiles: &[("round_trip_us_p50", 0.5), ("round_trip_us_p99", 0.99)],
    goals: GOALS,
    report_text: report::report_text,
};

/// Planned for a depth; the image may be another than Tare's own.
pub(crate) fn planned(depth: Depth, image: Option<String>) -> PingPong {
    PingPong::new(&KIND, depth, image)
}
