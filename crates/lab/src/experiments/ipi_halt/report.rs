//! What the wake-ups say: KVM Message Passing 2015's table beside this machine's.

use tare_account::Step;

use super::{Arm, GAP, IpiHalt, QUANTILES, TURN_MEDIAN, WAKE};
use crate::experiments::guest_bench::{self, Data, exchanged, not_measured};
use crate::figure::{Figure, find, median, quantile, value};
use crate::number::number;
use crate::report::svg::{Distribution, percentiles};
use crate::report::{ReportText, Section, table};

/// The table of KVM Message Passing 2015: min, p50, p99, max in cycles and p50 in µs.
const REPORTED: [(&str, [&str; 5]); 3] = [
    (
        "KVM Message Passing 2015: KVM, schedules on HLT",
        ["13,800", "14,900", "24,900", "521,000", "5.7"],
    ),
    (
        "KVM Message Passing 2015: KVM, polls on HLT",
        ["4,000", "4,300", "6,900", "50,000", "1.7"],
    ),
    (
        "KVM Message Passing 2015: bare metal",
        ["1,200", "1,200", "1,300", "1,400", "0.5"],
    ),
];

/// Polling's wake-ups over scheduling's in KVM Message Passing 2015: 1 to 3.5.
const REPORTED_RATIO: f64 = 0.2857;

/// Medians against those of an image in ring 0 that is scheduled, round by round.
pub(super) fn ratios(data: &Data) -> impl Iterator<Item = Figure> {
    let ratio = |name: &str, arm: Arm| {
        let rounds = data
            .samples
            .pairs(TURN_MEDIAN, [arm, Arm::Never].map(Arm::name));
        let ratios: Vec<f64> = rounds.iter().map(|(value, never)| value / never).collect();
        median(name, "1", &ratios)
    };
    let ratios = [
        ratio("wake_poll_to_never", Arm::Poll),
        ratio("wake_ring_3_to_ring_0", Arm::Ring3),
    ];
    ratios.into_iter().flatten()
}

/// Median of each step of a wake-up that is scheduled.
pub(super) fn steps(experiment: &IpiHalt) -> Vec<Figure> {
    let steps = experiment.watched.as_ref().map(guest_bench::steps);
    let figures = steps.into_iter().flatten().filter_map(|(step, times)| {
        let ns = times.buckets.iter();
        let ns: Vec<f64> = ns
            .flat_map(|b| std::iter::repeat_n(b.from_ns as f64, b.count as usize))
            .collect();
        let name = format!("step_ns_p50.{}.never", guest_bench::step_name(step));
        quantile(&name, "ns", &ns, 0.5)
    });
    figures.collect()
}

/// Share of halts in which KVM polled and was woken while it did.
pub(super) fn polling(data: &Data, arm: Arm) -> Option<Figure> {
    let wakes = data.of(WAKE, arm.name()).len() as f64;
    let polled = data.counter(arm.name(), "halt_successful_poll")?;
    let name = format!("polls_per_wake.{}", arm.name());
    let mut figure = median(&name, "1", &[polled / wakes])?;
    figure.n = wakes as usize;
    Some(figure)
}

pub(super) fn report_text(experiment: &IpiHalt, figures: &[Figure]) -> ReportText {
    let data = &experiment.data;
    ReportText {
        title: "What it takes to wake a halted CPU of a virtual machine".to_owned(),
        question: format!(
            "Work that switches often between running and waiting pays for wake-ups. CPU 0 of a \
             two-CPU appliance halts; {} µs later CPU 1 reads the time stamp counter and sends an \
             interrupt; the first instruction of its handler on CPU 0 reads the counter again. KVM \
             can schedule a halted vCPU's thread out, or poll for a while first.",
            GAP.as_micros()
        ),
        glance: glance(experiment),
        answer: answer(data, figures),
        sections: sections(experiment),
        method: method(experiment),
        limitations: limitations(experiment, figures),
    }
}

fn glance(experiment: &IpiHalt) -> String {
    let mut rows: Vec<Vec<String>> = Arm::ALL
        .into_iter()
        .filter_map(|arm| row(experiment, arm))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let reported = REPORTED
        .iter()
        .map(|(name, cells)| std::iter::once(*name).chain(*cells).map(str::to_owned));
    rows.extend(reported.map(Iterator::collect));
    table(&["cycles", "min", "p50", "p99", "max", "p50, µs"], &rows)
}

