//! Two costs against each other: their ratio, and whether it is 1.

use tare_lab::kit::{Statistic, number};
use tare_platform::Place;
use tare_stats::{Estimated, Interval, adjusted_by_holm, difference};

use crate::analysis::{cell, overhead};
use crate::data::Data;
use crate::estimate::{ALPHA, Estimate, least_p, paired, ratio, tested, together};
use crate::plan::{Arm, Cell};

/// A workload in a place.
pub(super) type Side<'a> = (&'a str, Place);

/// What one side costs over what the other costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostRatio {
    pub(super) ratio: Estimate,
    /// Of the ratio being 1; `None` where no such p can be below [`ALPHA`].
    p: Option<f64>,
}

impl CostRatio {
    /// Of one workload's blocks that hold both sides by their pairs: both are divided by one baseline
    /// there, which drops out with all that changes slowly. Else of the two overheads.
    pub(super) fn of(data: &Data, sides: [Side<'_>; 2]) -> Option<Self> {
        let cells = sides.map(|(workload, place)| cell(workload, place, Arm::Main));
        let hosts = data.hosts().into_iter();
        // Two workloads have two baselines.
        let alike = sides[0].0 == sides[1].0;
        let pairs: Vec<f64> = hosts
            .filter(|_| alike)
            .flat_map(|(host, _)| data.pairs(&host, &cells[0], &cells[1]))
            .collect();
        if pairs.is_empty() {
            return apart(data, sides, &cells);
        }
        // What cannot differ must not cost the others their power.
        let can_differ = least_p(&pairs).is_some_and(|p| p < ALPHA);
        Some(Self {
            ratio: paired(&pairs)?,
            p: tested(&pairs).filter(|_| can_differ),
        })
    }

    /// Of a change in percent.
    pub(super) fn of_percent(percent: Estimate) -> Self {
        let ratio = percent.mapped(|percent| 1.0 + percent / 100.0);
        Self {
            ratio,
            p: differs(&ratio, &exactly_one(ratio.n)),
        }
    }
}

/// A comparison in words, its ratio, and whether the first side costs more.
pub(super) type Judged = (String, Estimate, Option<bool>);

/// The comparisons of a finding, each with its words: p is adjusted (Holm 1979) for all of them.
pub(super) fn judged(compared: Vec<(String, CostRatio)>) -> Vec<Judged> {
    let p_values: Vec<f64> = compared.iter().filter_map(|(_, it)| it.p).collect();
    let mut adjusted = adjusted_by_holm(&p_values).into_iter();
    let judge = |(text, CostRatio { ratio, p }): (String, CostRatio)| {
        let p = p.and_then(|_| adjusted.next());
        let said = p.map_or_else(
            || format!("{} runs are too few for a test", ratio.n),
            |p| adjusted_text(p, p_values.len()),
        );
        let costs_more = p.filter(|p| *p < ALPHA).map(|_| ratio.value > 1.0);
        (format!("{text}, {said}"), ratio, costs_more)
    };
    compared.into_iter().map(judge).collect()
}

/// The same, each with whether the first side costs more.
pub(super) fn votes(compared: Vec<(String, CostRatio)>) -> Vec<(String, Option<bool>)> {
    let judged = judged(compared).into_iter();
    judged.map(|(text, _, vote)| (text, vote)).collect()
}

/// An adjusted p in words.
pub(super) fn adjusted_text(p: f64, comparisons: usize) -> String {
    let p = if p < 0.001 {
        "below 0.001".to_owned()
    } else {
        number(p)
    };
    format!("p {p} (adjusted by Holm for {comparisons} comparisons)")
}

/// The ratio and its p where no block holds both sides.
fn apart(data: &Data, sides: [Side<'_>; 2], cells: &[Cell; 2]) -> Option<CostRatio> {
    let [first, second] = sides.map(|(workload, place)| overhead(data, workload, place));
    let (first, second) = (first?, second?);
    let in_pairs = |it: &Estimate| it.statistic == Statistic::PairedRatio;
    if sides[0].0 == sides[1].0 && !(in_pairs(&first) && in_pairs(&second)) {
        // One baseline is in both means, so they are not independent: it is left out.
        return by_means(data, cells);
    }
    Some(quotient(&first, &second))
}

/// The ratio of the sides' own means, with p by Student's distribution.
fn by_means(data: &Data, [first, second]: &[Cell; 2]) -> Option<CostRatio> {
    let of_host = |(host, _): (String, u32)| {
        let times = |cell| data.times(&host, cell);
        ratio(&times(first), &times(second))
    };
    let ratios: Vec<Estimate> = data.hosts().into_iter().filter_map(of_host).collect();
    let ratio = together(&ratios)?;
    Some(CostRatio {
        ratio,
        p: differs(&ratio, &exactly_one(ratio.n)),
    })
}

fn exactly_one(n: usize) -> Estimate {
    let one = Interval {
        low: 1.0,
        high: 1.0,
    };
    Estimate {
        interval: Some(one),
        ..Estimate::bare(1.0, Statistic::Exact, n)
    }
}

/// The ratio of two independent ratios, with its p.
fn quotient(first: &Estimate, second: &Estimate) -> CostRatio {
    let logs = log(second).zip(log(first));
    let known = logs.and_then(|(second, first)| difference(second, first));
    let n = first.n.min(second.n);
    let ratio = Estimate {
        interval: known.map(|it| Interval {
            low: it.interval.low.exp(),
            high: it.interval.high.exp(),
        }),
        ..Estimate::bare(first.value / second.value, Statistic::Ratio, n)
    };
    CostRatio {
        ratio,
        p: known.map(|it| it.p),
    }
}

/// p of two independent ratios being the same; `None` where one has no interval.
pub(super) fn differs(a: &Estimate, b: &Estimate) -> Option<f64> {
    Some(difference(log(a)?, log(b)?)?.p)
}

fn log(it: &Estimate) -> Option<Estimated> {
    let Interval { low, high } = it.interval?;
    Some(Estimated {
        value: it.value.ln(),
        interval: Interval {
            low: low.ln(),
            high: high.ln(),
        },
        n: it.n,
    })
}
