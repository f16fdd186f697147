//! What the platforms say.

use std::collections::BTreeSet;

use tare_platform::{Limit, Mode, Platform};

use super::Platforms;
use super::analysis::{self, Pinning, overhead, pin_gain, quota_bound};
use super::charts::{self, SHORT};
use super::data::{Data, Run};
use super::estimate::Estimate;
use super::findings;
use super::fit::split;
use super::instrument::{self, Comparison};
use super::model::{self, Check, Predicted};
use super::observe::{Observed, WAITING_FOR_A_CPU};
use super::plan::{Arm, Cell};
use tare_lab::kit::ReportText;
use tare_lab::kit::number;
use tare_lab::kit::{Bar, bars, legend, reach};
use tare_lab::kit::{Figure, find, value};
use tare_lab::kit::{Row, Section, Template, row as values, table};

/// With CPU-Pinning 2020's abbreviations.
const PLATFORMS: [&str; 5] = [
    "bare metal (BM)",
    "container (CN)",
    "VM",
    "container in VM (VMCN)",
    "appliance (AP)",
];

pub(crate) fn report_text(experiment: &Platforms, figures: &[Figure]) -> ReportText {
    let data = &experiment.data;
    let engine_of = |is_appliance| {
        let mut of = data
            .runs
            .iter()
            .filter(|run| (run.cell.place.platform == Platform::Appliance) == is_appliance);
        of.find_map(|run| run.engine.as_ref())
    };
    let translated = experiment.translated();
    let by_quota = |run: &Run| run.cell.place.limit == Limit::Quota;
    let of = |family: &str| {
        let of = figures
            .iter()
            .filter(|figure| figure.name.starts_with(family));
        range(of.map(|figure| figure.value))
    };
    let found = of("finds_5pct_of_100.").map(|(least, most)| between(least.round(), most.round()));
    let half = value(figures, "aa_half_width_pct");
    let best = of("aa_half_width_pct.").map(|(least, _)| least);
    let widths = half.map(|half| between(best.unwrap_or(half), half));
    let tests = find(figures, "aa_significant_pct").map(|share| share.n);
    let has_equal_arms = value(figures, "aa_left_out").is_some();
    let (pin_controls, false_controls) = controls_of_pinning(figures);
    let text = Template::new(include_str!("report.md"), crate::METRICS, figures)
        .maybe("engine", engine_of(false))
        .maybe("appliance_engine", engine_of(true))
        .only_if("translated", translated)
        .only_if("native", !translated)
        .maybe("aa_widths", widths.as_ref())
        .maybe("found", found.filter(|_| widths.is_some()))
        .set("seed", experiment.seed)
        .maybe("equal_arms", tests)
        .set("pin_controls", pin_controls)
        .maybe(
            "false_controls",
            Some(false_controls).filter(|count| *count > 0),
        )
        .only_if("none_differs", tests.is_none() && has_equal_arms)
        .only_if("machine_pairs", has_machine_pairs(data))
        .only_if("quota", data.runs.iter().any(by_quota));
    let workloads = data.workloads();
    let ratios = workloads
        .iter()
        .filter_map(|workload| ratios(&text, data, workload));
    let others = [
        text.tabled("splits", splits(data)),
        text.tabled("pinning", pinning(data)),
        text.section("causes", causes(data)),
        text.section("distributions", distributions(data)),
        modelled(&text, experiment, figures),
        text.section("controls", controls(data, figures)),
    ];
    let findings = text
        .tabled("findings", source_findings(experiment))
        .into_iter();
    let mut report = text.report();
    report.glance = text.table("Glance", glance(experiment));
    report.sections = findings
        .chain(ratios)
        .chain(others.into_iter().flatten())
        .collect();
    report.limitations = experiment.limitations();
    report
}

/// Whether vanilla and pinned runs in a machine came in one block: not in early records.
fn has_machine_pairs(data: &Data) -> bool {
    let of_machine = |run: &Run| {
        let place = run.cell.place;
        let block = run.block.filter(|_| place.platform.has_linux_guest())?;
        Some((block, place.mode))
    };
    let seen: BTreeSet<(u64, Mode)> = data.runs.iter().filter_map(of_machine).collect();
    let mut vanilla = seen.iter().filter(|(_, mode)| *mode == Mode::Vanilla);
    vanilla.any(|(block, _)| seen.contains(&(*block, Mode::Pinned)))
}

/// The least and the greatest; `None` of none.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = values.map(|value| (value, value));
    ends.reduce(|(least, most), (value, _)| (least.min(value), most.max(value)))
}

