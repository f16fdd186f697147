//! From runs to ratios: what a platform costs, what of it does not depend on size,
//! what pinning gains, and how far the instrument itself can be trusted.
//!
//! Runs of one block came one after the other and are compared in pairs; where there are no
//! blocks, as in older records, independent means are compared.

use tare_platform::{Limit, Mode, Place, Platform};
use tare_stats::{
    Interval, Part, SplitMix64, half_width, mean, mean_interval, ratio_interval, share_interval,
    signed_rank, signed_rank_p, summarize,
};

use super::data::{Data, Run};
use super::plan::{Arm, Cell};
use tare_lab::kit::{Figure, Statistic};

/// Below this p-value two series differ.
pub(crate) const ALPHA: f64 = 0.01;
/// A slow-down that is to be found, and weighings in which it is looked for.
const SLOWER: f64 = 1.05;
const WEIGHINGS: usize = 400;
/// Most pairs that are tried.
pub(crate) const MOST_DRAWN: usize = 200;
/// Fewer pairs than this say nothing about noise.
const LEAST_NOISE: usize = 10;
/// A line through fewer sizes fits whatever they are.
const LEAST_SIZES: usize = 3;
/// A quota binds if it stopped a run for this share of its time.
const BINDS: f64 = 0.001;

/// A value with what is known of its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// The 95 % interval.
    pub(crate) interval: Option<Interval>,
    pub(crate) n: usize,
    pub(crate) statistic: Statistic,
}

impl Estimate {
    fn bare(value: f64, statistic: Statistic, n: usize) -> Self {
        Self {
            value,
            interval: None,
            n,
            statistic,
        }
    }

    pub(crate) fn figure(self, name: &str, unit: &str) -> Figure {
        let figure = Figure::bare(name, unit, self.value, self.statistic, self.n);
        figure.with_interval(self.interval)
    }

    /// The value with its interval in words.
    pub(crate) fn text(self) -> String {
        self.figure("", "").text()
    }

    /// Whether the interval excludes `value`.
    pub(crate) fn differs_from(self, value: f64) -> bool {
        self.interval
            .is_some_and(|it| it.low > value || it.high < value)
    }

    /// Whether the whole interval is below `value`.
    pub(crate) fn is_below(self, value: f64) -> bool {
        self.interval.is_some_and(|it| it.high < value)
    }

    /// From a ratio to the percent that it is above 1.
    pub(crate) fn percent(self) -> Self {
        self.mapped(|ratio| (ratio - 1.0) * 100.0)
    }

    pub(crate) fn mapped(self, map: impl Fn(f64) -> f64) -> Self {
        Self {
            value: map(self.value),
            interval: self.interval.map(|Interval { low, high }| Interval {
                low: map(low),
                high: map(high),
            }),
            ..self
        }
    }
}

/// Mean over mean, as CPU-Pinning 2020 has it, of runs that are not in pairs.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Estimate> {
    let (top, bottom) = (mean(over)?, mean(under)?);
    (top > 0.0 && bottom > 0.0).then(|| Estimate {
        interval: ratio_interval(over, under),
        ..Estimate::bare(top / bottom, Statistic::Ratio, over.len().min(under.len()))
    })
}

/// The middle of the ratios in pairs of runs: from six pairs on the estimate of Hodges and
/// Lehmann on the logarithm, below the geometric mean with Student's interval.
pub(crate) fn paired(ratios: &[f64]) -> Option<Estimate> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let test = signed_rank(&logs)?;
    let few = || (mean(&logs), mean_interval(&logs));
    let (middle, interval) = match test.interval {
        Some(interval) => (Some(test.shift), Some(interval)),
        None => few(),
    };
    let estimate = Estimate {
        interval,
        ..Estimate::bare(middle?, Statistic::PairedRatio, logs.len())
    };
    Some(estimate.mapped(f64::exp))
}

/// One kind of run against another on one host: by pairs, or by means where a record has too
/// few pairs.
fn compared(data: &Data, host: &str, over: &Cell, under: &Cell) -> Option<Estimate> {
    let pairs = data.pairs(host, over, under);
    if pairs.len() > 1 {
        return paired(&pairs);
    }
    ratio(&data.times(host, over), &data.times(host, under))
}

