//! What the wake-ups say: KVM Message Passing 2015's table beside this machine's.

use tare_account::Step;
use tare_lab::kit::{
    Data, Distribution, Figure, ReportText, Row, Statistic, Template, number, percentiles, table,
};

use super::{
    ARMS, GAP, IpiHalt, NEVER, P50, POLL, POLL_TO_NEVER, POLLS, QUANTILES, RING_3,
    RING_3_TO_RING_0, STEP, TURN_MEDIAN, WAKE,
};
use crate::guest_bench::{self, Arm};

/// Polling's wake-ups over scheduling's in KVM Message Passing 2015: 1 to 3.5.
const REPORTED_RATIO: f64 = 0.2857;

/// Medians against those of an image in ring 0 that is scheduled, round by round.
pub(super) fn ratios(data: &Data) -> impl Iterator<Item = Figure> {
    let ratios = [(POLL_TO_NEVER, POLL), (RING_3_TO_RING_0, RING_3)];
    ratios.into_iter().filter_map(|(metric, arm)| {
        metric.median("", &data.samples.ratios(TURN_MEDIAN.name, [arm, NEVER]))
    })
}

/// Median of each step of a wake-up that is scheduled. One machine was watched, so there is one
/// sample, without an interval. The count of a bucket may be any number: it is not expanded.
pub(super) fn steps(experiment: &IpiHalt) -> impl Iterator<Item = Figure> {
    let steps = experiment.watched.as_ref().map(guest_bench::steps);
    steps.into_iter().flatten().filter_map(|(step, times)| {
        let ns = times.quantile_ns(0.5)? as f64;
        let name = STEP.of(&format!("{}.{NEVER}", guest_bench::step_name(step)));
        let statistic = Statistic::Quantile;
        Some(Figure::bare(&name, STEP.unit, ns, statistic, 1))
    })
}

/// Share of wake-ups of each machine for which KVM polled and was woken while it did.
pub(super) fn polling(data: &Data, arm: &Arm) -> Option<Figure> {
    POLLS.median(arm.name, data.samples.values(&POLLS.of(arm.name)))
}

/// Whether two arms differ, by what was randomised: a value for each machine that was booted.
fn exchanged(a: &[f64], b: &[f64]) -> String {
    let machines = a.len().min(b.len());
    match tare_stats::permutation(a, b) {
        Some(p) if p < 0.001 => format!("By {machines} machines of each arm, p is below 0.001."),
        Some(p) => format!("By {machines} machines of each arm, p is {p:.3}."),
        None => format!(
            "No p: {machines} machines of each arm ran, and a test needs {}.",
            tare_stats::LEAST_UNITS
        ),
    }
}

pub(super) fn report_text(experiment: &IpiHalt, figures: &[Figure]) -> ReportText {
    let data = &experiment.data;
    let machines = [POLL, NEVER].map(|arm| data.medians(WAKE, arm));
    let (turns, failed) = &experiment.ring_3;
    let (whole, some): (Vec<&String>, Vec<&String>) =
        failed.iter().partition(|_| failed.len() == *turns);
    let lost = lost_polls(data);
    let ratio = POLL_TO_NEVER.value(figures, "");
    let suffixes = QUANTILES.map(|(metric, _)| metric.name.trim_start_matches("wake_cycles_"));
    let text = Template::new(include_str!("report.md"), super::METRICS, figures)
        .set("gap_us", GAP.as_micros())
        .set("exchanged", exchanged(&machines[0], &machines[1]))
        .set("image", &experiment.image)
        .set("rounds", experiment.rounds)
        .set("samples", experiment.samples)
        .set("quantiles", suffixes.join(", "))
        .maybe("us_per_cycle", experiment.khz.map(|khz| 1e3 / khz))
        .maybe("no_ring_3", whole.first())
        .set("failed", some.len())
        .set("turns", turns)
        .maybe("why", some.first())
        .maybe("polls", lost.map(|lost| number(lost[0])))
        .maybe("caught", lost.map(|lost| number(lost[1])))
        .maybe("lost_ns", lost.map(|lost| number(lost[2].round())))
        .only_if("saved_less", ratio.is_some_and(|it| it > REPORTED_RATIO));
    let sections = [
        text.section("wakes", chart(experiment)),
        text.tabled("steps", watched_steps(experiment)),
        text.tabled("counters", counters(data)),
        histogram(data).and_then(|html| text.section("histogram", html)),
    ];
    let measured = ARMS
        .iter()
        .filter(|arm| P50.find(figures, arm.name).is_some());
    text.report_with(measured.map(Arm::row), sections, &data.missing)
}

