//! From runs to ratios: what a platform costs, and what pinning gains.

use tare_platform::{Limit, Mode, Place, Platform};
use tare_stats::mean;

use super::data::{Data, Run};
use super::estimate::{Estimate, paired, ratio, tested, together};
use super::plan::{Arm, Cell};
use tare_lab::kit::Statistic;

/// A quota binds if it stopped a run for this share of its time.
const BINDS: f64 = 0.001;

/// One kind of run against another on one host: by pairs, or by means where a record has too
/// few pairs.
fn compared(data: &Data, host: &str, over: &Cell, under: &Cell) -> Option<Estimate> {
    let pairs = data.pairs(host, over, under);
    if pairs.len() > 1 {
        return paired(&pairs);
    }
    ratio(&data.times(host, over), &data.times(host, under))
}

pub(crate) fn cell(workload: &str, place: Place, arm: Arm) -> Cell {
    Cell {
        workload: workload.to_owned(),
        place,
        arm,
    }
}

pub(crate) fn baseline(size: u32, host_cpus: u32) -> Place {
    Place::new(Platform::Bare, Mode::Vanilla, size, host_cpus)
}

/// What a place costs, over the bare machine of the same size: on each host, then
/// together. That machine itself is 1 by definition.
pub(crate) fn overhead(data: &Data, workload: &str, place: Place) -> Option<Estimate> {
    let of_host = |(host, cpus): (String, u32)| overhead_on(data, (&host, cpus), workload, place);
    let ratios: Vec<Estimate> = data.hosts().into_iter().filter_map(of_host).collect();
    together(&ratios)
}

/// The same on one host, given with its number of CPUs.
fn overhead_on(
    data: &Data,
    (host, cpus): (&str, u32),
    workload: &str,
    place: Place,
) -> Option<Estimate> {
    let over = cell(workload, place, Arm::Main);
    if place == baseline(place.size, cpus) {
        let n = data.times(host, &over).len();
        return (n > 0).then(|| Estimate::bare(1.0, Statistic::Exact, n));
    }
    let under = cell(workload, baseline(place.size, cpus), Arm::Main);
    compared(data, host, &over, &under)
}

/// Overheads of a platform by CHR, a size over its host's CPUs, ascending. Hosts that have the
/// same CHR are taken together.
pub(crate) fn overhead_by_chr(
    data: &Data,
    workload: &str,
    platform: Platform,
    mode: Mode,
) -> Vec<(f64, Estimate)> {
    let mut all: Vec<(f64, Estimate)> = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(platform, mode, size, cpus);
            let estimate = overhead_on(data, (&host, cpus), workload, place);
            all.extend(estimate.map(|estimate| (f64::from(size) / f64::from(cpus), estimate)));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let same = all.chunk_by(|a, b| a.0 == b.0);
    same.filter_map(|same| {
        let estimates: Vec<Estimate> = same.iter().map(|(_, estimate)| *estimate).collect();
        Some((same.first()?.0, together(&estimates)?))
    })
    .collect()
}

/// Whether a quota held a kind of run back; `None` where there was no quota or no account
/// of it.
pub(crate) fn quota_bound(data: &Data, workload: &str, place: Place) -> Option<bool> {
    if place.limit != Limit::Quota {
        return None;
    }
    let of = |run: &&Run| run.cell.workload == workload && run.cell.place == place;
    let shares = data.runs.iter().filter(of).filter_map(|run| {
        let throttled_s = run.observed.throttled_us? as f64 / 1e6;
        (run.wall_s > 0.0).then(|| throttled_s / run.wall_s)
    });
    let mean = mean(&shares.collect::<Vec<_>>())?;
    Some(mean > BINDS)
}

/// What the comparison of vanilla and pinned runs says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pinning {
    /// What pinning gains.
    Gain,
    /// Nothing: both are bound alike, so it must be zero.
    Control,
    /// What a set of CPUs gains over a quota, another mechanism.
    QuotaToSet,
}

impl Pinning {
    /// What it is on a platform at a size.
    pub(crate) fn of(platform: Platform, size: u32, host_cpus: u32) -> Self {
        let vanilla = Place::new(platform, Mode::Vanilla, size, host_cpus);
        match vanilla.limit {
            Limit::Vcpus => Self::Gain,
            Limit::Quota => Self::QuotaToSet,
            _ => Self::Control,
        }
    }

    /// How figures of it begin.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gain => "pin_gain_pct",
            Self::Control => "pin_control_pct",
            Self::QuotaToSet => "quota_to_set_pct",
        }
    }
}

/// How much longer vanilla runs took than pinned ones at one size, percent. Sizes are never
/// put together: below the host's a container is held by quota, at the host's by nothing.
pub(crate) fn pin_gain(
    data: &Data,
    workload: &str,
    platform: Platform,
    size: u32,
) -> Option<(Pinning, Estimate)> {
    let hosts = data.hosts();
    let (_, cpus) = hosts.first()?;
    let what = Pinning::of(platform, size, *cpus);
    let same = hosts
        .iter()
        .filter(|(_, cpus)| Pinning::of(platform, size, *cpus) == what);
    let ratios: Vec<Estimate> = same
        .filter_map(|(host, cpus)| {
            let of = |mode| cell(workload, Place::new(platform, mode, size, *cpus), Arm::Main);
            compared(data, host, &of(Mode::Vanilla), &of(Mode::Pinned))
        })
        .collect();
    Some((what, together(&ratios)?.percent()))
}

/// Sizes at which a workload ran.
pub(crate) fn sizes(data: &Data, workload: &str) -> Vec<u32> {
    let mut sizes: Vec<u32> = data.cells(workload).iter().map(|c| c.place.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The test of a place against the bare machine of its size, by the pairs of all hosts: p, or
/// nothing where there are fewer than six. Where nothing differs a pair's ratio is as often
/// above 1 as below on every host, so the pairs of several may be tested as one sample.
pub(crate) fn tested_against_bare(data: &Data, workload: &str, place: Place) -> Option<f64> {
    let over = cell(workload, place, Arm::Main);
    let mut pairs = Vec::new();
    for (host, cpus) in data.hosts() {
        let under = cell(workload, baseline(place.size, cpus), Arm::Main);
        if under.place != place {
            pairs.extend(data.pairs(&host, &over, &under));
        }
    }
    tested(&pairs)
}

/// Values outside three quartile distances of the middle half: kept, and shown.
pub(crate) fn outliers(samples: &[f64]) -> Vec<f64> {
    let Some(sorted) = tare_stats::sorted(samples).filter(|s| s.len() >= 4) else {
        return Vec::new();
    };
    let (q1, q3) = (
        tare_stats::quantile(&sorted, 0.25),
        tare_stats::quantile(&sorted, 0.75),
    );
    let reach = 3.0 * (q3 - q1);
    let far = |v: &f64| *v < q1 - reach || *v > q3 + reach;
    sorted.into_iter().filter(far).collect()
}
