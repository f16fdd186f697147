//! A platform's overhead by type and by size: what of it stays at any size, and what falls.

use tare_platform::{Limit, Mode, Place, Platform};
use tare_stats::{Interval, Part, half_width, mean};

use super::analysis::{baseline, cell, quota_bound, sizes};
use super::data::Data;
use super::estimate::Estimate;
use super::plan::Arm;
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
