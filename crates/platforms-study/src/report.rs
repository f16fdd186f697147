//! What the platforms say.

use tare_platform::{Limit, Mode, Platform};

use super::Platforms;
use super::analysis::{self, Comparison, Pinning, overhead, pin_gain, quota_bound, split};
use super::data::Data;
use super::findings;
use super::observe::Observed;
use super::plan::Arm;
use tare_lab::kit::ReportText;
use tare_lab::kit::number;
use tare_lab::kit::{Bar, bars, legend};
use tare_lab::kit::{Figure, find, value};
use tare_lab::kit::{Section, table};

/// With CPU-Pinning 2020's abbreviations.
const PLATFORMS: [&str; 4] = [
    "bare metal (BM)",
    "container (CN)",
    "VM",
    "container in VM (VMCN)",
];
const SHORT: [&str; 4] = ["BM", "CN", "VM", "VMCN"];

pub(crate) fn report_text(experiment: &Platforms, figures: &[Figure]) -> ReportText {
    let data = &experiment.data;
    let mut sections = vec![source_findings(experiment)];
    for workload in data.workloads() {
        sections.push(ratios(data, &workload));
    }
    sections.extend(splits(data));
    sections.extend([pinning(data), causes(data), controls(data, figures)]);
    ReportText {
        title: "What each platform costs an application, and when pinning pays".to_owned(),
        question:
            "The same workloads on bare metal (a chroot), in a container (runc), in a virtual \
                   machine and in a container in one, each left to the scheduler and pinned, at \
                   sizes that double: how much longer do they take than on the bare machine, how \
                   much of that shrinks with size, and what does pinning give back?"
                .to_owned(),
        glance: glance(experiment),
        answer: answer(experiment, figures),
        sections,
        method: method(experiment),
        limitations: experiment.limitations(),
    }
}

/// The largest size, vanilla and pinned.
fn glance(experiment: &Platforms) -> String {
    let data = &experiment.data;
    let rows: Vec<Vec<String>> = data
        .workloads()
        .into_iter()
        .map(|workload| {
            let largest = analysis::sizes(data, &workload).pop().unwrap_or(1);
            let cell = |platform, mode| {
                let place = experiment.place(platform, mode, largest);
                let ratio = overhead(data, &workload, place);
                ratio.map_or("-".to_owned(), |r| r.text())
            };
            let ratios = Platform::ALL.iter().skip(1).flat_map(|platform| {
                [Mode::Vanilla, Mode::Pinned].map(|mode| cell(*platform, mode))
            });
            std::iter::once(format!("{workload}, {largest} CPUs"))
                .chain(ratios)
                .collect()
        })
        .collect();
    let head = [
        "time over bare metal's",
        "container",
        "pinned",
        "VM",
        "pinned",
        "container in VM",
        "pinned",
    ];
    table(&head, &rows)
}

fn answer(experiment: &Platforms, figures: &[Figure]) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(engine) = experiment
        .data
        .runs
        .iter()
        .find_map(|run| run.engine.clone())
    {
        sentences.push(if experiment.translated() { format!(
                "Machines were run by {engine}: there is no KVM here that runs Linux at full speed. \
                 Ratios of VMs are the translator's, not a hypervisor's."
            ) } else { format!("Machines were run by {engine}.") });
    }
    sentences.extend(resolution(figures));
    if let Some(cost) = find(figures, "observer_cost_pct") {
        sentences.push(format!("Observing costs {} %, by pairs.", cost.text()));
    }
    if let Some(cost) = value(figures, "observer_accounted_pct") {
        sentences.push(format!(
            "By the kernel's account it takes {} % of the CPU time of the workload that it takes \
             most of.",
            number(cost)
        ));
    }
    sentences
}

/// What this weighing could have told apart, from its A/A arms.
fn resolution(figures: &[Figure]) -> Option<String> {
    let named = |prefix: &'static str| {
        let of = figures
            .iter()
            .filter(move |figure| figure.name.starts_with(prefix));
        of.map(|figure| figure.value)
    };
    let half = value(figures, "aa_half_width_pct")?;
    let best = named("aa_half_width_pct.").fold(f64::INFINITY, f64::min);
    let widths = if best < half {
        format!("{} to {} %", number(best), number(half))
    } else {
        format!("{} %", number(half))
    };
    let mut sentence = format!(
        "The intervals between two arms that are the same reach {widths} to either side: a smaller \
         difference cannot be told from none here."
    );
    let found = || named("finds_5pct_of_100.");
    let (least, most) = (
        found().fold(f64::INFINITY, f64::min),
        found().fold(f64::NEG_INFINITY, f64::max),
    );
    if least.is_finite() {
        let range = if least < most {
            format!("{} to {}", number(least.round()), number(most.round()))
        } else {
            number(least.round())
        };
        sentence += &format!(
            " A change of 5 % would have been found in {range} of 100 such weighings, depending on \
             the workload."
        );
    }
    Some(sentence)
}