fn row(experiment: &IpiHalt, arm: Arm) -> Option<Vec<String>> {
    let scale = experiment.cycles(arm)?;
    let sorted = tare_stats::sorted(&experiment.data.of(WAKE, arm.name()))?;
    sorted.first()?;
    let at = |q: f64| tare_stats::quantile(&sorted, q) * scale;
    let mut row = vec![arm.about().to_owned()];
    row.extend([0.0, 0.5, 0.99, 1.0].map(|q| number(at(q).round())));
    row.push(number(at(0.5) * 1e3 / experiment.khz?));
    Some(row)
}

fn answer(data: &Data, figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    let pair = (get("wake_cycles_p50.never"), get("wake_cycles_p50.poll"));
    if let (Some(never), Some(poll)) = pair {
        let machines = ["poll", "never"].map(|arm| data.medians(WAKE, arm));
        sentences.push(format!(
            "Scheduling on a halt took {} cycles at the median and polling {}: {} to 1, where the \
             hardware of KVM Message Passing 2015 had 3.5 to 1. {}",
            number(never),
            number(poll),
            number((never / poll * 100.0).round() / 100.0),
            exchanged(&machines[0], &machines[1]),
        ));
    }
    let pair = (get("wake_cycles_p50.never"), get("wake_cycles_p50.ring3"));
    if let (Some(ring_0), Some(ring_3)) = pair {
        sentences.push(format!(
            "With the image in ring 3, to the first instruction behind its halt, it took {} cycles: \
             {} of ring 0's.",
            number(ring_3),
            number((ring_3 / ring_0 * 100.0).round() / 100.0),
        ));
    }
    if let (Some(host), Some(never)) = (get("wake_cycles_p50.host"), get("wake_cycles_p50.never")) {
        sentences.push(format!(
            "Two threads of the host take {} cycles for the same (futex wake to running); the \
             machine that schedules on a halt takes {} of that.",
            number(host.round()),
            number((never / host * 100.0).round() / 100.0)
        ));
    }
    sentences
}

fn sections(experiment: &IpiHalt) -> Vec<Section> {
    let mut sections = Vec::new();
    let distributions: Vec<Distribution> = Arm::ALL
        .into_iter()
        .enumerate()
        .filter_map(|(series, arm)| distribution(experiment, series, arm))
        .collect();
    if !distributions.is_empty() {
        sections.push(Section {
            title: "Wake-ups by percentile".to_owned(),
            lead: "From sending the interrupt to the handler's first instruction, on a \
                   logarithmic scale; dots: median and 99th percentile. Lower is better."
                .to_owned(),
            html: percentiles(
                &Arm::ALL.map(Arm::name),
                &distributions,
                "Wake-up time by percentile for the arms",
            ),
        });
    }
    sections.extend(breakdown(experiment));
    sections.extend(counters(&experiment.data));
    sections.extend(histogram(&experiment.data));
    sections
}

fn distribution(experiment: &IpiHalt, series: usize, arm: Arm) -> Option<Distribution> {
    let us = experiment.cycles(arm)? * 1e3 / experiment.khz?;
    let wakes = experiment.data.of(WAKE, arm.name());
    let scaled: Vec<f64> = wakes.iter().map(|wake| wake * us).collect();
    Distribution::of(series, &scaled)
}

