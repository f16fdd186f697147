//! The experiment's story: what was asked, what came out, what disappointed.

use super::arms::Arm;
use super::data::Data;
use super::findings::disappointments;
use super::plan::{Plan, TALK_RATE, ms};
use super::sample::{CpuSample, Phase};
use crate::experiments::Story;
use crate::figure::Figure;
use crate::report::svg::{Band, Distribution, Panel, Timeline, legend, percentiles};
use crate::report::{Section, table};
use crate::table::number;

/// The story of a run, complete or not.
pub(crate) fn story(plan: &Plan, data: &Data, figures: &[Figure]) -> Story {
    Story {
        title: "What waiting costs a web server in a virtual machine".to_owned(),
        question: "An appliance that polls burns a core of its host whether anybody asks or \
                   not. The same web server image waited in three ways, under bursts of \
                   requests and breaks: spin never lets its core halt, poller is the first \
                   talk's cure (pollers declare idle turns, the core halts when all have \
                   been idle for 200 ms), tare blocks until an interrupt comes."
            .to_owned(),
        glance: glance(figures),
        answer: answer(data, figures),
        sections: sections(plan, data),
        method: method(plan, data, figures),
        disappointments: disappointments(data, figures),
    }
}

/// Value of a figure.
pub(crate) fn value(figures: &[Figure], name: &str) -> Option<f64> {
    figures.iter().find(|f| f.name == name).map(|f| f.value)
}