fn source_findings(experiment: &Platforms) -> Section {
    let rows: Vec<Vec<String>> = findings::table(&experiment.evidence())
        .into_iter()
        .map(|(finding, verdict)| {
            let (word, why) = verdict.words();
            vec![finding.to_owned(), word.to_owned(), why.to_owned()]
        })
        .collect();
    Section {
        title: "CPU-Pinning 2020's findings and this machine".to_owned(),
        lead:
            "Findings of CPU-Pinning 2020 on 112 cores with hardware virtualisation, and what this machine \
               says to it."
                .to_owned(),
        html: table(&["CPU-Pinning 2020", "here", "because"], &rows),
    }
}

fn ratios(data: &Data, workload: &str) -> Section {
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
    let html = format!(
        "{}{}{}",
        legend(&PLATFORMS),
        bars(
            &chart,
            "time over bare metal's",
            &format!("{workload}: overhead of each platform")
        ),
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
    Section {
        title: format!("{workload}: overhead"),
        lead: "Mean time over the bare machine's of the same size, and median time. Labels are \
               platform, mode and CPUs; q: by CFS quota, another mechanism than sets of CPUs."
            .to_owned(),
        html,
    }
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

fn row(
    data: &Data,
    cell: &super::plan::Cell,
    ratio: analysis::Estimate,
    scale: f64,
) -> Vec<String> {
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
fn splits(data: &Data) -> Option<Section> {
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
                rows.push(vec![
                    format!("{workload}, {}, {}", platform.name(), mode.name()),
                    split.constant.text(),
                    falling.join("; "),
                ]);
            }
        }
    }
    (!rows.is_empty()).then(|| Section {
        title: "Overhead by type and by size".to_owned(),
        lead: "Overhead = constant + falling / CPUs, fitted by least squares over at least three \
               sizes that the same limit holds: a fit of ours, which CPU-Pinning 2020 does not \
               have. Of a VM the constant is what it calls PTO; of a container the falling part \
               is PSO."
            .to_owned(),
        html: table(&["", "constant, %", "falling, % at each size"], &rows),
    })
}

fn pinning(data: &Data) -> Section {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for platform in Platform::ALL {
            for size in analysis::sizes(data, &workload) {
                let Some((what, gain)) = pin_gain(data, &workload, platform, size) else {
                    continue;
                };
                rows.push(vec![
                    format!("{workload}, {}, {size} CPUs", platform.name()),
                    number(gain.value),
                    gain.figure("", "").ends_text(),
                    gain.n.to_string(),
                    meaning(what).to_owned(),
                ]);
            }
        }
    }
    Section {
        title: "Vanilla against pinned".to_owned(),
        lead:
            "How much longer the vanilla runs took than the pinned ones, size by size. Where both \
               are bound alike the row is a control, which must be zero."
                .to_owned(),
        html: table(&["", "longer, %", "95 % interval", "n", "is"], &rows),
    }
}

const fn meaning(what: Pinning) -> &'static str {
    match what {
        Pinning::Gain => "gain by pinning",
        Pinning::Control => "control",
        Pinning::QuotaToSet => "quota against set",
    }
}

/// How long a disk request took, at the mean; as iostat's await.
fn await_ms(observed: &Observed) -> Option<f64> {
    let requests = observed.disk_requests as f64;
    (requests > 0.0).then(|| observed.disk_wait_s * 1e3 / requests)
}