fn chart(experiment: &IpiHalt) -> String {
    let arms = ARMS.iter().enumerate();
    let distributions = arms.filter_map(|(series, arm)| {
        let us = experiment.cycles(arm)? * 1e3 / experiment.khz?;
        let wakes = experiment.data.of(WAKE, arm.name);
        let scaled: Vec<f64> = wakes.iter().map(|wake| wake * us).collect();
        Distribution::of(series, &scaled)
    });
    percentiles(
        &ARMS.each_ref().map(|arm| arm.name),
        &distributions.collect::<Vec<_>>(),
        "Wake-up time by percentile for the arms",
    )
}

/// A wake-up taken apart at KVM's and the scheduler's trace points.
fn watched_steps(experiment: &IpiHalt) -> impl Iterator<Item = Row> {
    let steps = experiment.watched.as_ref().map(guest_bench::steps);
    steps.into_iter().flatten().map(|(step, times)| {
        let us = |ns: Option<u64>| ns.map(|ns| number(ns as f64 / 1e3));
        vec![
            ("step", Some(guest_bench::step_name(step).to_owned())),
            ("about", Some(about(step).to_owned())),
            ("count", Some(times.count().to_string())),
            ("p50", us(times.quantile_ns(0.5))),
            ("p90", us(times.quantile_ns(0.9))),
            ("mean", us(times.mean_ns())),
        ]
    })
}

/// Between which events a step lies.
const fn about(step: Step) -> &'static str {
    match step {
        Step::Send => "ICR written (kvm_apic_ipi), interrupt in the target's APIC",
        Step::Kick => "to waking the target's thread (sched_waking)",
        Step::Schedule => "to the thread on a CPU (sched_switch)",
        Step::Return => "to KVM out of its wait (kvm_vcpu_wakeup)",
        Step::Entry => "to entering the guest (kvm_entry)",
        Step::Handler => "to the handler's end of interrupt (kvm_eoi)",
        Step::Total => "all of it",
    }
}

/// KVM's own account of the halts.
fn counters(data: &Data) -> impl Iterator<Item = Row> {
    let names = [
        "halt_exits",
        "halt_attempted_poll",
        "halt_successful_poll",
        "halt_wakeup",
        "halt_wait_ns",
        "halt_poll_success_ns",
        "halt_poll_fail_ns",
    ]
    .into_iter()
    .filter(|_| !data.counted.is_empty());
    names.map(|name| {
        let of = |arm| (arm, data.counter(arm, name).map(number));
        vec![("counter", Some(name.to_owned())), of(NEVER), of(POLL)]
    })
}

/// KVM's histogram of waits and polls.
fn histogram(data: &Data) -> Option<String> {
    let names = [
        "halt_wait_hist",
        "halt_poll_success_hist",
        "halt_poll_fail_hist",
    ];
    let series: Vec<(String, &Vec<u64>)> = [NEVER, POLL]
        .into_iter()
        .filter_map(|arm| Some((arm, data.counted.get(arm)?)))
        .flat_map(|(arm, counted)| {
            names.into_iter().filter_map(move |name| {
                let buckets = counted.histograms.get(name)?;
                Some((format!("{arm}: {name}"), buckets))
            })
        })
        .filter(|(_, buckets)| buckets.iter().any(|count| *count > 0))
        .collect();
    let longest = series.iter().map(|(_, b)| b.len()).max()?;
    let used = |bucket: &usize| {
        let count = |b: &Vec<u64>| b.get(*bucket).copied().unwrap_or(0);
        series.iter().any(|(_, b)| count(b) > 0)
    };
    let rows = (0..longest).filter(used).map(|bucket| {
        let limit = number(2f64.powi(i32::try_from(bucket).unwrap_or(0)) / 1e3);
        let cells = series
            .iter()
            .map(|(_, b)| b.get(bucket).copied().unwrap_or(0).to_string());
        std::iter::once(format!("< {limit} µs"))
            .chain(cells)
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let names = series.iter().map(|(name, _)| name.as_str());
    let head: Vec<&str> = std::iter::once("time").chain(names).collect();
    Some(table(&head, &rows))
}

/// Polls of the polling arm, those that caught a wake-up, and how long the others lasted, ns:
/// where KVM ended most of them early, which it meant to do and could not.
fn lost_polls(data: &Data) -> Option<[f64; 3]> {
    let of = |name| data.counter(POLL, name);
    let (attempted, caught) = (of("halt_attempted_poll")?, of("halt_successful_poll")?);
    let failed = attempted - caught;
    let each = of("halt_poll_fail_ns")? / failed;
    (failed > attempted / 2.0).then_some([attempted, caught, each])
}