/// The geometric mean of several ratios; its interval if each has one.
pub(crate) fn together(ratios: &[Estimate]) -> Option<Estimate> {
    let count = ratios.len() as f64;
    let first = *ratios.first()?;
    if ratios.len() == 1 {
        return Some(first);
    }
    let log = ratios.iter().map(|r| r.value.ln()).sum::<f64>() / count;
    // An interval of ranks reaches further to one side: each side by itself.
    let side = |of: fn(f64, Interval) -> f64| {
        let squares = ratios
            .iter()
            .map(|it| Some(of(it.value, it.interval?).powi(2)));
        squares
            .sum::<Option<f64>>()
            .map(|squares| squares.sqrt() / count)
    };
    let down = side(|value, it| (value / it.low).ln());
    let up = side(|value, it| (it.high / value).ln());
    let interval = down.zip(up).map(|(down, up)| Interval {
        low: (log - down).exp(),
        high: (log + up).exp(),
    });
    Some(Estimate {
        value: log.exp(),
        interval,
        n: ratios.iter().map(|r| r.n).fold(first.n, usize::min),
        statistic: first.statistic,
    })
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

/// A platform's overhead split by `overhead = constant + falling / size`, percent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    /// What stays at any size.
    pub(crate) constant: Estimate,
    /// What is added at each size.
    pub(crate) falling: Vec<(u32, Estimate)>,
}

/// A ratio at a size, and the error of it.
struct Point {
    size: u32,
    ratio: f64,
    /// Of both means; empty where one of them has one run.
    parts: Option<[Part; 2]>,
    n: usize,
}

/// Fits the split of a platform: a fit of ours, which CPU-Pinning 2020 does not have. `None`
/// below three sizes that are kept by the same limit, since a line through two says nothing
/// about its form.
pub(crate) fn split(data: &Data, workload: &str, platform: Platform, mode: Mode) -> Option<Split> {
    let mut points: Vec<(Limit, Point)> = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(platform, mode, size, cpus);
            let over = data.times(&host, &cell(workload, place, Arm::Main));
            let under = data.times(&host, &cell(workload, baseline(size, cpus), Arm::Main));
            if quota_bound(data, workload, place) == Some(false) {
                continue;
            }
            points.extend(point(size, &over, &under).map(|point| (place.limit, point)));
        }
    }
    // The limit of the most sizes; no limit at all and a set of all CPUs are one.
    let limit = points
        .iter()
        .map(|(limit, _)| *limit)
        .max_by_key(|limit| points.iter().filter(|(other, _)| other == limit).count())?;
    let points: Vec<Point> = points
        .into_iter()
        .filter(|(other, _)| *other == limit)
        .map(|(_, point)| point)
        .collect();
    let mut sizes: Vec<u32> = points.iter().map(|point| point.size).collect();
    // Of several hosts a size comes again.
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < LEAST_SIZES {
        return None;
    }
    let (constant, slope) = weights(&points);
    let falling = sizes.iter().map(|size| {
        let at: Vec<f64> = slope
            .iter()
            .map(|weight| weight / f64::from(*size))
            .collect();
        (*size, combined(&points, &at))
    });
    Some(Split {
        constant: combined(&points, &constant),
        falling: falling.collect(),
    })
}

fn point(size: u32, over: &[f64], under: &[f64]) -> Option<Point> {
    let (top, bottom) = (mean(over)?, mean(under)?);
    let ratio = top / bottom;
    // The delta method: relative errors add by squares.
    let parts = Part::of_mean(over, ratio / top).zip(Part::of_mean(under, ratio / bottom));
    ratio.is_finite().then(|| Point {
        size,
        ratio,
        parts: parts.map(|(over, under)| [over, under]),
        n: over.len().min(under.len()),
    })
}

/// Least squares over 1/size: the weights of the points in the constant and in the slope.
fn weights(points: &[Point]) -> (Vec<f64>, Vec<f64>) {
    let n = points.len() as f64;
    let at: Vec<f64> = points.iter().map(|p| 1.0 / f64::from(p.size)).collect();
    let middle = at.iter().sum::<f64>() / n;
    let spread: f64 = at.iter().map(|x| (x - middle).powi(2)).sum();
    let slope: Vec<f64> = at.iter().map(|x| (x - middle) / spread).collect();
    let constant = slope
        .iter()
        .map(|weight| 1.0 / n - weight * middle)
        .collect();
    (constant, slope)
}

/// A weighted sum of overheads, percent.
fn combined(points: &[Point], weights: &[f64]) -> Estimate {
    let pairs = || points.iter().zip(weights);
    let value: f64 = pairs()
        .map(|(point, weight)| (point.ratio - 1.0) * weight)
        .sum();
    let parts: Option<Vec<[Part; 2]>> = pairs()
        .map(|(point, weight)| {
            let scaled = |part: Part| Part {
                variance: part.variance * weight * weight,
                ..part
            };
            Some(point.parts?.map(scaled))
        })
        .collect();
    let half = parts.and_then(|parts| half_width(&parts.concat()));
    Estimate {
        value: value * 100.0,
        interval: half.map(|half| Interval {
            low: (value - half) * 100.0,
            high: (value + half) * 100.0,
        }),
        n: points.iter().map(|point| point.n).min().unwrap_or(0),
        statistic: Statistic::Fit,
    }
}