/// What goes with the overhead: means over the runs that count.
fn causes(data: &Data) -> Section {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for cell in data.cells(&workload) {
            let of =
                |run: &&super::data::Run| run.cell == cell && !run.warm_up && run.time.is_some();
            let runs: Vec<_> = data.runs.iter().filter(of).collect();
            let mean = |value: &dyn Fn(&super::data::Run) -> Option<f64>| {
                let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
                tare_stats::mean(&values).map_or("-".to_owned(), number)
            };
            if runs.is_empty() {
                continue;
            }
            rows.push(vec![
                format!("{workload}, {}", cell.place),
                mean(&|r| Some(r.observed.context_switches as f64)),
                mean(&|r| Some(r.observed.sched.as_ref()?.migrations as f64)),
                mean(&|r| Some(r.observed.sched.as_ref()?.on_cpu_ns as f64 / 1e9)),
                mean(&|r| Some(r.observed.sched.as_ref()?.io_ns as f64 / 1e9)),
                mean(&|r| Some(*r.observed.sched.as_ref()?.off_cpu_ns.get("a CPU")? as f64 / 1e9)),
                mean(&|r| Some(r.observed.throttled_us? as f64 / 1e6)),
                mean(&|r| Some(r.observed.steal_s)),
                mean(&|r| Some(r.observed.disk_requests as f64)),
                mean(&|r| await_ms(&r.observed)),
                mean(&|r| Some(*r.observed.kvm.as_ref()?.get("exits")? as f64)),
            ]);
        }
    }
    Section {
        title: "What goes with it".to_owned(),
        lead:
            "Means of the runs, of a machine as its host sees it. Context switches, steal and disk \
               requests are the whole host's; the others the run's own threads'. QEMU's translator \
               has no exits."
                .to_owned(),
        html: table(
            &[
                "",
                "switches",
                "migrations",
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
        ),
    }
}

fn controls(data: &Data, figures: &[Figure]) -> Section {
    let mut rows = Vec::new();
    for workload in data.workloads() {
        for (arm, name) in [(Arm::Control, "A/A"), (Arm::Unobserved, "observer")] {
            for Comparison { size, ratio, p } in analysis::against_baseline(data, &workload, arm) {
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
    let finds = data.workloads().into_iter().map(|workload| {
        let noise = analysis::noise(data, &workload).len().to_string();
        let runs = match value(figures, &format!("runs_to_find_5pct.{workload}")) {
            Some(runs) => number(runs),
            None if analysis::noise(data, &workload).len() < 10 => {
                "too few pairs to tell".to_owned()
            }
            None => format!("above {}", analysis::MOST_DRAWN),
        };
        vec![workload, runs, noise]
    });
    let finds: Vec<Vec<String>> = finds.collect();
    let finds = table(&["", "pairs that find 5 %", "drawn from pairs"], &finds);
    Section {
        title: "How far the instrument can be trusted".to_owned(),
        lead:
            "The bare machine against itself: once more the same (A/A), and without the observer. \
               How much longer it took, in pairs of runs that came one after the other in random \
               order: Hodges and Lehmann's middle with its interval, and p of Wilcoxon's \
               signed-rank test, which needs six pairs. Accounted: \
               the time of the observer's programs in the kernel and of its own thread, of the \
               run's time on CPUs. Below: from how many pairs on the test (p < \
               0.01) finds a made slow-down of 5 % in 95 of 100 weighings, drawn from the A/A pairs."
                .to_owned(),
        html: table(
            &["", "difference, %", "95 % interval", "p", "n"],
            &rows,
        ) + &finds,
    }
}

fn method(experiment: &Platforms) -> Vec<String> {
    let quota = experiment
        .data
        .runs
        .iter()
        .any(|run| run.cell.place.limit == Limit::Quota);
    let mut method = vec![
        "One root file system serves all platforms: as a chroot, as runc's bundle, as a disk that \
         machines share read only, and within them as crun's. Each run writes to a directory of its \
         own, in machines to a disk of their own."
            .to_owned(),
        "A run counts if its check succeeds: frames decode, primes are right, no request failed."
            .to_owned(),
        format!(
            "Rounds in random order (seed {}), each kind of run once a round, those on the host \
             more often; the bare machine's runs come with their like (A/A, and without the \
             observer) one after the other, in random order. The first run of each workload on \
             each platform and size only warms up.",
            experiment.seed
        ),
        "Bare metal is kept to a size by a set of CPUs, where CPU-Pinning 2020 booted with fewer; its \
         vanilla and pinned runs are then bound alike. A pinned machine has a virtual CPU on each \
         CPU of its set and all other threads within the set. Machines that wait are stopped."
            .to_owned(),
        "A kind of run is repeated until its mean is known to 1 % or the time is spent. Outliers \
         are kept."
            .to_owned(),
    ];
    if quota {
        method.push(
            "A vanilla container below the host's size is kept to it by CFS quota (q), as docker \
             run --cpus does and as in CPU-Pinning 2020."
                .to_owned(),
        );
    }
    method
}
