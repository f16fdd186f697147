//! What the messages say.

use super::{ARMS, PER_MESSAGE, ROUND_TRIP};
use crate::experiments::ping_pong::PingPong;
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::{ReportText, Row, row};

/// What KVM counts, as the table names it.
const COUNTED: [&str; 5] = [
    "halt_exits",
    "halt_wakeup",
    "irq_injections",
    "halt_attempted_poll",
    "halt_successful_poll",
];

pub(super) fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    let [two, one] =
        ["event", "one"].map(|arm| value(figures, &format!("round_trip_us_p50.{arm}")));
    let is_slower = two.zip(one).is_some_and(|(two, one)| two > 2.0 * one);
    let text = experiment
        .text(include_str!("report.md"), figures)
        .set(
            "counters",
            PER_MESSAGE.map(|(counter, _)| counter).join(", "),
        )
        .only_if("slower", is_slower);
    let arms = ARMS
        .iter()
        .map(|arm| row([("about", arm.about), ("arm", arm.name)]));
    let chart = experiment.percentiles("Round-trip time by percentile for the arms");
    let sections = [
        text.section("trips", chart),
        text.tabled("counted", counted(experiment)),
    ];
    let mut report = text.report();
    report.glance = text.table("Glance", arms);
    report.sections = sections.into_iter().flatten().collect();
    experiment.data.add_missing(&mut report);
    report
}

/// KVM's counts for each message, of the arms that have some.
fn counted(experiment: &PingPong) -> impl Iterator<Item = Row> {
    let data = &experiment.data;
    let arms = ARMS
        .iter()
        .filter(|arm| data.counted.contains_key(arm.name));
    arms.map(|arm| {
        let messages = data.of(ROUND_TRIP, arm.name).len() as f64 * 2.0;
        let each = COUNTED.map(|name| {
            let count = data.counter(arm.name, name);
            (name, count.map(|count| number(count / messages)))
        });
        row([("arm", arm.name)]).into_iter().chain(each).collect()
    })
}