/// Two kinds of runs that are compared in pairs, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Size of the place.
    pub(crate) size: u32,
    /// The first's time over the second's.
    pub(crate) ratio: Estimate,
    /// Of Wilcoxon's test on the pairs; `None` below six.
    pub(crate) p: Option<f64>,
}

impl Comparison {
    /// Compares by pairs; `None` without any.
    pub(crate) fn of(size: u32, ratios: &[f64]) -> Option<Self> {
        Some(Self {
            size,
            ratio: paired(ratios)?,
            p: tested(ratios),
        })
    }

    /// Whether the kinds of runs differ.
    pub(crate) fn differs(&self) -> bool {
        self.p.is_some_and(|p| p < ALPHA)
    }
}

fn tested(ratios: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    signed_rank_p(&logs)
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

/// The baseline against another arm of itself, for each size and host.
pub(crate) fn against_baseline(data: &Data, workload: &str, arm: Arm) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = baseline(size, cpus);
            let [main, other] = [Arm::Main, arm].map(|arm| cell(workload, place, arm));
            let ratios = data.pairs(&host, &main, &other);
            comparisons.extend(Comparison::of(size, &ratios));
        }
    }
    comparisons
}

/// What observing took of the bare machine's runs, as the kernel accounts for it: the
/// median over runs that count, percent of their time on CPUs.
fn accounted(data: &Data, workload: &str) -> Option<Figure> {
    let bare = |run: &&Run| {
        let place = run.cell.place;
        let counts = !run.warm_up && run.time.is_some();
        run.cell.workload == workload && place.platform == Platform::Bare && counts
    };
    let costs = data
        .runs
        .iter()
        .filter(bare)
        .filter_map(|run| run.observed.sched.as_ref()?.accounted_pct());
    let name = format!("observer_accounted_pct.{workload}");
    tare_lab::kit::median(&name, "%", &costs.collect::<Vec<_>>())
}

/// The ratios of the A/A pairs over their middle: what chance does to a pair.
pub(crate) fn noise(data: &Data, workload: &str) -> Vec<f64> {
    let mut noise = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let of = |arm| cell(workload, baseline(size, cpus), arm);
            let ratios = data.pairs(&host, &of(Arm::Main), &of(Arm::Control));
            if let Some(all) = summarize(&ratios) {
                noise.extend(ratios.iter().map(|ratio| ratio / all.median));
            }
        }
    }
    noise
}

/// Of 100 weighings with `pairs` pairs each, in how many the test finds that one arm takes
/// `slower` times as long, in noise drawn from these pairs. `None` with too little noise.
pub(crate) fn found_of_100(noise: &[f64], pairs: usize, slower: f64) -> Option<f64> {
    if noise.len() < LEAST_NOISE {
        return None;
    }
    let mut dice = SplitMix64::new(0x5105 + pairs as u64);
    let found = (0..WEIGHINGS).filter(|_| {
        let mut draw = || {
            // Both arms of a pair are the same: it could have come the other way round.
            let sign = if dice.below(2) == 0 { 1.0 } else { -1.0 };
            sign * noise[dice.below(noise.len())].ln() + slower.ln()
        };
        let logs: Vec<f64> = (0..pairs).map(|_| draw()).collect();
        signed_rank_p(&logs).is_some_and(|p| p < ALPHA)
    });
    Some(found.count() as f64 * 100.0 / WEIGHINGS as f64)
}

