//! From runs to ratios: what a platform costs, what of it does not depend on size,
//! what pinning gains, and how far the instrument itself can be trusted.

use tare_platform::{Mode, Place, Platform};
use tare_stats::{SplitMix64, mann_whitney, mean, mean_interval, summarize};

use super::data::{Data, Run};
use super::plan::{Arm, Cell};
use crate::figure::Figure;

/// Below this p-value two series differ. At 0.05 five of 100 equal pairs would differ
/// on average, so often more; at 0.01 hardly ever more than five do.
pub(super) const ALPHA: f64 = 0.01;
/// A slow-down that is to be found, and weighings in which it is looked for.
const SLOWER: f64 = 1.05;
const WEIGHINGS: usize = 400;
/// Most runs of each kind that are tried.
pub(super) const MOST_DRAWN: usize = 200;
/// Resamplings of a fit.
const ROUNDS: usize = 400;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) n: usize,
}

impl Estimate {
    pub(super) fn figure(self, name: String, unit: &str) -> Figure {
        Figure {
            name,
            unit: unit.to_owned(),
            value: self.value,
            low: self.low,
            high: self.high,
            n: self.n,
        }
    }

    /// Whether the interval excludes `value`.
    pub(super) fn differs_from(&self, value: f64) -> bool {
        self.n > 2 && (self.low > value || self.high < value)
    }

    /// From a ratio to the percent that it is above 1.
    pub(super) fn percent(self) -> Self {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Self {
            value: percent(self.value),
            low: percent(self.low),
            high: percent(self.high),
            n: self.n,
        }
    }
}

/// Mean over mean, as CPU-Pinning 2020 has it. Its interval adds the relative half widths
/// of both means by squares, on a logarithmic scale.
pub(super) fn ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let (over, under) = (mean(a)?, mean(b)?);
    if !(over > 0.0 && under > 0.0) {
        return None;
    }
    let relative = |samples: &[f64], mean: f64| {
        mean_interval(samples).map_or(0.0, |interval| (interval.high - mean) / mean)
    };
    let half = relative(a, over).hypot(relative(b, under));
    let value = over / under;
    Some(Estimate {
        value,
        low: value * (-half).exp(),
        high: value * half.exp(),
        n: a.len().min(b.len()),
    })
}

/// The geometric mean of several ratios.
pub(super) fn together(ratios: &[Estimate]) -> Option<Estimate> {
    let n = ratios.len() as f64;
    let first = ratios.first()?;
    let log: f64 = ratios.iter().map(|r| r.value.ln()).sum::<f64>() / n;
    let squares: f64 = ratios.iter().map(|r| (r.high / r.value).ln().powi(2)).sum();
    let half = squares.sqrt() / n;
    Some(Estimate {
        value: log.exp(),
        low: (log - half).exp(),
        high: (log + half).exp(),
        n: ratios.iter().map(|r| r.n).fold(first.n, usize::min),
    })
}

fn cell(workload: &str, place: Place, arm: Arm) -> Cell {
    Cell {
        workload: workload.to_owned(),
        place,
        arm,
    }
}

fn baseline(place: &Place, host_cpus: u32) -> Place {
    Place::new(Platform::Bare, Mode::Vanilla, place.size, host_cpus)
}

/// What a place costs, over the bare machine of the same size: on each host, then
/// together. That machine itself is 1 by definition.
pub(super) fn overhead(data: &Data, workload: &str, place: Place) -> Option<Estimate> {
    let of_host = |(host, cpus): (String, u32)| {
        let over = data.times(&host, &cell(workload, place, Arm::Main));
        if place == baseline(&place, cpus) {
            return (!over.is_empty()).then_some(Estimate {
                value: 1.0,
                low: 1.0,
                high: 1.0,
                n: over.len(),
            });
        }
        let under = data.times(&host, &cell(workload, baseline(&place, cpus), Arm::Main));
        ratio(&over, &under)
    };
    let ratios: Vec<Estimate> = data.hosts().into_iter().filter_map(of_host).collect();
    together(&ratios)
}

/// What pinning gains on a platform, percent of the pinned time, over all sizes.
pub(super) fn pin_gain(data: &Data, workload: &str, platform: Platform) -> Option<Estimate> {
    let mut ratios = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let times = |mode| {
                let place = Place::new(platform, mode, size, cpus);
                data.times(&host, &cell(workload, place, Arm::Main))
            };
            ratios.extend(ratio(&times(Mode::Vanilla), &times(Mode::Pinned)));
        }
    }
    together(&ratios).map(Estimate::percent)
}

