//! Latency against cost: points with names, and a line below which nothing
//! can be. The cost's axis is logarithmic; what costs nothing stands at its
//! left end.

use std::fmt::Write as _;

use super::percentiles::time;
use super::scale::Scale;
use super::{figure, upright_axis};
use crate::number::number;
use crate::report::escape;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 76.0;
const TOP: f64 = 16.0;
const HEIGHT: f64 = 230.0;
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
pub(crate) fn scatter(marks: &[Mark], line: &[(f64, f64)], description: &str) -> String {
    let all = marks.iter().map(|mark| mark.latency_us);
    let greatest = all.chain(line.iter().map(|(_, us)| *us)).reduce(f64::max);
    let Some(greatest) = greatest.filter(|us| *us > 0.0) else {
        return String::new();
    };
    figure(description, |width| {
        let right = width.units() - RIGHT;
        let x = Scale::log(LEAST_PCT, 100.0, (LEFT, right));
        let y = Scale::linear(0.0, greatest * 1.1, (TOP + HEIGHT, TOP));
        let mut out = String::new();
        axes(&mut out, x, y, right);
        draw_line(&mut out, line, x, y);
        for mark in marks {
            draw(&mut out, mark, x, y);
        }
        (TOP + HEIGHT + AXIS, out)
    })
}

fn axes(out: &mut String, x: Scale, y: Scale, right: f64) {
    upright_axis(out, y, (LEFT, right), 6, time);
    let bottom = TOP + HEIGHT;
    for tick in x.ticks(5) {
        let at = x.at(tick);
        let label = if tick <= LEAST_PCT * 1.001 {
            "0".to_owned()
        } else {
            number(tick)
        };
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">polling, % of a CPU</text>",
        f64::midpoint(LEFT, right),
        bottom + 34.0
    );
}

fn draw_line(out: &mut String, line: &[(f64, f64)], x: Scale, y: Scale) {
    let mut path = String::new();
    for (cpu_pct, latency_us) in line {
        let pen = if path.is_empty() { 'M' } else { 'L' };
        let (across, down) = (x.at(*cpu_pct), y.at(*latency_us));
        let _ = write!(path, "{pen}{across:.1} {down:.1}");
    }
    if !path.is_empty() {
        let _ = writeln!(out, "<path class=\"line dash s0\" d=\"{path}\"/>");
    }
}

fn draw(out: &mut String, mark: &Mark, x: Scale, y: Scale) {
    let (across, down) = (x.at(mark.cpu_pct), y.at(mark.latency_us));
    let _ = writeln!(
        out,
        "<circle class=\"dot s{}\" cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"4\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        mark.series,
        across + 7.0,
        down - 5.0,
        escape(&mark.name)
    );
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
