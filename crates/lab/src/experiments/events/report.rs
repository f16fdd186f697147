//! What the messages say.

use super::{ARMS, PER_MESSAGE, ROUND_TRIP};
use crate::experiments::guest_bench::not_measured;
use crate::experiments::ping_pong::PingPong;
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::svg::percentiles;
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "What a message between two threads costs in a virtual machine".to_owned(),
        question: "Two threads of an appliance signal each other in turn. On two vCPUs each \
                   message ends a halt; what that takes beyond the message is exits: the halt, \
                   the interrupt, and, in KVM Message Passing 2015's guest, eight writes to the APIC's timer for \
                   each transaction."
            .to_owned(),
        glance: glance(figures),
        answer: answer(figures),
        sections: sections(experiment),
        method: method(experiment),
        limitations: limitations(experiment, figures),
    }
}

fn glance(figures: &[Figure]) -> String {
    let names = [
        "round_trip_us_p50",
        "round_trip_us_p99",
        "halts_per_message",
        "ipis_per_message",
        "timers_per_message",
    ];
    let rows: Vec<Vec<String>> = ARMS
        .iter()
        .filter(|arm| value(figures, &format!("round_trip_us_p50.{}", arm.name)).is_some())
        .map(|arm| {
            let of = |name: &str| {
                let found = value(figures, &format!("{name}.{}", arm.name));
                found.map_or("–".to_owned(), number)
            };
            let cells = names.into_iter().map(of);
            std::iter::once(arm.about.to_owned()).chain(cells).collect()
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table(
            &["medians", "trip, µs", "p99, µs", "halts", "IPIs", "timers"],
            &rows,
        )
    }
}

fn answer(figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    if let (Some(halts), Some(ipis), Some(timers)) = (
        get("halts_per_message.event"),
        get("ipis_per_message.event"),
        get("timers_per_message.event"),
    ) {
        sentences.push(format!(
            "Between two vCPUs a message costs {} halts, {} interrupts and {} timer writes. The \
             KVM Message Passing 2015's guest did 2 halts, 2 interrupts and 8 timer writes for a transaction of two \
             messages.",
            number(halts),
            number(ipis),
            number(timers)
        ));
    }
    if let (Some(caught), Some(ipis), Some(without)) = (
        get("caught_per_message.spin"),
        get("ipis_per_message.spin"),
        get("ipis_per_message.nospin"),
    ) {
        sentences.push(format!(
            "A spin of up to a millisecond catches {} of a message's wake-ups and leaves {} \
             interrupts of the {} without any spin.",
            number(caught),
            number(ipis),
            number(without)
        ));
    }
    if let (Some(two), Some(one)) = (get("round_trip_us_p50.event"), get("round_trip_us_p50.one")) {
        sentences.push(format!(
            "A round trip takes {} µs at the median on two vCPUs and {} µs on one, where it needs \
             two switches and no exit.",
            number(two),
            number(one)
        ));
    }
    sentences
}

fn sections(experiment: &PingPong) -> Vec<Section> {
    let mut sections = Vec::new();
    let names = experiment.names();
    let distributions = experiment.data.distributions(ROUND_TRIP, &names);
    if !distributions.is_empty() {
        sections.push(Section {
            title: "Round trips by percentile".to_owned(),
            lead: "Two messages, there and back, on a logarithmic scale; dots: median and 99th \
                   percentile. Lower is better."
                .to_owned(),
            html: percentiles(
                &names,
                &distributions,
                "Round-trip time by percentile for the arms",
            ),
        });
    }
    sections.extend(cross_check(experiment));
    sections
}

/// KVM's halts beside the guest's own.
fn cross_check(experiment: &PingPong) -> Option<Section> {
    let data = &experiment.data;
    let rows: Vec<Vec<String>> = ARMS
        .iter()
        .filter(|arm| data.counted.contains_key(arm.name))
        .map(|arm| {
            let messages = data.of(ROUND_TRIP, arm.name).len() as f64 * 2.0;
            let of = |name| data.counter(arm.name, name);
            let cell = |name| of(name).map_or("–".into(), |v| number(v / messages));
            vec![
                arm.name.to_owned(),
                cell("halt_exits"),
                cell("halt_wakeup"),
                cell("irq_injections"),
                cell("halt_attempted_poll"),
                cell("halt_successful_poll"),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Section {
        title: "What KVM counted for each message".to_owned(),
        lead: "From KVM's statistics of both vCPUs, read while the guest slept before its first \
               message and after its last: warm-up, printing and the wait at the end are in them, \
               so they are a little above the guest's own counts."
            .to_owned(),
        html: table(
            &[
                "arm",
                "halts",
                "wake-ups",
                "interrupts",
                "polls",
                "polls that caught",
            ],
            &rows,
        ),
    })
}

fn method(experiment: &PingPong) -> Vec<String> {
    vec![
        format!(
            "Image {}; {} turns of {} round trips for each arm, arms in rotated order, a new \
             machine for each turn, 50 round trips before the first that counts.",
            experiment.image, experiment.turns, experiment.exchanges
        ),
        "A round trip is two messages: the first thread signals and waits, the second waits and \
         signals. The time stamp counter is read once for each."
            .to_owned(),
        format!(
            "{} come from the scheduler of the library OS, summed over its cores, between the \
             first counted round trip and the last.",
            PER_MESSAGE.map(|(counter, _)| counter).join(", ")
        ),
        "qemu is one turn in QEMU on the same KVM: its firmware takes seconds where that emulates."
            .to_owned(),
        "host is the same with std's Mutex and Condvar on two pinned threads, without any guest."
            .to_owned(),
    ]
}

fn limitations(experiment: &PingPong, figures: &[Figure]) -> Vec<String> {
    let mut sentences: Vec<String> = not_measured(&experiment.data).collect();
    let two = value(figures, "round_trip_us_p50.event");
    let one = value(figures, "round_trip_us_p50.one");
    if two.zip(one).is_some_and(|(two, one)| two > 2.0 * one) {
        sentences.push(
            "Two vCPUs take more than twice the time of one for the same messages: threads that \
             only answer each other are better off on one core."
                .to_owned(),
        );
    }
    sentences
}
