//! The data as charts: CPU time on one axis, latencies by percentile.

use std::collections::BTreeMap;

use tare_lab::kit::{Band, Distribution, Panel, Timeline};

use super::arms::Arm;
use super::data::Data;
use super::plan::{Plan, ms};
use super::sample::{CpuSample, Phase, SamplePosition};

/// Begin and end of each phase of each cycle on the axis that all arms share, s.
type Spans = BTreeMap<(usize, Phase), (f64, f64)>;
/// Begin of a phase's first window and end of its last, since the phase began, ns.
type Extents = BTreeMap<SamplePosition, (u64, u64)>;

/// CPU over time, a panel for each arm. A phase is as long as the longest that an arm's windows
/// took, so that windows lie in the band of their phase. The wait of a machine that comes to rest
/// differs from arm to arm and is left out.
pub(super) fn timeline(plan: &Plan, data: &Data) -> Timeline {
    let extents = extents(&data.cpu);
    let spans = spans(plan, &extents);
    let bands = (0..plan.cycles).flat_map(|cycle| {
        let band = |phase, label| {
            let span = *spans.get(&(cycle, phase))?;
            Some(Band { span, label })
        };
        [band(Phase::Burst, "burst"), band(Phase::Steady, "1/s")]
    });
    Timeline {
        axis: "time in the arm's turns, s",
        end: spans.values().map(|span| span.1).fold(0.0, f64::max),
        bands: bands.flatten().collect(),
        panels: Arm::ALL
            .map(|arm| panel(&spans, &extents, data, arm))
            .into(),
    }
}

fn extents(samples: &[CpuSample]) -> Extents {
    let mut extents = Extents::new();
    for sample in samples {
        let (from, to) = (
            sample.from_ns,
            sample.from_ns.saturating_add(sample.spent.wall_ns),
        );
        let extent = extents.entry(sample.place).or_insert((from, to));
        *extent = (extent.0.min(from), extent.1.max(to));
    }
    extents
}

fn spans(plan: &Plan, extents: &Extents) -> Spans {
    let phases = [
        (Phase::Burst, plan.burst_ms),
        (Phase::Settle, plan.settle_ms),
        (Phase::Break, plan.break_ms),
        (Phase::Steady, plan.steady_ms),
    ];
    let (mut spans, mut at) = (Spans::new(), 0.0);
    for cycle in 0..plan.cycles {
        for (phase, planned_ms) in phases {
            let took = Arm::ALL.into_iter().filter_map(|arm| {
                let (from, to) = extents.get(&SamplePosition { arm, cycle, phase })?;
                Some(seconds(to - from))
            });
            let begin = at;
            at += took.fold(ms(planned_ms).as_secs_f64(), f64::max);
            spans.insert((cycle, phase), (begin, at));
        }
    }
    spans
}

fn panel(spans: &Spans, extents: &Extents, data: &Data, arm: Arm) -> Panel {
    let mut windows: Vec<(f64, f64, f64)> = data
        .cpu
        .iter()
        .filter(|sample| sample.place.arm == arm)
        .filter_map(|sample| {
            let SamplePosition { cycle, phase, .. } = sample.place;
            let (begin, _) = spans.get(&(cycle, phase))?;
            let (first, _) = extents.get(&sample.place)?;
            let from = begin + seconds(sample.from_ns - first);
            let to = from + seconds(sample.spent.wall_ns);
            Some((from, to, sample.spent.monitor_pct()))
        })
        .collect();
    windows.sort_by(|a, b| a.0.total_cmp(&b.0));
    Panel {
        title: arm.name().to_owned(),
        windows,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Latencies of the arms that have some.
pub(super) fn distributions(data: &Data) -> Vec<Distribution> {
    let series = Arm::ALL
        .iter()
        .enumerate()
        .filter_map(|(series, arm)| Distribution::of(series, &data.latencies(*arm).concat()));
    series.collect()
}