/// The arms side by side.
fn glance(figures: &[Figure]) -> String {
    let rows = [
        ("CPU with nothing to do, % of a core", "cpu_idle_pct", 1.0),
        ("CPU at one request a second, %", "cpu_1rps_pct", 1.0),
        ("CPU in bursts, %", "cpu_burst_pct", 1.0),
        ("exits a second with nothing to do", "idle_exits_per_s", 1.0),
        ("median latency in bursts, ms", "latency_p50_us", 1e-3),
        ("99th percentile, ms", "latency_p99_us", 1e-3),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter_map(|(title, base, scale)| {
            let cell = |arm: Arm| {
                let value = value(figures, &arm.figure(base));
                value.map_or("–".to_owned(), |v| number(v * scale))
            };
            let known = Arm::ALL
                .iter()
                .any(|a| value(figures, &a.figure(base)).is_some());
            let cells = Arm::ALL.map(cell);
            known.then(|| std::iter::once(title.to_owned()).chain(cells).collect())
        })
        .collect();
    match rows.is_empty() {
        true => String::new(),
        false => table(&["medians", "spin", "poller", "tare"], &rows),
    }
}

fn answer(data: &Data, figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    if let (Some(spin), Some(tare), Some(poller)) = (
        get("cpu_idle_pct.spin"),
        get("cpu_idle_pct.tare"),
        get("cpu_1rps_pct.poller"),
    ) {
        sentences.push(format!(
            "With nothing to do, spinning took {} % of a core and blocking {} %. The talk's \
             cure halts too, but each lone request keeps its pollers awake for 200 ms: {} % of a \
             core at one request a second.",
            number(spin),
            number(tare),
            number(poller)
        ));
    }
    let latency = (get("latency_p50_us.spin"), get("latency_p50_us.tare"));
    if let (Some(spin), Some(tare)) = latency {
        sentences.push(compared(data, spin, tare));
    }
    sentences
}

/// A chance of this or less tells two series apart.
const TOLD_APART: f64 = 0.05;

/// The blocking arm's latency against the spinning one's, if they can be told
/// apart.
fn compared(data: &Data, spin: f64, tare: f64) -> String {
    let of = |arm: Arm| data.latencies.get(&arm).map_or(&[][..], Vec::as_slice);
    let test = tare_stats::mann_whitney(of(Arm::Tare), of(Arm::Spin));
    if test.p > TOLD_APART {
        return "This run does not tell the latencies of blocking and spinning apart.".to_owned();
    }
    let percent = ((tare / spin - 1.0) * 100.0).round();
    let than = if percent < 0.0 { "faster" } else { "slower" };
    format!(
        "The blocking machine's median answer was {} % {than} than the spinning one's.",
        percent.abs()
    )
}

fn sections(plan: &Plan, data: &Data) -> Vec<Section> {
    let names = Arm::ALL.map(Arm::name);
    let mut sections = vec![Section {
        title: "CPU over time".to_owned(),
        lead: "Share of one core that all threads of the monitor used. Every arm has a machine \
               of its own in each cycle; its turns are drawn one after the other. Shaded: load."
            .to_owned(),
        html: timeline(plan, data)
            .figure("CPU use of the three arms over time, under bursts and breaks"),
    }];
    let distributions = distributions(data);
    if !distributions.is_empty() {
        sections.push(Section {
            title: "Latency in the bursts".to_owned(),
            lead: "From the time at which a request was to be sent to the end of its answer, on a \
                   logarithmic scale; dots: median and 99th percentile. Lower is better."
                .to_owned(),
            html: legend(&names)
                + &percentiles(&distributions, "Latency by percentile for the three arms"),
        });
        sections.push(comparison(data));
    }
    sections.extend(threads(data));
    sections
}

fn timeline(plan: &Plan, data: &Data) -> Timeline {
    let turn = plan.turn().as_secs_f64();
    let seconds = |millis: u64| ms(millis).as_secs_f64();
    let burst = seconds(plan.burst_ms);
    let steady = turn - seconds(plan.steady_ms);
    let bands = (0..plan.cycles).flat_map(|cycle| {
        let begin = cycle as f64 * turn;
        [
            Band {
                span: (begin, begin + burst),
                label: "burst",
            },
            Band {
                span: (begin + steady, begin + turn),
                label: "1/s",
            },
        ]
    });
    Timeline {
        end: turn * plan.cycles as f64,
        bands: bands.collect(),
        panels: Arm::ALL.map(|arm| panel(plan, data, arm)).into(),
    }
}

fn panel(plan: &Plan, data: &Data, arm: Arm) -> Panel {
    let mut windows: Vec<(f64, f64, f64)> = data
        .cpu
        .iter()
        .filter(|sample| sample.place.arm == arm)
        .filter_map(|sample| {
            let from = offset(plan, sample)? + sample.from_ns as f64 / 1e9;
            let to = from + sample.spent.wall_ns as f64 / 1e9;
            Some((from, to, sample.spent.monitor_pct()))
        })
        .collect();
    windows.sort_by(|a, b| a.0.total_cmp(&b.0));
    Panel {
        title: arm.name().to_owned(),
        windows,
    }
}

/// Begin of a sample's phase on the common time axis, s.
fn offset(plan: &Plan, sample: &CpuSample) -> Option<f64> {
    let within = match sample.place.phase {
        Phase::Burst => 0,
        Phase::Settle | Phase::Break => plan.burst_ms,
        Phase::Steady => plan.burst_ms + plan.settle_ms + plan.break_ms,
        _ => return None,
    };
    Some(sample.place.cycle as f64 * plan.turn().as_secs_f64() + ms(within).as_secs_f64())
}

fn distributions(data: &Data) -> Vec<Distribution> {
    let series = Arm::ALL.iter().enumerate().filter_map(|(series, arm)| {
        let sorted_us = tare_stats::sorted(data.latencies.get(arm)?)?;
        (!sorted_us.is_empty()).then_some(Distribution { series, sorted_us })
    });
    series.collect()
}

/// Percentiles of each arm, and each arm against the control.
fn comparison(data: &Data) -> Section {
    let empty = Vec::new();
    let of = |arm: Arm| data.latencies.get(&arm).unwrap_or(&empty);
    let control = of(Arm::Spin);
    let rows: Vec<Vec<String>> = Arm::ALL
        .into_iter()
        .filter_map(|arm| {
            let sorted = tare_stats::sorted(of(arm))?;
            sorted.first()?;
            let at = |q: f64| number(tare_stats::quantile(&sorted, q) / 1e3);
            let test = tare_stats::mann_whitney(of(arm), control);
            let (delta, p) = match arm {
                Arm::Spin => ("control".to_owned(), String::new()),
                _ => (
                    format!("{:+.2}", test.cliffs_delta).replace('-', "−"),
                    p_value(test.p),
                ),
            };
            let name = arm.name().to_owned();
            Some(vec![
                name,
                at(0.5),
                at(0.9),
                at(0.99),
                at(1.0),
                sorted.len().to_string(),
                delta,
                p,
            ])
        })
        .collect();
    Section {
        title: "Latency against the control arm".to_owned(),
        lead: "ms. Cliff's delta: −1 if every request was faster than every one of the spinning \
               arm, +1 if slower; p: how often chance alone does that (Mann–Whitney)."
            .to_owned(),
        html: table(
            &["arm", "p50", "p90", "p99", "max", "n", "delta", "p"],
            &rows,
        ),
    }
}

fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

/// Where the CPU time went, by thread, for each arm and phase.
fn threads(data: &Data) -> Option<Section> {
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
    (!names.is_empty()).then(|| Section {
        title: "Where the CPU time went".to_owned(),
        lead: "Mean share of one core by thread, percent. passt carries the packets between the \
               host's sockets and the machine; it is not in the figures above."
            .to_owned(),
        html: table(&head, &rows),
    })
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

fn method(plan: &Plan, data: &Data, figures: &[Figure]) -> Vec<String> {
    let mut sentences = vec![
        format!(
            "Each machine: image {}, {} vCPU, {} MiB, started by tare run with --idle spin, \
             poller or block. The talk gave its guest two cores and used one; one is given here.",
            plan.image, plan.cpus, plan.memory_mib
        ),
        format!(
            "{} cycles; in each, every arm had a new machine, in rotated order, one alive at a \
             time: a burst of {} s, a break of {} s, then one request a second for {} s.",
            plan.cycles,
            number(plan.burst_ms as f64 / 1e3),
            number((plan.settle_ms + plan.break_ms) as f64 / 1e3),
            number(plan.steady_ms as f64 / 1e3)
        ),
    ];
    sentences.extend(data.rate.map(|rate| rate_sentence(rate, data.carried)));
    sentences.extend([
        format!(
            "The load is open-loop: send times are fixed beforehand and latency counts from \
             them, over at most {} kept connections on loopback, each answer compared with the \
             1 KiB file.",
            plan.connections
        ),
        format!(
            "CPU time comes from /proc (schedstat) of every thread, read from outside every {} ms. \
             The first {} ms of each break are drawn but not in the figures: connections end \
             and the pollers' 200 ms run out.",
            plan.window_ms, plan.settle_ms
        ),
        observer(figures),
        "Exits are returns from KVM_RUN, halts and injected interrupts of the vCPU together. \
         boot_insns counts until the server says that it serves; insns_per_request is the mean \
         of a batch on one connection, insns_per_connection of a batch of connections that the \
         client closes after one answer."
            .to_owned(),
        "first_byte_ms runs from the exec of tare run until the first byte of an answer; the \
         request is sent when the console says that the server serves."
            .to_owned(),
    ]);
    sentences
}

fn rate_sentence(rate: f64, carried: f64) -> String {
    let (rate, carried) = (number(rate), number(carried));
    if rate == number(TALK_RATE) {
        return format!(
            "Bursts of {rate} requests a second, as in the talk; in a closed loop the slowest \
             arm carried {carried}."
        );
    }
    format!(
        "Bursts of {rate} requests a second: this machine does not carry the talk's 100. In a \
         closed loop the slowest arm carried {carried} a second, and the bursts are half of that."
    )
}

/// What observing costs, as measured.
fn observer(figures: &[Figure]) -> String {
    let cost = value(figures, "stats_request_us");
    let us = cost.map_or(String::new(), |us| {
        format!(
            " One such reading cost the monitor {} µs of CPU time.",
            number(us)
        )
    });
    format!(
        "Statistics were read over the control socket at the edges of phases and, in breaks, \
         between windows of CPU time, never inside one: the request wakes the monitor's I/O \
         thread, but no vCPU.{us}"
    )
}
