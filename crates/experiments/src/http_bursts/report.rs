//! The experiment's report: what its text needs beside figures, charts and tables.

use tare_lab::kit::{
    Figure, ONCE, ReportText, Row, Template, number, percentiles, row, table, value,
};
use tare_tailor::counter::ITERATIONS_INSIDE;

use super::arms::{Arm, Peer};
use super::charts::{distributions, timeline};
use super::data::Data;
use super::metrics::{GOALS, METRICS};
use super::peers::SLOW_RPS;
use super::plan::{Plan, SOURCE_RATE};
use super::sample::{CpuSample, Phase};

/// Two series differ where p is at most this.
const SIGNIFICANT: f64 = 0.05;
/// Ready threads that wait this share of the time (percent) say that others
/// wanted the CPUs.
const NOISY_PCT: f64 = 5.0;
/// What the arm `linux` gives.
const LINUX: &str = "tcg_insns_per_request.linux";
/// A half-width of this share of the median is worth a word.
const WIDE: f64 = 0.25;

/// Figures of the first table, each with its factor.
const GLANCE: [(&str, &str, &str); 6] = [
    ("CPU with nothing to do, % of a core", "cpu_idle_pct", "1"),
    ("CPU at one request a second, %", "cpu_1rps_pct", "1"),
    ("CPU in bursts, %", "cpu_burst_pct", "1"),
    ("exits a second with nothing to do", "idle_exits_per_s", "1"),
    ("median latency in bursts, ms", "latency_p50_us", "0.001"),
    ("90th percentile, ms", "latency_p90_us", "0.001"),
];

/// The report of a run, complete or not.
pub(crate) fn report_text(plan: &Plan, data: &Data, figures: &[Figure]) -> ReportText {
    let text = Template::new(include_str!("report.md"), METRICS, figures);
    let text = with_findings(with_plan(text, plan), data, figures);
    let has_linux = value(figures, LINUX).is_some();
    let text =
        with_comparison(text, data, figures).only_if("no_linux", plan.compared > 0 && !has_linux);
    let glance = GLANCE.map(|(about, figure, scale)| {
        row([("about", about), ("figure", figure), ("scale", scale)])
    });
    let latencies = percentiles(
        &Arm::ALL.map(Arm::name),
        &distributions(data),
        "Latency by percentile for the three arms",
    );
    let cpu =
        timeline(plan, data).figure("CPU use of the three arms over time, under bursts and breaks");
    let peers = Peer::ALL.map(|peer| row([("about", peer.about()), ("peer", peer.name())]));
    let sections = [
        text.section("cpu", cpu),
        text.section("latency", latencies),
        text.tabled("control", against_control(data)),
        text.section("threads", threads(data)),
        text.tabled("peers", peers),
        text.tabled("linux", ONCE),
    ];
    text.report_with(glance, sections, &[])
}

fn with_plan<'a>(text: Template<'a>, plan: &Plan) -> Template<'a> {
    let seconds = |ms: u64| number(ms as f64 / 1e3);
    let at_once = plan.idle_at_once && plan.idle_ms > 0 && plan.idle_2cpu_ms > 0;
    text.set("image", &plan.image)
        .set("cpus", plan.cpus)
        .set("memory_mib", plan.memory_mib)
        .set("cycles", plan.cycles)
        .set("burst_s", seconds(plan.burst_ms))
        .set("break_s", seconds(plan.settle_ms + plan.break_ms))
        .set("steady_s", seconds(plan.steady_ms))
        .maybe("idle_s", at_once.then(|| seconds(plan.idle_ms)))
        .set("idle_2cpu_s", seconds(plan.idle_2cpu_ms))
        .set("idle_2cpu_machines", plan.idle_2cpu_machines)
        .only_if(
            "counted_meanwhile",
            at_once && plan.counted_meanwhile && !plan.peers_meanwhile,
        )
        .only_if("meanwhile", at_once && plan.peers_meanwhile)
        .set("connections", plan.connections)
        .set("window_ms", plan.window_ms)
        .set("settle_ms", plan.settle_ms)
        .only_if("peers", plan.capacity_rounds > 0)
        .set("capacity_ms", plan.capacity_ms)
        .set("slow", number(SLOW_RPS))
}

/// The rate of the bursts, and what could not be measured or is uncertain.
fn with_findings<'a>(text: Template<'a>, data: &Data, figures: &[Figure]) -> Template<'a> {
    let carries = data.rate.map(|rate| rate >= SOURCE_RATE);
    let joined = |parts: Vec<String>, by: &str| (!parts.is_empty()).then(|| parts.join(by));
    let (windows, counters) = &data.woken;
    let rose = counters
        .iter()
        .map(|(name, count)| format!("{name} {count}"));
    text.maybe("rate", data.rate.map(number))
        .set("carried", number(data.carried))
        .only_if("carries", carries == Some(true))
        .only_if("carries_less", carries == Some(false))
        .maybe("unmeasured", joined(unmeasured(data, figures), ", "))
        .maybe("uncompared", joined(data.uncompared.clone(), "; "))
        .maybe("unpeered", joined(data.unpeered.clone(), "; "))
        .maybe("woken", (*windows > 0).then_some(windows))
        .set("rose", rose.collect::<Vec<_>>().join(", "))
        .maybe("noise", noise(data))
        .maybe(
            "iterations_inside",
            data.iterations_inside.then_some(ITERATIONS_INSIDE),
        )
        .maybe("uncertain", joined(uncertain(figures), ", "))
}

