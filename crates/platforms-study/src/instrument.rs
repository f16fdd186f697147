//! How far the instrument itself can be trusted: equal arms, slow-downs that it would have
//! found, and what observing costs.

use tare_lab::kit::{Figure, Statistic};
use tare_platform::Platform;
use tare_stats::{Interval, SplitMix64, share_interval, signed_rank_p, summarize};

use super::analysis::{baseline, cell, sizes};
use super::data::{Data, Run};
use super::estimate::{ALPHA, Estimate, least_p, paired, tested, together};
use super::plan::Arm;

/// A slow-down that is to be found, and weighings in which it is looked for.
const SLOWER: f64 = 1.05;
const WEIGHINGS: usize = 400;
/// Most pairs that are tried.
pub(crate) const MOST_DRAWN: usize = 200;
/// Fewer pairs than this say nothing about noise.
pub(crate) const LEAST_NOISE: usize = 10;

/// Two kinds of runs that are compared in pairs, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Size of the place.
    pub(crate) size: u32,
    /// The first's time over the second's.
    pub(crate) ratio: Estimate,
    /// Of Wilcoxon's test on the pairs; `None` below six.
    pub(crate) p: Option<f64>,
    /// The least that it could be with these pairs.
    least_p: Option<f64>,
}

impl Comparison {
    /// Compares by pairs; `None` without any.
    pub(crate) fn of(size: u32, ratios: &[f64]) -> Option<Self> {
        Some(Self {
            size,
            ratio: paired(ratios)?,
            p: tested(ratios),
            least_p: least_p(ratios),
        })
    }

    /// Whether the kinds of runs differ.
    pub(crate) fn differs(&self) -> bool {
        self.p.is_some_and(|p| p < ALPHA)
    }