/// A wake-up taken apart at KVM's and the scheduler's trace points.
fn breakdown(experiment: &IpiHalt) -> Option<Section> {
    let steps = guest_bench::steps(experiment.watched.as_ref()?);
    let us = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| number(ns as f64 / 1e3));
    let rows = steps.iter().map(|(step, times)| {
        vec![
            guest_bench::step_name(*step).to_owned(),
            about(*step).to_owned(),
            times.count().to_string(),
            us(times.quantile_ns(0.5)),
            us(times.quantile_ns(0.9)),
            us(times.mean_ns()),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Section {
        title: "A scheduled wake-up, step by step".to_owned(),
        lead:
            "A turn of never watched from outside by BPF on trace points, in µs. Where kvm_entry \
               does not fire, handler begins at the end of return. The handler's step ends at its \
               end of interrupt, not at its first instruction. Watching adds about 0.1 µs to each \
               event, so this turn's wake-ups are in no other figure."
                .to_owned(),
        html: table(&["step", "from, to", "number", "p50", "p90", "mean"], &rows),
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
fn counters(data: &Data) -> Option<Section> {
    let arms = [Arm::Never, Arm::Poll].map(Arm::name);
    let names = [
        "halt_exits",
        "halt_attempted_poll",
        "halt_successful_poll",
        "halt_wakeup",
        "halt_wait_ns",
        "halt_poll_success_ns",
        "halt_poll_fail_ns",
    ];
    let rows = names.map(|name| {
        let of = |arm| data.counter(arm, name).map_or("–".into(), number);
        std::iter::once(name.to_owned())
            .chain(arms.map(of))
            .collect()
    });
    (!data.counted.is_empty()).then(|| Section {
        title: "What KVM counted".to_owned(),
        lead: "Statistics of both vCPUs over all turns of an arm, from each machine's begin: boot \
               and the wait after the last sample are in them. Times in ns."
            .to_owned(),
        html: table(&["counter", arms[0], arms[1]], &rows),
    })
}

/// KVM's histogram of waits and polls.
fn histogram(data: &Data) -> Option<Section> {
    let names = [
        "halt_wait_hist",
        "halt_poll_success_hist",
        "halt_poll_fail_hist",
    ];
    let series: Vec<(String, &Vec<u64>)> = [Arm::Never, Arm::Poll]
        .into_iter()
        .filter_map(|arm| Some((arm, data.counted.get(arm.name())?)))
        .flat_map(|(arm, counted)| {
            names.into_iter().filter_map(move |name| {
                let buckets = counted.histograms.get(name)?;
                Some((format!("{}: {name}", arm.name()), buckets))
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
    Some(Section {
        title: "KVM's histograms of halts".to_owned(),
        lead: "Halts by how long they lasted, in KVM's buckets of powers of two.".to_owned(),
        html: table(&head, &rows),
    })
}

fn method(experiment: &IpiHalt) -> Vec<String> {
    vec![
        format!(
            "Image {}, 2 vCPUs; {} rounds with {} wake-ups of each arm, arms in rotated order, a \
             new machine for each turn; QEMU has one turn with all of its samples, since its \
             firmware takes seconds where ring 0 is emulated.",
            experiment.image, experiment.rounds, experiment.samples
        ),
        "The handler's entry code is nothing but RDTSC, two stores and IRETQ. Before the \
         command lie RDTSC and two exchanges; on a KVM that emulates ring 0 each of these \
         instructions is part of the figure."
            .to_owned(),
        "never is KVM_CAP_HALT_POLL 0, poll 200,000 ns, both set for the one machine by tare run \
         --halt; budget is reconsidered while it runs and begins with nothing, so a turn is \
         over before it has saved much; qemu has what the kernel's parameters say."
            .to_owned(),
        "host stands for bare metal: two pinned threads, one in a futex; it includes the system \
         call and the scheduler, not an interrupt handler in ring 0. Its ns are shown as cycles of \
         the guest's counter."
            .to_owned(),
        format!(
            "Quantiles ({}) are of each machine, and medians over machines, since wake-ups of one \
             machine are not independent; the extremes are of all. Every sample is in raw.jsonl.",
            QUANTILES.map(|(name, _)| name).join(", ")
        ),
    ]
}

fn limitations(experiment: &IpiHalt, figures: &[Figure]) -> Vec<String> {
    let mut sentences: Vec<String> = not_measured(&experiment.data).collect();
    sentences.extend(failed_in_ring_3(experiment));
    sentences.extend(lost_polls(&experiment.data));
    let ratio = find(figures, "wake_poll_to_never");
    if let Some(ratio) = ratio.filter(|ratio| ratio.value > REPORTED_RATIO) {
        sentences.push(format!(
            "Polling saved less than KVM Message Passing 2015's factor of 3.5: its wake-ups take {} of those that \
             schedule, by round. Where ring 0 is emulated, instructions around the halt \
             are part of both, and a busy host narrows the gap further.",
            ratio.text()
        ));
    }
    sentences
}

/// Turns in ring 3 that failed.
fn failed_in_ring_3(experiment: &IpiHalt) -> Option<String> {
    let (turns, failed) = &experiment.ring_3;
    let first = failed.first()?;
    Some(match failed.len() {
        all if all == *turns => format!("Not measured: ring3: {first}."),
        some => format!("ring3: {some} of {turns} turns failed, the first: {first}."),
    })
}

/// Polls that KVM ended early: what it meant to do and could not.
fn lost_polls(data: &Data) -> Option<String> {
    let of = |name| data.counter("poll", name);
    let (attempted, caught) = (of("halt_attempted_poll")?, of("halt_successful_poll")?);
    let fail_ns = of("halt_poll_fail_ns")?;
    let failed = attempted - caught;
    (failed > attempted / 2.0).then(|| {
        format!(
            "KVM began {} polls in the polling arm and {} caught the wake-up; the others lasted {} \
             ns each. It gives a poll up when another task wants the CPU, so much of this arm was \
             not polled: a quieter host shows more of polling's gain.",
            number(attempted),
            number(caught),
            number((fail_ns / failed).round())
        )
    })
}
