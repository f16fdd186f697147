//! Values side by side as horizontal bars, each with its interval.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{Drawing, figure};
use crate::figure::Figure;
use crate::number::number;

const LABEL: f64 = 118.0;
const VALUE: f64 = 64.0;
const TOP: f64 = 8.0;
const ROW: f64 = 24.0;
const THICK: f64 = 13.0;
const AXIS: f64 = 38.0;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is of.
    pub label: String,
    /// Its length and interval.
    pub figure: Figure,
    /// Colour, as the series of other charts.
    pub series: usize,
}

/// How far figures of arms that are the same reach, with their intervals: what lies within
/// cannot be told from no difference. `None` without any.
pub fn reach<'a>(same: impl Iterator<Item = &'a Figure>) -> Option<(f64, f64)> {
    let ends = same.map(|figure| figure.ends().unwrap_or((figure.value, figure.value)));
    ends.reduce(|(low, high), (from, to)| (low.min(from), high.max(to)))
}

/// Values whose greatest is more than this of the least have a logarithmic axis: on a linear one
/// the short bars would all look the same.
const FAR: f64 = 30.0;

/// The chart as a figure; nothing without bars. `same` is drawn as a band: how far arms that
/// are the same differ.
pub fn bars(bars: &[Bar], unit: &str, same: Option<(f64, f64)>, description: &str) -> String {
    let end = |bar: &Bar| bar.figure.high.unwrap_or(bar.figure.value);
    let greatest = bars.iter().map(end).reduce(f64::max);
    let Some(greatest) = greatest.map(|end| end.max(same.map_or(end, |same| same.1))) else {
        return String::new();
    };
    let low = |bar: &Bar| bar.figure.low.unwrap_or(bar.figure.value);
    let least = bars.iter().map(low).fold(f64::INFINITY, f64::min);
    let least = least.min(same.map_or(least, |same| same.0));
    // Ratios have a line at 1, where their bars begin.
    let is_ratio = unit.contains(" over ");
    let is_log = are_far(bars) || (is_ratio && Scale::is_wide(least, greatest));
    let unit = if is_log {
        format!("{unit} (logarithmic)")
    } else {
        unit.to_owned()
    };
    let greatest = if is_ratio {
        greatest.max(1.0)
    } else {
        greatest
    };
    figure(description, |width| {
        let right = width.units() - VALUE;
        let x = if is_log && is_ratio {
            Scale::log(positive(bars).min(1.0), greatest, (LABEL, right))
        } else if is_log {
            // The shortest bar is to be seen.
            Scale::log(positive(bars) / 2.0, greatest, (LABEL, right))
        } else {
            Scale::linear(least.min(0.0), greatest, (LABEL, right))
        };
        let bottom = TOP + ROW * bars.len() as f64;
        let mut drawing = Drawing::default();
        if let Some((from, to)) = same {
            let title = "A/A: arms that are the same differ by so much";
            drawing.band((x.at(from), x.at(to)), (TOP, bottom), title);
        }
        let ticks = x.ticks(width.of([8, 3])).into_iter();
        drawing.columns(ticks.map(|tick| (x.at(tick), number(tick))), (TOP, bottom));
        let middle = (f64::midpoint(LABEL, right), bottom + 32.0);
        drawing.text(middle, "middle", &unit);
        for (row, bar) in bars.iter().enumerate() {
            let from = if is_ratio { 1.0 } else { 0.0 };
            draw(&mut drawing, bar, x, from, TOP + ROW * (row as f64 + 0.5));
        }
        if is_ratio {
            let at = x.at(1.0);
            drawing.path("one", format_args!("M{at:.1} {TOP}V{bottom:.1}"));
        }
        (bottom + AXIS, drawing)
    })
}

/// Whether values are so far apart that the axis is logarithmic.
fn are_far(bars: &[Bar]) -> bool {
    let values = || bars.iter().map(|bar| bar.figure.value);
    let least = values().fold(f64::INFINITY, f64::min);
    let greatest = values().fold(0.0, f64::max);
    least > 0.0 && greatest > FAR * least
}

/// The least end of an interval, or value, that a logarithmic axis has.
fn positive(bars: &[Bar]) -> f64 {
    let ends = bars.iter().flat_map(|bar| {
        let low = bar.figure.low.unwrap_or(bar.figure.value);
        [low, bar.figure.value]
    });
    ends.filter(|end| *end > 0.0).fold(f64::INFINITY, f64::min)
}