/// The blocking arm's latency against the spinning one's, if they can be
/// distinguished: by machines, since answers of one machine are not independent.
fn with_comparison<'a>(text: Template<'a>, data: &Data, figures: &[Figure]) -> Template<'a> {
    let [tare, spin] =
        [Arm::Tare, Arm::Spin].map(|arm| value(figures, &arm.figure("latency_p50_us")));
    let [blocking, spinning] = [Arm::Tare, Arm::Spin].map(|arm| data.median_latencies(arm));
    let p = tare_stats::permutation(&blocking, &spinning);
    let machines = blocking.len().min(spinning.len());
    text.only_if("both", tare.is_some() && spin.is_some())
        .set("least", tare_stats::LEAST_UNITS)
        .maybe("machines", p.is_none().then_some(machines))
        .maybe(
            "p",
            p.filter(|p| *p > SIGNIFICANT).map(|p| format!("{p:.2}")),
        )
        .only_if("differ", p.is_some_and(|p| p <= SIGNIFICANT))
}

/// Each arm's machines, and their medians against the control's.
fn against_control(data: &Data) -> impl Iterator<Item = Row> {
    let control = data.median_latencies(Arm::Spin);
    Arm::ALL.into_iter().filter_map(move |arm| {
        let medians = data.median_latencies(arm);
        let most = data.latencies(arm).concat().into_iter().reduce(f64::max)?;
        let p = match arm {
            Arm::Spin => Some("control".to_owned()),
            _ => tare_stats::permutation(&medians, &control).map(p_value),
        };
        Some(vec![
            ("arm", Some(arm.name().to_owned())),
            ("max", Some(number(most / 1e3))),
            ("machines", Some(medians.len().to_string())),
            ("p", p),
        ])
    })
}

fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

/// Where the CPU time went, by thread, for each arm and phase.
fn threads(data: &Data) -> String {
    let mut names: Vec<String> = Vec::new();
    for sample in &data.cpu {
        for (name, ns) in &sample.spent.threads {
            if *ns > 0 && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names.sort();
    let phases = [
        (Phase::Break, "idle"),
        (Phase::Burst, "burst"),
        (Phase::Steady, "1/s"),
    ];
    let turns = Arm::ALL
        .into_iter()
        .flat_map(|arm| phases.map(|(phase, word)| (arm, phase, word)));
    let rows: Vec<Vec<String>> = turns
        .map(|(arm, phase, word)| {
            let of = |name: &String| {
                let ns = |s: &CpuSample| s.spent.threads.get(name).copied().unwrap_or(0);
                share(data, arm, phase, &ns)
            };
            let mut row = vec![format!("{}, {word}", arm.name())];
            row.extend(names.iter().map(of));
            row.push(share(data, arm, phase, &|s| s.spent.helper_ns));
            row
        })
        .collect();
    let mut head = vec!["arm and phase"];
    head.extend(names.iter().map(String::as_str));
    head.push("passt");
    if names.is_empty() {
        return String::new();
    }
    table(&head, &rows)
}

fn share(data: &Data, arm: Arm, phase: Phase, ns: &dyn Fn(&CpuSample) -> u64) -> String {
    let of_phase = |s: &&CpuSample| s.place.arm == arm && s.place.phase == phase;
    let samples = || data.cpu.iter().filter(of_phase);
    let wall: u64 = samples().map(|s| s.spent.wall_ns).sum();
    match wall {
        0 => "–".to_owned(),
        wall => number(samples().map(ns).sum::<u64>() as f64 / wall as f64 * 100.0),
    }
}

/// Exits while the machine was idle, where it used CPU time.
pub(super) fn cause(figures: &[Figure], figure: &Figure) -> Option<String> {
    if !figure.name.starts_with("cpu_idle_pct.tare") {
        return None;
    }
    let exits = figure.name.replace("cpu_idle_pct", "idle_exits_per_s");
    let exits = value(figures, &exits)?;
    Some(format!(
        "The vCPUs left the guest {} times a second meanwhile.",
        number(exits)
    ))
}

/// Figures with a goal that could not be measured here.
fn unmeasured(data: &Data, figures: &[Figure]) -> Vec<String> {
    let missing = GOALS
        .iter()
        .filter(|goal| goal.on.contains(&data.kvm) && value(figures, goal.figure).is_none());
    missing.map(|goal| goal.figure.to_owned()).collect()
}

/// How long the monitor's threads waited for a CPU in a tenth of the windows, percent, where
/// others wanted the CPUs.
fn noise(data: &Data) -> Option<f64> {
    let waits: Vec<f64> = data.cpu.iter().map(|s| s.spent.wait_pct()).collect();
    let busiest = tare_stats::quantile(&tare_stats::sorted(&waits)?, 0.9);
    (busiest > NOISY_PCT).then(|| busiest.round())
}

/// Figures whose interval is wide.
fn uncertain(figures: &[Figure]) -> Vec<String> {
    let wide = |f: &&Figure| {
        let half = f.interval().map_or(0.0, |(low, high)| (high - low) / 2.0);
        f.value > 1.0 && half > WIDE * f.value
    };
    let names = figures.iter().filter(wide).map(|f| f.name.clone());
    names.collect()
}
