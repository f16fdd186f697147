//! Latency by percentile: the distribution with its tail stretched, as
//! HdrHistogram plots it, on a logarithmic latency axis.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{COLOURS, figure, legend_of, upright_axis};

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
const HEIGHT: f64 = 250.0;
const AXIS: f64 = 40.0;
/// Points of a line at most.
const POINTS: usize = 300;

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    /// Colour, as the series of other charts.
    pub(crate) series: usize,
    /// Samples, us, ascending, not empty.
    pub(crate) sorted_us: Vec<f64>,
}

impl Distribution {
    /// The series of these samples, us; `None` if there are none.
    pub(crate) fn of(series: usize, us: &[f64]) -> Option<Self> {
        let sorted_us = tare_stats::sorted(us)?;
        (!sorted_us.is_empty()).then_some(Self { series, sorted_us })
    }
}

/// The chart as a figure with the legend of the series that have samples; nothing without.
pub(crate) fn percentiles(names: &[&str], series: &[Distribution], description: &str) -> String {
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
        let y = Scale::log(least, greatest, (TOP + HEIGHT, TOP));
        let right = width.units() - RIGHT;
        let x = Scale::linear(0.0, nines(tail(longest)), (LEFT, right));
        let mut out = String::new();
        upright_axis(&mut out, y, (LEFT, right), 7, time);
        percentile_axis(&mut out, x, longest);
        for one in series {
            draw(&mut out, one, x, y);
        }
        (TOP + HEIGHT + AXIS, out)
    });
    legend_of(present) + &chart
}

/// Share beyond the last sample of `n`.
fn tail(n: usize) -> f64 {
    1.0 - 1.0 / (n as f64 + 1.0)
}

/// Position of a share on the percentile axis: 0, 0.9, 0.99 at 0, 1, 2.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn percentile_axis(out: &mut String, x: Scale, longest: usize) {
    let bottom = TOP + HEIGHT;
    let marks = [
        (0.0, "0"),
        (0.5, "50"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99"),
    ];
    for (share, label) in marks
        .into_iter()
        .filter(|(share, _)| *share <= tail(longest))
    {
        let at = x.at(nines(share));
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {bottom}H{:.1}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">percentile</text>",
        x.at(nines(tail(longest))),
        f64::midpoint(LEFT, x.at(nines(tail(longest)))),
        bottom + 34.0
    );
}

fn draw(out: &mut String, one: &Distribution, x: Scale, y: Scale) {
    let n = one.sorted_us.len();
    let mut path = String::new();
    for point in 0..POINTS.min(n) {
        let index = index_of(point, n);
        let share = (index as f64 + 1.0) / (n as f64 + 1.0);
        let pen = if path.is_empty() { 'M' } else { 'L' };
        let at = (x.at(nines(share)), y.at(one.sorted_us[index]));
        let _ = write!(path, "{pen}{:.1} {:.1}", at.0, at.1);
    }
    let _ = writeln!(
        out,
        "<path class=\"line dash s{}\" d=\"{path}\"/>",
        one.series % COLOURS
    );
    for share in [0.5, 0.99] {
        let value = tare_stats::quantile(&one.sorted_us, share);
        if share <= tail(n) {
            let _ = writeln!(
                out,
                "<circle class=\"dot s{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
                one.series % COLOURS,
                x.at(nines(share)),
                y.at(value)
            );
        }
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
    format!("{} {unit}", crate::number::number(value))
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
