//! Latency by percentile: the distribution with its tail stretched, as
//! HdrHistogram plots it, on a logarithmic latency axis.

use super::scale::Scale;
use super::{COLOURS, Drawing, figure, legend_of_lines, line};
use crate::number::number;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
const HEIGHT: f64 = 250.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 40.0;
/// Points of a line at most.
const POINTS: usize = 300;
/// Shares that are marked on the axis.
const MARKS: [(f64, &str); 6] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
];

/// One series.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Colour, as the series of other charts.
    pub(crate) series: usize,
    /// Samples, us, ascending, not empty.
    pub(crate) sorted_us: Vec<f64>,
}

impl Distribution {
    /// The series of these samples, us; `None` if there are none.
    pub fn of(series: usize, us: &[f64]) -> Option<Self> {
        let sorted_us = tare_stats::sorted(us)?;
        (!sorted_us.is_empty()).then_some(Self { series, sorted_us })
    }
}

/// The chart as a figure with the legend of the series that have samples; nothing without.
pub fn percentiles(names: &[&str], series: &[Distribution], description: &str) -> String {
    // Two would look the same.
    debug_assert!(names.len() <= COLOURS, "{names:?}");
    let least = series.iter().filter_map(|s| s.sorted_us.first()).copied();
    let greatest = series.iter().filter_map(|s| s.sorted_us.last()).copied();
    let (Some(least), Some(greatest)) = (least.reduce(f64::min), greatest.reduce(f64::max)) else {
        return String::new();
    };
    let longest = series.iter().map(|s| s.sorted_us.len()).max().unwrap_or(1);
    let present = series
        .iter()
        .filter_map(|one| Some((one.series, *names.get(one.series)?)));
    let chart = figure(description, |width| {
        let y = Scale::log(least, greatest, (BOTTOM, TOP));
        let right = width.units() - RIGHT;
        let x = Scale::linear(0.0, nines(tail(longest)), (LEFT, right));
        let mut drawing = Drawing::default();
        drawing.rows(y, (LEFT, right), 7, time);
        let marks = MARKS
            .iter()
            .filter(|(share, _)| *share <= tail(longest))
            .map(|(share, label)| (x.at(nines(*share)), (*label).to_owned()));
        drawing.columns(marks, (TOP, BOTTOM));
        drawing.path("axis", format_args!("M{LEFT} {BOTTOM}H{right:.1}"));
        let middle = (f64::midpoint(LEFT, right), BOTTOM + 34.0);
        drawing.text(middle, "middle", "percentile");
        for one in series {
            draw(&mut drawing, one, x, y);
        }
        (BOTTOM + AXIS, drawing)
    });
    legend_of_lines(present) + &chart
}

/// Share beyond the last sample of `n`.
fn tail(n: usize) -> f64 {
    1.0 - 1.0 / (n as f64 + 1.0)
}

/// Position of a share on the percentile axis: 0, 0.9, 0.99 at 0, 1, 2.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn draw(drawing: &mut Drawing, one: &Distribution, x: Scale, y: Scale) {
    let n = one.sorted_us.len();
    let points = (0..POINTS.min(n)).map(|point| {
        let index = index_of(point, n);
        let share = (index as f64 + 1.0) / (n as f64 + 1.0);
        ((x.at(nines(share)), y.at(one.sorted_us[index])), false)
    });
    let class = format!("line dash s{}", one.series % COLOURS);
    drawing.path(&class, format_args!("{}", line(points)));
    for share in [0.5, 0.99].into_iter().filter(|share| *share <= tail(n)) {
        let value = tare_stats::quantile(&one.sorted_us, share);
        drawing.dot(one.series, (x.at(nines(share)), y.at(value)), 3.5, "");
    }
}

/// Which sample is drawn as `point`: all if there are few, else so that the
/// points are even on the percentile axis and end with the last sample.
fn index_of(point: usize, n: usize) -> usize {
    if n <= POINTS {
        return point;
    }
    let share = 1.0 - (1.0 - tail(n)).powf(point as f64 / (POINTS - 1) as f64);
    ((share * n as f64) as usize).min(n - 1)
}

/// A time with its unit.
pub(crate) fn time(us: f64) -> String {
    let (value, unit) = match us {
        _ if us >= 1e6 => (us / 1e6, "s"),
        _ if us >= 1e3 => (us / 1e3, "ms"),
        _ => (us, "µs"),
    };
    format!("{} {unit}", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_of_many_samples_has_few_points_and_keeps_the_greatest() {
        let sorted_us: Vec<f64> = (1..=50_000).map(f64::from).collect();
        assert_eq!(index_of(POINTS - 1, sorted_us.len()), 49_999);
        let series = [Distribution {
            series: 1,
            sorted_us,
        }];
        let chart = percentiles(&["never", "poll"], &series, "x");
        assert!(chart.len() < 40_000, "{}", chart.len());
        assert!(chart.contains("99.99"));
        assert!(chart.contains("poll") && !chart.contains("never"));
    }

    #[test]
    fn no_samples_make_no_chart() {
        assert_eq!(percentiles(&["never"], &[], "x"), "");
    }
}
