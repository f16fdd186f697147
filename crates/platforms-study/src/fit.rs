//! A platform's overhead by type and by size: what of it stays at any size, and what falls.

use tare_platform::{Limit, Mode, Place, Platform};
use tare_stats::{Interval, Part, half_width, mean};

use super::analysis::{baseline, cell, quota_bound, sizes};
use super::data::Data;
use super::estimate::{Estimate, LEAST, paired, ratio};
use super::plan::{Arm, Cell};
use tare_lab::kit::Statistic;

/// A line through fewer sizes fits whatever they are.
const LEAST_SIZES: usize = 3;

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
    ratio: Estimate,
    /// The independent parts of its error: of the pairs' mean, or of both means; `None` of one
    /// run.
    parts: Option<Vec<Part>>,
}

/// Fits the split of a platform: a fit of ours, which CPU-Pinning 2020 does not have. `None`
/// below three sizes that are kept by the same limit, since a line through two says nothing
/// about its form.
pub(crate) fn split(data: &Data, workload: &str, platform: Platform, mode: Mode) -> Option<Split> {
    let mut points: Vec<(Limit, Point)> = Vec::new();
    for (host, cpus) in data.hosts() {
        for size in sizes(data, workload) {
            let place = Place::new(platform, mode, size, cpus);
            let over = cell(workload, place, Arm::Main);
            let under = cell(workload, baseline(size, cpus), Arm::Main);
            if quota_bound(data, workload, place) == Some(false) {
                continue;
            }
            points.extend(point(data, &host, &over, &under).map(|point| (place.limit, point)));
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

/// By pairs, so that what changes slowly is in no error, or by means where a record has none.
fn point(data: &Data, host: &str, over: &Cell, under: &Cell) -> Option<Point> {
    let size = over.place.size;
    let pairs = data.pairs(host, over, under);
    if pairs.len() > 1 {
        let logs: Vec<f64> = pairs.iter().map(|ratio| ratio.ln()).collect();
        let value = mean(&logs)?.exp();
        return Some(Point {
            size,
            ratio: Estimate {
                value,
                ..paired(&pairs)?
            },
            parts: Part::of_mean(&logs, value).map(|part| vec![part]),
        });
    }
    let (over, under) = (data.times(host, over), data.times(host, under));
    let (top, bottom) = (mean(&over)?, mean(&under)?);
    let ratio = ratio(&over, &under)?;
    // The delta method: relative errors add by squares.
    let parts = Part::of_mean(&over, ratio.value / top)
        .zip(Part::of_mean(&under, ratio.value / bottom))
        .map(|(over, under)| vec![over, under]);
    Some(Point { size, ratio, parts })
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

/// A weighted sum of overheads, percent: with an interval where each point has runs enough, else
/// with what the points' ends give.
fn combined(points: &[Point], weights: &[f64]) -> Estimate {
    let pairs = || points.iter().zip(weights);
    let sum = |of: &dyn Fn(&Point, f64) -> Option<f64>| -> Option<f64> {
        pairs()
            .map(|(point, w)| Some((of(point, *w)? - 1.0) * w))
            .sum()
    };
    let value = sum(&|point, _| Some(point.ratio.value)).unwrap_or_default();
    let parts: Option<Vec<Vec<Part>>> = pairs()
        .map(|(point, weight)| {
            let scaled = |part: &Part| Part {
                variance: part.variance * weight * weight,
                ..*part
            };
            Some(point.parts.as_ref()?.iter().map(scaled).collect())
        })
        .collect();
    let n = points.iter().map(|point| point.ratio.n).min().unwrap_or(0);
    let half = parts.and_then(|parts| half_width(&parts.concat()));
    let interval = half.filter(|_| n >= LEAST).map(|half| Interval {
        low: value - half,
        high: value + half,
    });
    // A point with a negative weight pulls the sum down by its upper end.
    let low = sum(&|point, w| {
        let ends = point.ratio.ends()?;
        Some(if w < 0.0 { ends.high } else { ends.low })
    });
    let high = sum(&|point, w| {
        let ends = point.ratio.ends()?;
        Some(if w < 0.0 { ends.low } else { ends.high })
    });
    let range = low.zip(high).map(|(low, high)| Interval { low, high });
    let sum = Estimate {
        interval,
        range: range.filter(|_| interval.is_none()),
        ..Estimate::bare(value, Statistic::Fit, n)
    };
    sum.mapped(|overhead| overhead * 100.0)
}