/// From how many pairs on a slow-down of 5 % is found in 95 of 100 weighings, and on how
/// many pairs that rests. `None` with few pairs, or if [`MOST_DRAWN`] do not do.
pub(crate) fn runs_to_find(data: &Data, workload: &str) -> Option<(usize, usize)> {
    let noise = noise(data, workload);
    let mut candidates = (6..=MOST_DRAWN).filter(|n| *n <= 20 || n % 10 == 0);
    let finds = |pairs: &usize| found_of_100(&noise, *pairs, SLOWER).is_some_and(|it| it >= 95.0);
    Some((candidates.find(finds)?, noise.len()))
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

/// Every figure of the experiment; `costs` names the workloads that measure for the model alone.
pub(crate) fn figures(data: &Data, costs: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for workload in data.workloads() {
        for c in data.cells(&workload) {
            let ratio = overhead(data, &workload, c.place);
            figures.extend(ratio.map(|r| r.figure(&format!("ratio.{workload}.{}", c.place), "x")));
        }
        if let Some(split) = split(data, &workload, Platform::Vm, Mode::Vanilla) {
            figures.push(split.constant.figure(&format!("pto_pct.{workload}"), "%"));
        }
        if let Some(split) = split(data, &workload, Platform::Container, Mode::Vanilla) {
            for (size, falling) in split.falling {
                figures.push(falling.figure(&format!("pso_pct.{workload}.{size}"), "%"));
            }
        }
        for platform in Platform::ALL {
            for size in sizes(data, &workload) {
                let Some((what, gain)) = pin_gain(data, &workload, platform, size) else {
                    continue;
                };
                let name = format!("{}.{workload}.{}.{size}", what.name(), platform.name());
                figures.push(gain.figure(&name, "%"));
            }
        }
    }
    let mut applications = data.workloads();
    applications.retain(|workload| !costs.contains(workload));
    figures.extend(of_the_instrument(data, &applications));
    figures
}

/// How far two equal arms differ, what would have been found, and what observing costs.
fn of_the_instrument(data: &Data, applications: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let (mut differs, mut compared, mut costs) = (0, 0, Vec::new());
    let (mut widest, mut accounts): (Option<Figure>, Vec<Figure>) = (None, Vec::new());
    for workload in applications {
        for control in against_baseline(data, workload, Arm::Control) {
            let percent = control.ratio.percent();
            let name = format!("aa_pct.{workload}.{}", control.size);
            figures.push(percent.figure(&name, "%"));
            compared += u64::from(control.p.is_some());
            differs += u64::from(control.differs());
            if let Some(Interval { low, high }) = percent.interval {
                let half = (high - low) / 2.0;
                let name = format!("aa_half_width_pct.{workload}.{}", control.size);
                let figure = Figure::bare(&name, "%", half, Statistic::PairedRatio, percent.n);
                let is_wider = widest.as_ref().is_none_or(|widest| widest.value < half);
                if is_wider {
                    widest = Some(figure.clone());
                }
                figures.push(figure);
            }
            let noise = noise(data, workload);
            if let Some(found) = found_of_100(&noise, percent.n, SLOWER) {
                let name = format!("finds_5pct_of_100.{workload}.{}", control.size);
                figures.push(Figure::bare(&name, "%", found, Statistic::Share, percent.n));
            }
        }
        let ratios: Vec<Estimate> = against_baseline(data, workload, Arm::Unobserved)
            .into_iter()
            .map(|cost| cost.ratio)
            .collect();
        let name = format!("observer_cost_pct.{workload}");
        figures.extend(together(&ratios).map(|cost| cost.percent().figure(&name, "%")));
        costs.extend(ratios);
        accounts.extend(accounted(data, workload));
        if let Some((runs, n)) = runs_to_find(data, workload) {
            let name = format!("runs_to_find_5pct.{workload}");
            figures.push(Figure::bare(
                &name,
                "runs",
                runs as f64,
                Statistic::Share,
                n,
            ));
        }
    }
    // What the run reached: a half width has no interval, and its goal is judged by it alone.
    figures.extend(widest.map(|widest| Figure {
        name: "aa_half_width_pct".to_owned(),
        statistic: Statistic::Exact,
        ..widest
    }));
    if let Some(Interval { low, high }) = share_interval(differs, compared) {
        let share = differs as f64 * 100.0 / compared as f64;
        let figure = Figure::bare(
            "aa_significant_pct",
            "%",
            share,
            Statistic::Share,
            compared as usize,
        );
        let interval = Interval {
            low: low * 100.0,
            high: high * 100.0,
        };
        figures.push(figure.with_interval(Some(interval)));
    }
    let cost = together(&costs).map(Estimate::percent);
    figures.extend(cost.map(|cost| cost.figure("observer_cost_pct", "%")));
    let most = accounts
        .iter()
        .max_by(|a, b| a.value.total_cmp(&b.value))
        .cloned()
        .map(|most| Figure {
            name: "observer_accounted_pct".to_owned(),
            ..most
        });
    figures.extend(accounts.into_iter().chain(most));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ratios_reach_as_far_to_each_side_as_each_of_them() {
        let one = Estimate {
            interval: Some(Interval {
                low: 0.98,
                high: 1.07,
            }),
            ..Estimate::bare(1.05, Statistic::PairedRatio, 6)
        };
        let all = together(&[one, one]).unwrap();
        let Interval { low, high } = all.interval.unwrap();
        assert!((all.value - 1.05).abs() < 1e-9);
        assert!(
            low < 1.01 && (1.06..1.065).contains(&high),
            "{low} to {high}"
        );
        let without = Estimate {
            interval: None,
            ..one
        };
        assert_eq!(together(&[one, without]).unwrap().interval, None);
    }
}
