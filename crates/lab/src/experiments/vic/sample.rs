//! From a run's line to samples.

use serde_json::Value;
use tare_control::live::DiskInterval;

use super::plan::{Arm, Load};
use crate::figure::{Figure, Samples, median, value};
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

/// The median figures, and what follows from two of them.
pub(super) fn figures(samples: &Samples) -> Vec<Figure> {
    let mut figures = samples.figures();
    let mut derived = Vec::new();
    for load in Load::ALL {
        for cif in super::plan::CIF {
            let at = format!("cif{cif}{}", load.infix());
            let pair = |name: &str| {
                let of = |arm: &str| value(&figures, &format!("{name}.{at}.{arm}"));
                Some((of("off")?, of("vic")?))
            };
            if let Some((off, vic)) = pair("iops") {
                derived.push((
                    format!("iops_gain_pct.{at}"),
                    "%",
                    (vic / off - 1.0) * 100.0,
                ));
                derived.push((format!("iops_off_over_vic.{at}"), "1", off / vic));
            }
            if let Some((off, vic)) = pair("cpu_us_per_io") {
                derived.push((format!("cpu_gain_pct.{at}"), "%", (1.0 - vic / off) * 100.0));
                derived.push((format!("cpu_vic_over_off.{at}"), "1", vic / off));
            }
            if let Some((off, vic)) = pair("instructions_per_io") {
                let gain = (1.0 - vic / off) * 100.0;
                derived.push((format!("instructions_gain_pct.{at}"), "%", gain));
                // What an interrupt costs, by as many fewer as there are, if they are
                // clearly fewer.
                let interrupts = pair("interrupts_per_io");
                if let Some((more, fewer)) = interrupts.filter(|(a, b)| *a > 1.5 * b) {
                    let each = (off - vic) / (more - fewer);
                    derived.push((format!("instructions_per_interrupt.{at}"), "1", each));
                    let share = each * more / off * 100.0;
                    derived.push((format!("interrupt_share_pct.{at}"), "%", share));
                }
            }
            if let Some((off, vic)) = pair("latency_p50_us") {
                derived.push((format!("latency_vic_over_off.{at}"), "1", vic / off));
            }
        }
    }
    let fsync = |arm: &str| value(&figures, &format!("fsync_p50_us.{arm}"));
    for (name, arm) in [
        ("fsync_vic_over_off", "vic"),
        ("fsync_plain_over_off", "plain"),
    ] {
        if let (Some(off), Some(with)) = (fsync("off"), fsync(arm)) {
            derived.push((name.to_owned(), "1", with / off));
        }
    }
    let derived = derived.iter();
    let derived: Vec<_> = derived
        .filter(|(_, _, value)| value.is_finite())
        .filter_map(|(name, unit, value)| median(name, unit, &[*value]))
        .collect();
    figures.extend(derived);
    figures
}
