//! Simulated disks: what interrupt coalescing costs. A guest with streams of requests, its
//! queues and a disk in simulated time, around `tare_policy`'s coalescers: [`worst`] runs a
//! load with `auto` and `off`, on the same arrivals and service times, and compares IOPS,
//! mean, median and 99th percentile of each stream.
//!
//! Used by the property tests of `tare-policy` and by `tare weigh vic`. Pure.

#![forbid(unsafe_code)]

mod load;
mod loads;
mod simulation;

pub use load::{
    Costs, Disk, Load, MS, Pace, Requests, Service, Stream, US, committer, paced, readers,
};
pub use loads::{arbitrary, equal, known, mixed};
pub use simulation::{RunStats, Sample, Simulation};

use tare_policy::coalesce::{Mode, Settings};

/// What `auto` may cost, in any figure of any stream.
pub const MOST_COST: f64 = 1.02;
/// Streams with fewer completions than this have no percentiles worth comparing.
const FEWEST_COMPLETIONS: usize = 2_000;

/// A load under a mode: its first epochs, in which a trial is made, do not count.
pub fn run(load: &Load, mode: Mode, seed: u64) -> RunStats {
    let settings = Settings::with_mode(mode);
    // A short trial tells how long the load takes for enough completions.
    let trial = Simulation::new(load, Settings::with_mode(Mode::Off), seed).run(0, 100 * MS);
    let per_ms = (trial.all.completions() as u64 / 100).max(1);
    let duration_ns = (30_000 / per_ms).max(1_000) * MS;
    // The first epochs are those in which the trial is made.
    Simulation::new(load, settings, seed).run(duration_ns / 2 + 2_000 * MS, duration_ns)
}

/// `auto` beside `off`: each above 1 is a cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Figure and stream.
    pub what: String,
    /// `auto` over `off`, or its inverse where more is better.
    pub factor: f64,
}

fn costs(label: &str, off: &Sample, auto: &Sample) -> Vec<Cost> {
    let cost = |what: &str, factor: f64| Cost {
        what: format!("{label} {what}"),
        factor,
    };
    if off.completions() < FEWEST_COMPLETIONS {
        return Vec::new();
    }
    vec![
        cost("IOPS", off.iops() / auto.iops()),
        cost("mean", auto.mean_ns() / off.mean_ns()),
        cost("p50", auto.percentile_ns(50) / off.percentile_ns(50)),
        cost("p99", auto.percentile_ns(99) / off.percentile_ns(99)),
    ]
}

/// The costs of a load: all figures of all streams.
fn compare(off: &RunStats, auto: &RunStats) -> Vec<Cost> {
    let mut all = costs("all", &off.all, &auto.all);
    // Of streams together, a percentile may lie between two of them.
    all.truncate(2);
    for (index, (off, auto)) in off.streams.iter().zip(&auto.streams).enumerate() {
        all.extend(costs(&format!("stream {index}"), off, auto));
    }
    all
}

/// Comparisons without coalescing from which chance is known.
const CONTROLS: u64 = 4;

/// The worst figure of a load. Where requests wait for each other in the disk, another
/// order of them is chance: then ten seeds are pooled, and the most that ten others differ by
/// without coalescing (of [`CONTROLS`] A/A comparisons) is taken off.
pub fn worst(load: &Load, seed: u64) -> Cost {
    let off = run(load, Mode::Off, seed);
    let first = max(compare(&off, &run(load, Mode::Auto, seed)));
    if first.factor <= MOST_COST {
        return first;
    }
    let pooled = |mode, from: u64| {
        let runs = (from..from + 10).map(|more| run(load, mode, seed + more));
        runs.reduce(RunStats::pool)
    };
    let arms = (pooled(Mode::Off, 0), pooled(Mode::Auto, 0));
    let (Some(off), Some(auto)) = arms else {
        return first;
    };
    let mut costs = compare(&off, &auto);
    let controls = (1..=CONTROLS).filter_map(|ten| pooled(Mode::Off, ten * 10));
    let chances: Vec<_> = controls.map(|other| compare(&off, &other)).collect();
    for (at, cost) in costs.iter_mut().enumerate() {
        let chance = chances.iter().filter_map(|figures| figures.get(at));
        let differs = |it: &Cost| it.factor.max(1.0 / it.factor);
        cost.factor /= chance.map(differs).fold(1.0, f64::max);
    }
    max(costs)
}

fn max(costs: Vec<Cost>) -> Cost {
    let worst = costs
        .into_iter()
        .max_by(|a, b| a.factor.total_cmp(&b.factor));
    worst.unwrap_or(Cost {
        what: "nothing to compare".to_owned(),
        factor: 1.0,
    })
}
