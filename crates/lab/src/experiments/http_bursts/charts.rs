//! The data as charts: CPU time on one axis, latencies by percentile.

use super::arms::Arm;
use super::data::Data;
use super::plan::{Plan, ms};
use super::sample::{CpuSample, Phase};
use crate::report::svg::{Band, Distribution, Panel, Timeline};

/// CPU over time, a panel for each arm.
pub(super) fn timeline(plan: &Plan, data: &Data) -> Timeline {
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
        axis: "time in the arm's turns, s",
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

/// Latencies of the arms that have some.
pub(super) fn distributions(data: &Data) -> Vec<Distribution> {
    let series = Arm::ALL
        .iter()
        .enumerate()
        .filter_map(|(series, arm)| Distribution::of(series, &data.latencies(*arm).concat()));
    series.collect()
}
