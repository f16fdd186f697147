//! How far the instrument itself can be trusted: equal arms, slow-downs that it would have
//! found, and what observing costs.

use tare_lab::kit::{Figure, Statistic};
use tare_platform::Platform;
use tare_stats::{Interval, SplitMix64, share_interval, signed_rank_p, summarize};

use super::analysis::{baseline, cell, sizes};
use super::data::{Data, Run};
use super::estimate::{ALPHA, Estimate, paired, tested, together};
use super::plan::Arm;

/// A slow-down that is to be found, and weighings in which it is looked for.
const SLOWER: f64 = 1.05;
const WEIGHINGS: usize = 400;
/// Most pairs that are tried.
pub(crate) const MOST_DRAWN: usize = 200;
/// Fewer pairs than this say nothing about noise.
const LEAST_NOISE: usize = 10;

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

/// How far two equal arms differ, what would have been found, and what observing costs.
pub(crate) fn figures(data: &Data, applications: &[String]) -> Vec<Figure> {
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