    /// Whether there are pairs enough for the test to find a difference at all.
    pub(crate) fn can_differ(&self) -> bool {
        self.least_p.is_some_and(|p| p < ALPHA)
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

/// From how many pairs on a slow-down of 5 % is found in 95 of 100 weighings, in noise drawn from
/// these pairs. `None` with few of them, or if [`MOST_DRAWN`] do not do.
pub(crate) fn runs_to_find(noise: &[f64]) -> Option<usize> {
    let mut candidates = (6..=MOST_DRAWN).filter(|n| *n <= 20 || n % 10 == 0);
    let finds = |pairs: &usize| found_of_100(noise, *pairs, SLOWER).is_some_and(|it| it >= 95.0);
    candidates.find(finds)
}

/// How far two equal arms differ, what would have been found, and what observing costs.
pub(crate) fn figures(data: &Data, applications: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let (mut equal_arms, mut costs) = (Vec::new(), Vec::new());
    let (mut widest, mut accounts): (Option<Figure>, Vec<Figure>) = (None, Vec::new());
    for workload in applications {
        let noise = noise(data, workload);
        for control in against_baseline(data, workload, Arm::Control) {
            let percent = control.ratio.percent();
            let name = format!("aa_pct.{workload}.{}", control.size);
            figures.push(percent.figure(&name, "%"));
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
            if let Some(found) = found_of_100(&noise, percent.n, SLOWER) {
                let name = format!("finds_5pct_of_100.{workload}.{}", control.size);
                figures.push(Figure::bare(&name, "%", found, Statistic::Share, percent.n));
            }
            equal_arms.push(control);
        }
        let ratios: Vec<Estimate> = against_baseline(data, workload, Arm::Unobserved)
            .into_iter()
            .map(|cost| cost.ratio)
            .collect();
        let name = format!("observer_cost_pct.{workload}");
        figures.extend(together(&ratios).map(|cost| cost.percent().figure(&name, "%")));
        costs.extend(ratios);
        accounts.extend(accounted(data, workload));
        if let Some(runs) = runs_to_find(&noise) {
            let name = format!("runs_to_find_5pct.{workload}");
            let n = noise.len();
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
    // Where one of them has no interval, how far that would reach is unknown.
    let known = equal_arms.iter().all(|it| it.ratio.interval.is_some());
    figures.extend(widest.map(|widest| Figure {
        name: "aa_half_width_pct".to_owned(),
        statistic: if known {
            Statistic::Exact
        } else {
            widest.statistic
        },
        ..widest
    }));
    figures.extend(significant(&equal_arms));
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

/// The share of the tests of equal arms that differ, of those that can, and how many cannot.
fn significant(equal_arms: &[Comparison]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let tests: Vec<&Comparison> = equal_arms.iter().filter(|it| it.can_differ()).collect();
    let (differs, all) = (tests.iter().filter(|it| it.differs()).count(), tests.len());
    if let Some(Interval { low, high }) = share_interval(differs as u64, all as u64) {
        let share = differs as f64 * 100.0 / all as f64;
        let figure = Figure::bare("aa_significant_pct", "%", share, Statistic::Share, all);
        let interval = Interval {
            low: low * 100.0,
            high: high * 100.0,
        };
        figures.push(figure.with_interval(Some(interval)));
    }
    if !equal_arms.is_empty() {
        let left_out = (equal_arms.len() - all) as f64;
        let count = equal_arms.len();
        figures.push(Figure::bare(
            "aa_left_out",
            "1",
            left_out,
            Statistic::Exact,
            count,
        ));
    }
    figures
}

#[cfg(test)]
mod tests {
    use tare_lab::kit::{find, value};
    use tare_platform::{Mode, Place};

    use super::super::tests::run;
    use super::*;

    /// As many A/A pairs of a workload, of which the second arm is so much slower.
    fn add(data: &mut Data, workload: &str, pairs: u64, slower: f64) {
        let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
        for block in 0..pairs {
            let wave = 1.0 + block as f64 / 1000.0;
            for (arm, time) in [(Arm::Main, wave), (Arm::Control, wave * wave * slower)] {
                let mut run = run("a", workload, place, arm, time);
                run.block = Some(block);
                data.runs.push(run);
            }
        }
    }

    #[test]
    fn tests_that_cannot_differ_are_not_counted_and_are_said_to_be_left_out() {
        let mut data = Data::default();
        for (workload, pairs) in [("few", 5), ("seven", 7), ("eight", 8), ("many", 20)] {
            add(&mut data, workload, pairs, 1.3);
        }
        let figures = figures(&data, &data.workloads());
        let share = find(&figures, "aa_significant_pct").unwrap();
        assert_eq!((share.value, share.n), (100.0, 2), "{share:?}");
        let left_out = find(&figures, "aa_left_out").unwrap();
        assert_eq!((left_out.value, left_out.n), (2.0, 4), "{left_out:?}");
        data.runs.retain(|run| run.cell.workload == "seven");
        let figures = super::figures(&data, &data.workloads());
        assert_eq!(value(&figures, "aa_significant_pct"), None);
        assert_eq!(value(&figures, "aa_left_out"), Some(1.0));
    }

    #[test]
    fn no_goal_of_the_instrument_is_decided_by_a_range() {
        use tare_control::stats::Kvm;
        use tare_lab::results::{Judgement, judge};
        let verdict = |pairs: &[u64]| {
            let mut data = Data::default();
            for (index, pairs) in pairs.iter().enumerate() {
                add(&mut data, &format!("w{index}"), *pairs, 1.0);
            }
            for run in data.runs.clone() {
                // Observing costs nothing, beyond doubt.
                if run.cell.arm == Arm::Control {
                    let mut run = run;
                    run.cell.arm = Arm::Unobserved;
                    data.runs.push(run);
                }
            }
            let figures = figures(&data, &data.workloads());
            ["aa_half_width_pct", "observer_cost_pct"].map(|name| {
                let goal = find(&figures, name).map(|it| judge(it, crate::GOALS, Kvm::None));
                goal.flatten().map(|goal| goal.verdict)
            })
        };
        assert_eq!(verdict(&[6, 9]), [Some(Judgement::Met); 2]);
        // Five are as near to each other, but they are a range.
        assert_eq!(verdict(&[5]), [None, Some(Judgement::Undecided)]);
        assert_eq!(verdict(&[5, 9]), [Some(Judgement::Undecided); 2]);
    }
}
