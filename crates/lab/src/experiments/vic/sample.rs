//! From a run's line to samples.

use serde_json::Value;
use tare_control::live::DiskInterval;

use super::plan::{Arm, Load};
use crate::figure::{Figure, Samples, median};
use crate::observe::CpuSpent;

/// What was read around a run, besides what the guest said.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    /// CPU time of all threads, where it could be read.
    pub(super) cpu: Option<CpuSpent>,
    /// Instructions of ring 0 that KVM executed itself, where it counts them.
    pub(super) instructions: Option<u64>,
    /// What the disk did, where it says so.
    pub(super) disk: Option<DiskInterval>,
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
    let mut put = |name: &str, unit, value| samples.add(&format!("{name}.{suffix}"), unit, value);
    put("iops", "1/s", get("completed") * 1e9 / get("ns"));
    put(
        "interrupts_per_io",
        "1",
        get("interrupts") / get("completions"),
    );
    if let Some(cpu) = &outside.cpu {
        let us = (cpu.monitor_ns + cpu.helper_ns) as f64 / 1e3;
        put("cpu_us_per_io", "us", us / get("completions"));
    }
    put("latency_p50_us", "us", time("latency_ns", "p50"));
    put("latency_p99_us", "us", time("latency_ns", "p99"));
    if let Some(instructions) = outside.instructions {
        put(
            "instructions_per_io",
            "1",
            instructions as f64 / get("completions"),
        );
    }
    if let Some(disk) = &outside.disk {
        put("delivered_per_io", "1", disk.r);
        put("in_flight", "1", disk.in_flight);
    }
    if load == Load::Committer {
        let mut put = |name: &str, value| {
            samples.add(&format!("{name}.{}", arm.name()), "us", value);
        };
        put("fsync_p50_us", time("flush_ns", "p50"));
        put("fsync_p99_us", time("flush_ns", "p99"));
        put("commit_p50_us", time("commit_ns", "p50"));
    }
}

/// The median figures, and what follows from two of them, round by round.
pub(super) fn figures(samples: &Samples) -> Vec<Figure> {
    let mut figures = samples.figures();
    let pairs = |name: &str, arms: [&str; 2]| -> Vec<(f64, f64)> {
        let [first, second] = arms.map(|arm| samples.values(&format!("{name}.{arm}")));
        first.iter().copied().zip(second.iter().copied()).collect()
    };
    let mut put = |name: String, unit: &str, values: Vec<f64>| {
        let finite: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        figures.extend(median(&name, unit, &finite));
    };
    for load in Load::ALL {
        for cif in super::plan::CIF {
            let at = format!("cif{cif}{}", load.infix());
            let of = |name: &str| pairs(&format!("{name}.{at}"), ["off", "vic"]);
            let each = |name: &str, what: fn(f64, f64) -> f64| -> Vec<f64> {
                of(name)
                    .into_iter()
                    .map(|(off, vic)| what(off, vic))
                    .collect()
            };
            let gain = |off: f64, vic: f64| (1.0 - vic / off) * 100.0;
            let more = |off: f64, vic: f64| (vic / off - 1.0) * 100.0;
            put(format!("iops_gain_pct.{at}"), "%", each("iops", more));
            put(
                format!("iops_off_over_vic.{at}"),
                "1",
                each("iops", |off, vic| off / vic),
            );
            put(
                format!("cpu_gain_pct.{at}"),
                "%",
                each("cpu_us_per_io", gain),
            );
            put(
                format!("cpu_vic_over_off.{at}"),
                "1",
                each("cpu_us_per_io", |off, vic| vic / off),
            );
            let name = format!("instructions_gain_pct.{at}");
            put(name, "%", each("instructions_per_io", gain));
            // What an interrupt costs, by as many fewer as there are, if they are clearly
            // fewer.
            let costs = of("instructions_per_io")
                .into_iter()
                .zip(of("interrupts_per_io"));
            let costs = costs.filter(|(_, (more, fewer))| *more > 1.5 * fewer);
            let costs: Vec<(f64, f64)> = costs
                .map(|((off, vic), (more, fewer))| {
                    let each = (off - vic) / (more - fewer);
                    (each, each * more / off * 100.0)
                })
                .collect();
            let (each, shares) = costs.into_iter().unzip();
            put(format!("instructions_per_interrupt.{at}"), "1", each);
            put(format!("interrupt_share_pct.{at}"), "%", shares);
            let ratios = of("latency_p50_us").into_iter().map(|(off, vic)| vic / off);
            put(format!("latency_vic_over_off.{at}"), "1", ratios.collect());
        }
    }
    for (name, arm) in [
        ("fsync_vic_over_off", "vic"),
        ("fsync_plain_over_off", "plain"),
    ] {
        let ratios = pairs("fsync_p50_us", ["off", arm]).into_iter();
        put(
            name.to_owned(),
            "1",
            ratios.map(|(off, with)| with / off).collect(),
        );
    }
    figures
}
