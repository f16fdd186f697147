//! The data as tables: the arms side by side, latencies, CPU time by thread.

use super::arms::Arm;
use super::data::{Data, LATENCIES};
use super::linux::Side;
use super::sample::{CpuSample, Phase};
use crate::figure::{Figure, find, value};
use crate::number::number;
use crate::report::{Section, table};

/// The arms side by side.
pub(super) fn glance(figures: &[Figure]) -> String {
    let rows = [
        ("CPU with nothing to do, % of a core", "cpu_idle_pct", 1.0),
        ("CPU at one request a second, %", "cpu_1rps_pct", 1.0),
        ("CPU in bursts, %", "cpu_burst_pct", 1.0),
        ("exits a second with nothing to do", "idle_exits_per_s", 1.0),
        ("median latency in bursts, ms", "latency_p50_us", 1e-3),
        ("90th percentile, ms", "latency_p90_us", 1e-3),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter_map(|(title, base, scale)| {
            let cell = |arm: Arm| {
                let figure = find(figures, &arm.figure(base));
                figure.map_or("-".to_owned(), |it| it.scaled(scale, "").text())
            };
            let known = Arm::ALL
                .iter()
                .any(|a| value(figures, &a.figure(base)).is_some());
            let cells = Arm::ALL.map(cell);
            known.then(|| std::iter::once(title.to_owned()).chain(cells).collect())
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table(&["medians", "spin", "poller", "tare"], &rows)
    }
}

/// Percentiles of each arm, and each arm against the control.
pub(super) fn comparison(data: &Data, figures: &[Figure]) -> Section {
    let control = data.median_latencies(Arm::Spin);
    let rows: Vec<Vec<String>> = Arm::ALL
        .into_iter()
        .filter_map(|arm| {
            let medians = data.median_latencies(arm);
            let most = data.latencies(arm).concat().into_iter().reduce(f64::max)?;
            let cell = |(base, _): (&str, f64)| {
                let figure = find(figures, &arm.figure(base));
                figure.map_or("-".to_owned(), |it| it.scaled(1e-3, "ms").text())
            };
            let p = match arm {
                Arm::Spin => "control".to_owned(),
                _ => tare_stats::permutation(&medians, &control).map_or("-".to_owned(), p_value),
            };
            let mut row = vec![arm.name().to_owned()];
            row.extend(LATENCIES.map(cell));
            row.extend([number(most / 1e3), medians.len().to_string(), p]);
            Some(row)
        })
        .collect();
    Section {
        title: "Latency against the control arm".to_owned(),
        lead: format!(
            "ms. Quantiles are medians over machines with their interval (range below six): \
             answers of one machine are not independent. p: how often chance alone sets the \
             machines' medians this far apart, by exchanging machines; it needs {} of each arm.",
            tare_stats::LEAST_UNITS
        ),
        html: table(&["arm", "p50", "p90", "p99", "max", "machines", "p"], &rows),
    }
}

/// The same file from Apache on Linux and from Tare's image, by instructions.
pub(super) fn on_linux(figures: &[Figure]) -> Option<Section> {
    let rows = [
        ("a request on a kept connection", "tcg_insns_per_request"),
        ("a connection with one request", "tcg_insns_per_connection"),
        ("boot until the first answer", "tcg_boot_insns"),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(title, base)| {
            let cell = |side: Side| {
                let figure = find(figures, &format!("{base}.{}", side.name()));
                figure.map_or("–".to_owned(), Figure::text)
            };
            let cells = Side::ALL.map(cell);
            std::iter::once(title.to_owned()).chain(cells).collect()
        })
        .collect();
    let known = rows
        .iter()
        .any(|row| row.iter().skip(1).any(|it| it != "–"));
    known.then(|| Section {
        title: "The same file from Apache on Linux".to_owned(),
        lead: "Guest instructions, kernel and application together, counted by a plugin of \
               QEMU's translator: Apache on Debian's kernel, on a kernel tailored to it, and \
               Tare's image. Medians; on one vCPU, with the same 1 KiB file."
            .to_owned(),
        html: table(&["instructions", "linux", "tailored", "tare"], &rows),
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
pub(super) fn threads(data: &Data) -> Option<Section> {
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