/// `2 to 3`, or `3` where both are.
fn between(least: f64, most: f64) -> String {
    if least < most {
        format!("{} to {}", number(least), number(most))
    } else {
        number(most)
    }
}

/// The largest size, vanilla and pinned.
fn glance(experiment: &Platforms) -> impl Iterator<Item = Row> {
    let data = &experiment.data;
    const CELLS: [(&str, Platform, Mode); 8] = [
        ("container", Platform::Container, Mode::Vanilla),
        ("container pinned", Platform::Container, Mode::Pinned),
        ("vm", Platform::Vm, Mode::Vanilla),
        ("vm pinned", Platform::Vm, Mode::Pinned),
        ("vm-container", Platform::VmContainer, Mode::Vanilla),
        ("vm-container pinned", Platform::VmContainer, Mode::Pinned),
        ("appliance", Platform::Appliance, Mode::Vanilla),
        ("appliance pinned", Platform::Appliance, Mode::Pinned),
    ];
    data.workloads().into_iter().map(move |workload| {
        let largest = analysis::sizes(data, &workload).pop().unwrap_or(1);
        let cells = CELLS.map(|(name, platform, mode)| {
            let place = experiment.place(platform, mode, largest);
            (
                name,
                overhead(data, &workload, place).map(|ratio| ratio.text()),
            )
        });
        let named = values([("workload", &workload), ("size", &largest.to_string())]);
        named.into_iter().chain(cells).collect()
    })
}

fn source_findings(experiment: &Platforms) -> Vec<Row> {
    let findings = findings::table(&experiment.evidence()).into_iter();
    findings
        .map(|(finding, agreement)| {
            let (here, because) = agreement.text();
            values([("finding", &finding), ("here", here), ("because", because)])
        })
        .collect()
}

fn ratios(text: &Template<'_>, data: &Data, workload: &str) -> Option<Section> {
    let (unit, scale) = unit(data, workload);
    let mut chart = Vec::new();
    let mut rows = Vec::new();
    for cell in data.cells(workload) {
        let place = cell.place;
        let Some(ratio) = overhead(data, workload, place) else {
            continue;
        };
        let series = Platform::ALL
            .iter()
            .position(|p| *p == place.platform)
            .unwrap_or(0);
        let label = format!(
            "{} {} {}",
            SHORT[series],
            place.mode.name(),
            place.size_name()
        );
        chart.push(Bar {
            label,
            figure: ratio.figure(&place.to_string(), "x"),
            series,
        });
        rows.push(row(data, &cell, ratio, scale));
    }
    let same: Vec<Figure> = instrument::against_baseline(data, workload, Arm::Control)
        .into_iter()
        .map(|it| it.ratio.figure("", ""))
        .collect();
    let html = format!(
        "{}{}{}{}{}",
        legend(&PLATFORMS),
        bars(
            &chart,
            "time over bare metal's",
            reach(same.iter()),
            &format!("{workload}: overhead of each platform")
        ),
        charts::time_over_size(data, workload, (&unit, scale)),
        charts::overhead_over_chr(data, workload),
        table(
            &[
                "place",
                "CHR",
                "ratio",
                "95 % interval",
                "p",
                &format!("median, {unit}"),
                "95 % interval",
                "n",
                "outliers (kept)"
            ],
            &rows
        )
    );
    text.section_of("ratios", &values([("workload", workload)]), html)
}

/// Unit and factor in which a workload's times are printed: that of a rate is
/// the time of one operation.
fn unit(data: &Data, workload: &str) -> (String, f64) {
    let run = data.runs.iter().find(|run| run.cell.workload == workload);
    match run.map_or("", |run| run.unit.as_str()) {
        "1/s" => ("us/operation".to_owned(), 1e6),
        other => (other.to_owned(), 1.0),
    }
}

