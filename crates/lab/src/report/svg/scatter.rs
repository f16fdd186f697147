//! Latency against cost: points with names, and a line below which nothing
//! can be. The cost's axis is logarithmic; what costs nothing stands at its
//! left end.

use super::percentiles::time;
use super::scale::Scale;
use super::{Drawing, figure, line};
use crate::number::number;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 76.0;
const TOP: f64 = 16.0;
const HEIGHT: f64 = 230.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 42.0;
/// What is left of this share is drawn as nothing, percent.
const LEAST_PCT: f64 = 0.01;

/// A point with its name.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// What it is.
    pub(crate) name: String,
    /// Cost, percent of a CPU.
    pub(crate) cpu_pct: f64,
    /// Latency, us.
    pub(crate) latency_us: f64,
    /// Colour, as the series of other charts.
    pub(crate) series: usize,
}

/// The chart as a figure; nothing without marks.
pub(crate) fn scatter(marks: &[Mark], best: &[(f64, f64)], description: &str) -> String {
    let all = marks.iter().map(|mark| mark.latency_us);
    let greatest = all.chain(best.iter().map(|(_, us)| *us)).reduce(f64::max);
    let Some(greatest) = greatest.filter(|us| *us > 0.0) else {
        return String::new();
    };
    figure(description, |width| {
        let right = width.units() - RIGHT;
        let x = Scale::log(LEAST_PCT, 100.0, (LEFT, right));
        let y = Scale::linear(0.0, greatest * 1.1, (BOTTOM, TOP));
        let mut drawing = Drawing::default();
        drawing.rows(y, (LEFT, right), 6, time);
        let ticks = x.ticks(5).into_iter().map(|tick| match tick {
            tick if tick <= LEAST_PCT * 1.001 => (x.at(tick), "0".to_owned()),
            tick => (x.at(tick), number(tick)),
        });
        drawing.columns(ticks, (TOP, BOTTOM));
        let middle = (f64::midpoint(LEFT, right), BOTTOM + 34.0);
        drawing.text(middle, "middle", "polling, % of a CPU");
        if !best.is_empty() {
            let places = best
                .iter()
                .map(|(cpu, us)| ((x.at(*cpu), y.at(*us)), false));
            drawing.path("line dash s0", format_args!("{}", line(places)));
        }
        for mark in marks {
            let (across, down) = (x.at(mark.cpu_pct), y.at(mark.latency_us));
            drawing.dot(mark.series, (across, down), 4.0, "");
            drawing.text((across + 7.0, down - 5.0), "", &mark.name);
        }
        (BOTTOM + AXIS, drawing)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_has_its_name_and_nothing_stands_outside() {
        let mark = |name: &str, cpu_pct| Mark {
            name: name.into(),
            cpu_pct,
            latency_us: 5.0,
            series: 1,
        };
        let marks = [mark("<never>", 0.0), mark("always", 99.0)];
        let chart = scatter(&marks, &[(0.01, 6.0), (100.0, 2.0)], "x");
        assert!(chart.contains("&lt;never&gt;") && chart.contains("always"));
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
        assert_eq!(scatter(&[], &[], "x"), "");
    }
}