/// Sizes at which a workload ran.
pub(super) fn sizes(data: &Data, workload: &str) -> Vec<u32> {
    let mut sizes: Vec<u32> = data.cells(workload).iter().map(|c| c.place.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// A platform's overhead split by `overhead = constant + falling / size`, percent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Split {
    /// What stays at any size.
    pub(super) constant: Estimate,
    /// What is added at each size.
    pub(super) falling: Vec<(u32, Estimate)>,
}

/// Fits the split of a platform; `None` below two sizes. With two sizes the line
/// goes through both, and nothing says whether the form is right.
pub(super) fn split(data: &Data, workload: &str, platform: Platform, mode: Mode) -> Option<Split> {
    let mut series = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(platform, mode, size, cpus);
            let over = data.times(&host, &cell(workload, place, Arm::Main));
            let under = data.times(&host, &cell(workload, baseline(&place, cpus), Arm::Main));
            if !over.is_empty() && !under.is_empty() {
                series.push((size, over, under));
            }
        }
    }
    let points = |series: &[(u32, Vec<f64>, Vec<f64>)]| -> Vec<(f64, f64)> {
        let point = |(size, over, under): &(u32, Vec<f64>, Vec<f64>)| {
            Some((1.0 / f64::from(*size), mean(over)? / mean(under)? - 1.0))
        };
        series.iter().filter_map(point).collect()
    };
    let (constant, slope) = line(&points(&series))?;
    let mut dice = SplitMix64::new(0x7a7e);
    let mut draw = |samples: &[f64]| -> Vec<f64> {
        (0..samples.len())
            .map(|_| samples[dice.below(samples.len())])
            .collect()
    };
    let mut fits = Vec::new();
    for _ in 0..ROUNDS {
        let drawn: Vec<_> = series
            .iter()
            .map(|(size, over, under)| (*size, draw(over), draw(under)))
            .collect();
        fits.extend(line(&points(&drawn)));
    }
    let n = series.iter().map(|(_, over, _)| over.len()).min()?;
    let interval = |value: f64, all: Vec<f64>| -> Option<Estimate> {
        let sorted = tare_stats::sorted(&all)?;
        Some(Estimate {
            value: value * 100.0,
            low: tare_stats::quantile(&sorted, 0.025) * 100.0,
            high: tare_stats::quantile(&sorted, 0.975) * 100.0,
            n,
        })
    };
    let mut falling = Vec::new();
    for size in sizes(data, workload) {
        let at = f64::from(size);
        let all = fits.iter().map(|(_, slope)| slope / at).collect();
        falling.push((size, interval(slope / at, all)?));
    }
    Some(Split {
        constant: interval(
            constant,
            fits.iter().map(|(constant, _)| *constant).collect(),
        )?,
        falling,
    })
}

/// Least squares: where the line through the points begins, and its slope.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let spread: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    if points.len() < 2 || spread < 1e-12 {
        return None;
    }
    let both: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let slope = both / spread;
    Some((mean_y - slope * mean_x, slope))
}

/// Two kinds of runs that are compared, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comparison {
    /// The first's time over the second's: the median over pairs of runs that came one
    /// after the other, with its interval.
    pub(super) ratio: Estimate,
    /// Of the rank test.
    pub(super) p: f64,
    /// Cliff's delta.
    pub(super) effect: f64,
}

impl Comparison {
    /// Compares by pairs and by ranks; `None` without pairs.
    pub(super) fn of(a: &[f64], b: &[f64], ratios: &[f64]) -> Option<Self> {
        let pairs = summarize(ratios)?;
        let test = mann_whitney(a, b);
        Some(Self {
            ratio: Estimate {
                value: pairs.median,
                low: pairs.low,
                high: pairs.high,
                n: pairs.n,
            },
            p: test.p,
            effect: test.cliffs_delta,
        })
    }

    /// Whether the kinds of runs differ.
    pub(super) fn differs(&self) -> bool {
        self.p < ALPHA
    }
}

/// The baseline against another arm of itself, for each size and host.
pub(super) fn against_baseline(data: &Data, workload: &str, arm: Arm) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(Platform::Bare, Mode::Vanilla, size, cpus);
            let [main, other] = [Arm::Main, arm].map(|arm| cell(workload, place, arm));
            let ratios = data.pairs(&host, &main, &other);
            let [a, b] = [&main, &other].map(|cell| data.times(&host, cell));
            comparisons.extend(Comparison::of(&a, &b, &ratios));
        }
    }
    comparisons
}

/// What observing took of the bare machine's runs, as the kernel accounts for it: the
/// median over runs, percent of their time on CPUs.
fn accounted(data: &Data, workload: &str) -> Option<Figure> {
    let bare = |run: &&Run| {
        let place = run.cell.place;
        run.cell.workload == workload && place.platform == Platform::Bare && !run.warm_up
    };
    let costs = data.runs.iter().filter(bare);
    let costs = costs.filter_map(|run| run.observed.sched.as_ref()?.accounted_pct());
    let name = format!("observer_accounted_pct.{workload}");
    crate::figure::median(&name, "pct", &costs.collect::<Vec<_>>())
}