fn draw(drawing: &mut Drawing, bar: &Bar, x: Scale, from: f64, middle: f64) {
    let (zero, end) = (x.at(from), x.at(bar.figure.value));
    let ends = bar.figure.ends().map(|(low, high)| (x.at(low), x.at(high)));
    let (top, text) = (middle - THICK / 2.0, middle + 4.0);
    // What cannot be told from 1 is pale.
    let holds = |(low, high): (f64, f64)| from == 1.0 && low <= 1.0 && 1.0 <= high;
    let is_same = bar.figure.ends().is_some_and(holds);
    let class = if is_same { "same" } else { "" };
    let _ = writeln!(drawing.0, "<g class=\"{class}\">");
    drawing.text((LABEL - 7.0, text), "end", &bar.label);
    let area = format!("area s{}", bar.series);
    drawing.path(
        &area,
        format_args!("M{zero:.1} {top:.1}H{end:.1}v{THICK}H{zero:.1}Z"),
    );
    if let Some((low, high)) = ends {
        let class = format!("line s{}", bar.series);
        drawing.path(&class, format_args!("M{low:.1} {middle:.1}H{high:.1}"));
    }
    drawing.dot(bar.series, (end, middle), 3.0, "");
    let behind = ends.map_or(end, |(_, high)| high.max(end)) + 7.0;
    drawing.text((behind, text), "", &number(bar.figure.value));
    drawing.0.push_str("</g>\n");
}

#[cfg(test)]
mod tests {
    use super::super::Width;
    use super::*;
    use crate::figure::Statistic;
    use tare_stats::Interval;

    #[test]
    fn ratios_below_one_have_the_line_at_one_within_the_chart() {
        let ratio = Figure::bare("cpu_ratio.busy", "x", 0.8, Statistic::Ratio, 6);
        let bar = Bar {
            label: "busy".into(),
            figure: ratio,
            series: 0,
        };
        let chart = bars(&[bar], "CPU over that of each completion", None, "x");
        let (_, one) = chart.split_once("class=\"one\" d=\"M").unwrap();
        let at: f64 = one.split_once(' ').unwrap().0.parse().unwrap();
        assert!((at - (Width::Wide.units() - VALUE)).abs() < 0.1, "{at}");
    }

    #[test]
    fn a_bar_shows_its_label_and_value_and_no_markup() {
        let ends = Interval {
            low: 1100.0,
            high: 1300.0,
        };
        let figure = Figure::bare("exit_ns.cpuid", "ns", 1200.0, Statistic::Median, 7);
        let bar = Bar {
            label: "<cpuid>".into(),
            figure: figure.with_interval(Some(ends)),
            series: 1,
        };
        let chart = bars(std::slice::from_ref(&bar), "ns", None, "x");
        assert!(
            chart.contains("&lt;cpuid&gt;") && chart.contains(">1200<"),
            "{chart}"
        );
        assert!(!chart.contains("class=\"band\""), "{chart}");
        assert_eq!(bars(&[], "ns", Some((0.0, 1.0)), "x"), "");
        let same = reach([&bar.figure, &bar.figure.scaled(2.0, "ns")].into_iter());
        assert_eq!(same, Some((1100.0, 2600.0)));
        assert_eq!(reach(std::iter::empty()), None);
        let chart = bars(&[bar], "ns", same, "x");
        let (_, band) = chart.split_once("class=\"band\" x=\"").unwrap();
        let (from, _) = band.split_once('"').unwrap();
        // The axis ends with the band: 1,100 of 2,600 on the width between labels and values.
        let width = Width::Wide.units() - VALUE - LABEL;
        let expected = LABEL + width * 1100.0 / 2600.0;
        assert!(
            (from.parse::<f64>().unwrap() - expected).abs() < 0.1,
            "{from}"
        );
    }

    #[test]
    fn values_far_apart_have_a_logarithmic_axis_that_says_so() {
        let chart = |values: &[f64]| {
            let bar = |value: &f64| Bar {
                label: "x".into(),
                figure: Figure::bare("", "ns", *value, Statistic::Median, 7),
                series: 0,
            };
            bars(&values.iter().map(bar).collect::<Vec<_>>(), "ns", None, "x")
        };
        let is_log = |chart: &str| chart.contains(">ns (logarithmic)<");
        assert!(!is_log(&chart(&[100.0, 3000.0])) && !is_log(&chart(&[0.0, 3000.0])));
        let far = chart(&[530.0, 95_053.0]);
        assert!(is_log(&far), "{far}");
        // The short bar is a seventh of the width, not a point.
        let (_, dot) = far.split_once("cx=\"").unwrap();
        let (across, _) = dot.split_once('"').unwrap();
        let across: f64 = across.parse().unwrap();
        let width = Width::Wide.units() - VALUE - LABEL;
        assert!(across - LABEL > width / 7.0, "{across}");
    }

    #[test]
    fn what_is_below_zero_is_within_the_axis() {
        let bar = |value| Bar {
            label: "x".into(),
            figure: Figure::bare("", "%", value, Statistic::Median, 1),
            series: 0,
        };
        let chart = bars(&[bar(-2.0), bar(6.0)], "%", None, "x");
        let (_, dot) = chart.split_once("cx=\"").unwrap();
        let (across, _) = dot.split_once('"').unwrap();
        let across: f64 = across.parse().unwrap();
        assert!((across - LABEL).abs() < 0.1, "{across}");
    }
}
