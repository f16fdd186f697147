//! From a run's line to samples.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tare_control::live::{DiskInterval, RatioShare};
use tare_lab::kit::{Figure, Samples, median, needed, paired_ratio};
use tare_machines::observe::CpuSpent;

use super::metrics::METRICS;
use super::plan::{Arm, Load};

/// What was read around a run, besides what the guest said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outside {
    /// CPU time of all threads, where it could be read.
    pub(super) cpu: Option<CpuSpent>,
    /// Instructions of ring 0 that KVM executed itself, where it counts them.
    pub(super) instructions: Option<u64>,
    /// What the disk did, where it says so.
    pub(super) disk: Option<DiskInterval>,
    /// What it did meanwhile, where that is drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) intervals: Vec<DiskInterval>,
    /// R's distribution, where that is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) distribution: Option<Vec<RatioShare>>,
}

/// Figures of a run under a load.
pub(super) fn add(samples: &mut Samples, load: Load, arm: Arm, line: &Value, outside: &Outside) {
    let get = |name: &str| line.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let time = |of: &str, name: &str| {
        let time = line.get(of).and_then(|times| times.get(name));
        time.and_then(Value::as_f64).map_or(f64::NAN, |ns| ns / 1e3)
    };
    let cif = load.cif(get("cif") as u32);
    let suffix = format!("cif{cif}{}.{}", load.infix(), arm.name());
    let mut put = |name: &str, value| samples.add_of(METRICS, &format!("{name}.{suffix}"), value);
    put("iops", get("completed") * 1e9 / get("ns"));
    put("interrupts_per_io", get("interrupts") / get("completions"));
    if let Some(cpu) = &outside.cpu {
        let us = (cpu.monitor_ns + cpu.helper_ns) as f64 / 1e3;
        put("cpu_us_per_io", us / get("completions"));
    }
    put("latency_p50_us", time("latency_ns", "p50"));
    let mean_us = time("latency_ns", "mean");
    put("latencies_in_window", get("ns") / 1e3 / mean_us);
    if get("completions") >= needed(0.99) as f64 {
        put("latency_p99_us", time("latency_ns", "p99"));
    }
    if let Some(instructions) = outside.instructions {
        let each = instructions as f64 / get("completions");
        put("instructions_per_io", each);
    }
    if let Some(disk) = &outside.disk {
        put("delivered_per_io", disk.r);
        put("in_flight", disk.in_flight);
    }
    if load == Load::Committer {
        let suffix = arm.name();
        let mut put =
            |name: &str, value| samples.add_of(METRICS, &format!("{name}.{suffix}"), value);
        put("fsync_p50_us", time("flush_ns", "p50"));
        put("fsync_p99_us", time("flush_ns", "p99"));
        put("commit_p50_us", time("commit_ns", "p50"));
    }
}

/// A window behind the others; each machine has its own time.
pub(super) fn append(windows: &mut Vec<DiskInterval>, mut next: DiskInterval) {
    let last_s = windows.last().map_or(0.0, |last| last.to_s);
    if next.from_s < last_s {
        (next.from_s, next.to_s) = (last_s, last_s + next.to_s - next.from_s);
    }
    windows.push(next);
}

/// Adds the completions of one window to those of the others.
pub(super) fn merge(all: &mut Vec<RatioShare>, shares: Vec<RatioShare>) {
    for share in shares {
        match all.iter_mut().find(|known| known.r == share.r) {
            Some(known) => known.completions += share.completions,
            None => all.push(share),
        }
    }
    all.sort_by(|a, b| b.r.total_cmp(&a.r));
}

/// Compared in pairs of one round: figure, of which series, and arms, the second over the
/// first. Of two arms that are the same the ratio is 1 but for chance.
const OVER: [(&str, &str, [&str; 2]); 8] = [
    ("iops_off_over_vic", "iops", ["vic", "off"]),
    ("cpu_vic_over_off", "cpu_us_per_io", ["off", "vic"]),
    ("latency_vic_over_off", "latency_p50_us", ["off", "vic"]),
    ("latency_p99_vic_over_off", "latency_p99_us", ["off", "vic"]),
    ("iops_off_over_again", "iops", ["again", "off"]),
    ("cpu_again_over_off", "cpu_us_per_io", ["off", "again"]),
    ("latency_again_over_off", "latency_p50_us", ["off", "again"]),
    (
        "latency_p99_again_over_off",
        "latency_p99_us",
        ["off", "again"],
    ),
];

/// The median figures, and what follows from two of them, round by round.
pub(super) fn figures(samples: &Samples) -> Vec<Figure> {
    let mut figures = samples.figures();
    for load in Load::ALL {
        for cif in super::plan::CIF {
            let at = format!("cif{cif}{}", load.infix());
            for (name, of, [under, over]) in OVER {
                let ratios = samples.ratios(&format!("{of}.{at}"), [over, under]);
                figures.extend(paired_ratio(&format!("{name}.{at}"), "1", &ratios));
            }
            gains(samples, &at, &mut figures);
        }
    }
    for (name, arm) in [
        ("fsync_vic_over_off", "vic"),
        ("fsync_plain_over_off", "plain"),
    ] {
        let ratios = samples.ratios("fsync_p50_us", [arm, "off"]);
        figures.extend(paired_ratio(name, "1", &ratios));
    }
    figures
}

/// What coalescing gains at one depth of a load, percent, and what an interrupt costs.
fn gains(samples: &Samples, at: &str, figures: &mut Vec<Figure>) {
    let of = |name: &str| samples.pairs(&format!("{name}.{at}"), ["off", "vic"]);
    let mut put = |name: &str, unit, values: Vec<f64>| {
        figures.extend(median(&format!("{name}.{at}"), unit, &values));
    };
    let less = |name| {
        let pairs = of(name).into_iter();
        pairs.map(|(off, vic)| (1.0 - vic / off) * 100.0).collect()
    };
    let more = of("iops").into_iter();
    let more = more.map(|(off, vic)| (vic / off - 1.0) * 100.0).collect();
    put("iops_gain_pct", "%", more);
    put("cpu_gain_pct", "%", less("cpu_us_per_io"));
    put("instructions_gain_pct", "%", less("instructions_per_io"));
    // What an interrupt costs, by as many fewer as there are, if they are clearly fewer.
    let costs = of("instructions_per_io")
        .into_iter()
        .zip(of("interrupts_per_io"))
        .filter(|(_, (more, fewer))| *more > 1.5 * fewer);
    let costs = costs.map(|((off, vic), (more, fewer))| {
        let each = (off - vic) / (more - fewer);
        (each, each * more / off * 100.0)
    });
    let (each, shares) = costs.unzip();
    put("instructions_per_interrupt", "1", each);
    put("interrupt_share_pct", "%", shares);
}