fn row(data: &Data, cell: &Cell, ratio: Estimate, scale: f64) -> Vec<String> {
    let hosts = data.hosts();
    let times: Vec<f64> = hosts
        .iter()
        .flat_map(|(host, _)| data.times(host, cell))
        .map(|time| time * scale)
        .collect();
    let ran = hosts
        .iter()
        .filter(|(host, _)| !data.times(host, cell).is_empty());
    let mut cpus: Vec<u32> = ran.map(|(_, cpus)| *cpus).collect();
    cpus.dedup();
    let chr = |cpus: &u32| number(f64::from(cell.place.size) / f64::from(*cpus));
    let chrs: Vec<String> = cpus.iter().map(chr).collect();
    let time = tare_lab::kit::median("", "", &times);
    let (median, interval) =
        time.map_or_else(Default::default, |it| (number(it.value), it.ends_text()));
    let place = match quota_bound(data, &cell.workload, cell.place) {
        Some(false) => format!("{} (the quota did not bind)", cell.place),
        _ => cell.place.to_string(),
    };
    let p = analysis::tested_against_bare(data, &cell.workload, cell.place);
    let outliers: Vec<String> = analysis::outliers(&times).into_iter().map(number).collect();
    vec![
        place,
        chrs.join(", "),
        number(ratio.value),
        ratio.figure("", "").ends_text(),
        p.map_or("-".to_owned(), number),
        median,
        interval,
        times.len().to_string(),
        outliers.join(" "),
    ]
}

/// Nothing below three sizes.
fn splits(data: &Data) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for platform in Platform::ALL.into_iter().skip(1) {
            for mode in [Mode::Vanilla, Mode::Pinned] {
                let Some(split) = split(data, &workload, platform, mode) else {
                    continue;
                };
                let falling: Vec<String> = split
                    .falling
                    .iter()
                    .map(|(size, e)| format!("{size}: {}", e.text()))
                    .collect();
                let place = format!("{workload}, {}, {}", platform.name(), mode.name());
                rows.push(values([
                    ("place", &place),
                    ("constant", &split.constant.text()),
                    ("falling", &falling.join("; ")),
                ]));
            }
        }
    }
    rows
}

fn pinning(data: &Data) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for platform in Platform::ALL {
            for size in analysis::sizes(data, &workload) {
                let Some((what, gain)) = pin_gain(data, &workload, platform, size) else {
                    continue;
                };
                rows.push(values([
                    (
                        "place",
                        &format!("{workload}, {}, {size} CPUs", platform.name()),
                    ),
                    ("longer", &number(gain.value)),
                    ("ends", &gain.figure("", "").ends_text()),
                    ("n", &gain.n.to_string()),
                    ("is", meaning(what, &gain)),
                ]));
            }
        }
    }
    rows
}

fn meaning(what: Pinning, longer: &Estimate) -> &'static str {
    match what {
        Pinning::Gain => "gain by pinning",
        Pinning::Control if longer.differs_from(0.0) => {
            "control: its interval excludes 0, which is a false positive of the control"
        }
        Pinning::Control => "control",
        Pinning::QuotaToSet => "quota against set",
    }
}

/// Figures of controls of pinning that have an interval, and of them those that exclude 0.
fn controls_of_pinning(figures: &[Figure]) -> (usize, usize) {
    let family = Pinning::Control.name();
    let of = figures.iter().filter(|it| it.name.starts_with(family));
    let ends: Vec<(f64, f64)> = of.filter_map(Figure::interval).collect();
    let exclude = ends.iter().filter(|(low, high)| *low > 0.0 || *high < 0.0);
    (ends.len(), exclude.count())
}

/// How long a disk request took, at the mean; as iostat's await.
fn await_ms(observed: &Observed) -> Option<f64> {
    let requests = observed.disk_requests as f64;
    (requests > 0.0).then(|| observed.disk_wait_s * 1e3 / requests)
}

/// What goes with the overhead: means over the runs that count.
fn causes(data: &Data) -> String {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for cell in data.cells(&workload) {
            let of = |run: &&Run| run.cell == cell && !run.warm_up && run.time.is_some();
            let runs: Vec<_> = data.runs.iter().filter(of).collect();
            let mean = |value: &dyn Fn(&Run) -> Option<f64>| {
                let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
                tare_stats::mean(&values).map_or("-".to_owned(), number)
            };
            if runs.is_empty() {
                continue;
            }
            let counted = charges(data, &cell);
            rows.push(vec![
                format!("{workload}, {}", cell.place),
                mean(&|r| Some(r.observed.context_switches as f64)),
                mean(&|r| Some(r.observed.sched.as_ref()?.migrations as f64)),
                counted,
                mean(&|r| Some(r.observed.sched.as_ref()?.on_cpu_ns as f64 / 1e9)),
                mean(&|r| Some(r.observed.sched.as_ref()?.io_ns as f64 / 1e9)),
                mean(&|r| {
                    Some(
                        *r.observed
                            .sched
                            .as_ref()?
                            .off_cpu_ns
                            .get(WAITING_FOR_A_CPU)? as f64
                            / 1e9,
                    )
                }),
                mean(&|r| Some(r.observed.throttled_us? as f64 / 1e6)),
                mean(&|r| Some(r.observed.steal_s)),
                mean(&|r| Some(r.observed.disk_requests as f64)),
                mean(&|r| await_ms(&r.observed)),
                mean(&|r| Some(*r.observed.kvm.as_ref()?.get("exits")? as f64)),
            ]);
        }
    }
    table(
        &[
            "",
            "switches",
            "migrations",
            "charges x groups",
            "on CPU, s",
            "in I/O, s",
            "waiting for a CPU, s",
            "throttled, s",
            "steal, s",
            "disk requests",
            "await, ms",
            "KVM exits",
        ],
        &rows,
    )
}