/// From how many runs on the rank test finds a slow-down of 5 % in 95 of 100 weighings,
/// and on how many runs that rests: by comparing series drawn from the bare machine's
/// runs, one of them made slower. `None` with few runs, or if [`MOST_DRAWN`] do not do.
pub(super) fn runs_to_find(data: &Data, workload: &str) -> Option<(usize, usize)> {
    let noise = noise(data, workload);
    let mut dice = SplitMix64::new(0x5105);
    let finds = |runs: usize, dice: &mut SplitMix64| {
        let mut draw = |slower: f64| -> Vec<f64> {
            let drawn = (0..runs).map(|_| noise[dice.below(noise.len())] * slower);
            drawn.collect()
        };
        let found = (0..WEIGHINGS).filter(|_| mann_whitney(&draw(SLOWER), &draw(1.0)).p < ALPHA);
        found.count() * 100 >= WEIGHINGS * 95
    };
    let mut candidates = (5..=MOST_DRAWN).filter(|n| *n <= 20 || n % 10 == 0);
    let enough = candidates.find(|runs| noise.len() >= 10 && finds(*runs, &mut dice))?;
    Some((enough, noise.len()))
}

/// Times of the bare machine and of its A/A arm, over the median of their kind.
pub(super) fn noise(data: &Data, workload: &str) -> Vec<f64> {
    let mut noise = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(Platform::Bare, Mode::Vanilla, size, cpus);
            let arms = [Arm::Main, Arm::Control];
            let times = arms.map(|arm| data.times(&host, &cell(workload, place, arm)));
            let times = times.concat();
            if let Some(all) = summarize(&times) {
                noise.extend(times.iter().map(|time| time / all.median));
            }
        }
    }
    noise
}

/// Values outside three quartile distances of the middle half: kept, and shown.
pub(super) fn outliers(samples: &[f64]) -> Vec<f64> {
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

/// Every figure of the experiment.
pub(super) fn figures(data: &Data) -> Vec<Figure> {
    let mut figures = Vec::new();
    for workload in data.workloads() {
        for c in data.cells(&workload) {
            let ratio = overhead(data, &workload, c.place);
            figures.extend(ratio.map(|r| r.figure(format!("ratio.{workload}.{}", c.place), "x")));
        }
        if let Some(split) = split(data, &workload, Platform::Vm, Mode::Vanilla) {
            figures.push(split.constant.figure(format!("pto_pct.{workload}"), "pct"));
        }
        if let Some(split) = split(data, &workload, Platform::Container, Mode::Vanilla) {
            for (size, falling) in split.falling {
                figures.push(falling.figure(format!("pso_pct.{workload}.{size}"), "pct"));
            }
        }
        for platform in Platform::ALL {
            let gain = pin_gain(data, &workload, platform);
            let name = format!("pin_gain_pct.{workload}.{}", platform.name());
            figures.extend(gain.map(|gain| gain.figure(name, "pct")));
        }
    }
    figures.extend(of_the_instrument(data));
    figures
}

/// How far two equal arms differ, and what observing costs.
fn of_the_instrument(data: &Data) -> Vec<Figure> {
    let mut figures = Vec::new();
    let (mut differences, mut significant, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    let mut accounts: Vec<Figure> = Vec::new();
    for workload in data.workloads() {
        for control in against_baseline(data, &workload, Arm::Control) {
            differences.push(control.ratio.percent().value.abs());
            significant.push(f64::from(u8::from(control.differs())) * 100.0);
        }
        let ratios: Vec<Estimate> = against_baseline(data, &workload, Arm::Unobserved)
            .into_iter()
            .map(|cost| cost.ratio)
            .collect();
        let name = format!("observer_cost_pct.{workload}");
        figures.extend(together(&ratios).map(|cost| cost.percent().figure(name, "pct")));
        costs.extend(ratios);
        accounts.extend(accounted(data, &workload));
        let runs = runs_to_find(data, &workload).map(|(runs, n)| Estimate {
            value: runs as f64,
            low: runs as f64,
            high: runs as f64,
            n,
        });
        figures.extend(runs.map(|r| r.figure(format!("runs_to_find_5pct.{workload}"), "runs")));
    }
    let name = "aa_difference_pct";
    figures.extend(crate::figure::median(name, "pct", &differences));
    let share = tare_stats::mean(&significant).map(|share| Estimate {
        value: share,
        low: share,
        high: share,
        n: significant.len(),
    });
    figures.extend(share.map(|s| s.figure("aa_significant_pct".to_owned(), "pct")));
    let cost = together(&costs).map(Estimate::percent);
    figures.extend(cost.map(|cost| cost.figure("observer_cost_pct".to_owned(), "pct")));
    let most = accounts.iter().max_by(|a, b| a.value.total_cmp(&b.value));
    let most = most.cloned().map(|most| Figure {
        name: "observer_accounted_pct".to_owned(),
        ..most
    });
    figures.extend(accounts.into_iter().chain(most));
    figures
}