/// Of the run that warmed up: how often CPU time was charged to control groups, and to how many.
fn charges(data: &Data, cell: &Cell) -> String {
    let counted = data.runs.iter().find_map(|run| {
        let sched = run.observed.sched.as_ref().filter(|_| run.cell == *cell)?;
        Some((sched.charges?, sched.charged_groups?))
    });
    counted.map_or("-".to_owned(), |(charges, groups)| {
        format!("{} x {groups}", number(charges as f64))
    })
}

fn distributions(data: &Data) -> String {
    let workloads = data.workloads().into_iter();
    workloads
        .map(|workload| charts::distributions(data, &workload))
        .collect()
}

/// What the model says of this host's sizes beside what was measured, and of larger hosts.
fn modelled(text: &Template<'_>, experiment: &Platforms, figures: &[Figure]) -> Option<Section> {
    let predicted = model::predicted(&experiment.data, &experiment.ran(), figures);
    let (here, beyond): (Vec<_>, Vec<_>) =
        predicted.into_iter().partition(|it| it.measured.is_some());
    if here.is_empty() && beyond.is_empty() {
        return None;
    }
    let checked = here.iter().map(|it| {
        let measured = it
            .measured
            .map_or_else(String::new, |measured| measured.text());
        let verdict = match it.check() {
            Check::Overlaps => "they overlap",
            Check::Trivial => "they overlap, where nothing is limited",
            Check::Differs => "they differ",
            Check::Undecided => "undecided: no interval",
        };
        vec![it.place(), measured, it.overhead.text(), verdict.to_owned()]
    });
    let mut html = table(
        &["", "measured, %", "model, %", ""],
        &checked.collect::<Vec<_>>(),
    );
    for of_one in beyond.chunk_by(|a, b| a.workload == b.workload) {
        html += &charts::model_over_chr(of_one);
    }
    let row = |it: &Predicted| vec![it.place(), number(it.chr()), it.overhead.text()];
    if !beyond.is_empty() {
        html += &table(
            &["", "CHR", "model, %"],
            &beyond.iter().map(row).collect::<Vec<_>>(),
        );
    }
    let misses = model::misses(&here);
    text.section_of("model", &values([("misses", misses.as_str())]), html)
}

fn controls(data: &Data, figures: &[Figure]) -> String {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for (arm, name) in [(Arm::Control, "A/A"), (Arm::Unobserved, "observer")] {
            for Comparison { size, ratio, p, .. } in
                instrument::against_baseline(data, &workload, arm)
            {
                let longer = ratio.percent();
                rows.push(vec![
                    format!("{workload}, {size} CPUs, {name}"),
                    number(longer.value),
                    longer.figure("", "").ends_text(),
                    p.map_or("-".to_owned(), number),
                    longer.n.to_string(),
                ]);
            }
        }
        let accounted = format!("observer_accounted_pct.{workload}");
        if let Some(cost) = find(figures, &accounted) {
            rows.push(vec![
                format!("{workload}, observer, accounted"),
                number(cost.value),
                cost.ends_text(),
                "-".to_owned(),
                cost.n.to_string(),
            ]);
        }
    }
    let finds: Vec<Vec<String>> = data
        .workloads()
        .into_iter()
        .map(|workload| {
            let noise = instrument::noise(data, &workload).len();
            let runs = match value(figures, &format!("runs_to_find_5pct.{workload}")) {
                Some(runs) => number(runs),
                None if noise < instrument::LEAST_NOISE => "too few pairs to tell".to_owned(),
                None => format!("above {}", instrument::MOST_DRAWN),
            };
            vec![workload, runs, noise.to_string()]
        })
        .collect();
    let finds = table(&["", "pairs that find 5 %", "drawn from pairs"], &finds);
    table(&["", "difference, %", "95 % interval", "p", "n"], &rows) + &finds
}
