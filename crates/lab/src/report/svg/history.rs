//! A figure over stored runs: a point with its interval for each run, oldest first.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{COLOURS, Width, figure, legend_of, upright_axis};
use crate::figure::Figure;
use crate::number::number;
use crate::report::escape;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 130.0;
const AXIS: f64 = 34.0;
/// Values this far apart have a logarithmic axis.
const WIDE: f64 = 8.0;

/// A run on the time axis.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// When it was: a date.
    pub(crate) label: String,
    /// Whether it ran on the machine of the run before.
    pub(crate) continues: bool,
}

/// One arm of a figure, a place for each run.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) figures: Vec<Option<&'a Figure>>,
}

/// The chart with its legend; at most [`COLOURS`] series.
pub(crate) fn history(runs: &[Run], series: &[Series<'_>], description: &str) -> String {
    let all = || series.iter().flat_map(|one| one.figures.iter().flatten());
    let ends = |it: &Figure| (it.low.unwrap_or(it.value), it.high.unwrap_or(it.value));
    let least = all().map(|it| ends(it).0).fold(f64::INFINITY, f64::min);
    let greatest = all().map(|it| ends(it).1).fold(f64::NEG_INFINITY, f64::max);
    if !least.is_finite() {
        return String::new();
    }
    let chart = figure(description, |width| {
        let right = width.units() - RIGHT;
        let x = Scale::linear(-0.5, runs.len() as f64 - 0.5, (LEFT, right));
        let bounds = (TOP + HEIGHT, TOP);
        let y = if least > 0.0 && greatest > WIDE * least {
            Scale::log(least, greatest, bounds)
        } else {
            Scale::linear(least.min(0.0), greatest, bounds)
        };
        let mut out = String::new();
        axes(&mut out, runs, (x, y), right, width);
        for (index, one) in series.iter().enumerate() {
            draw(&mut out, runs, one, index % COLOURS, (x, y));
        }
        (TOP + HEIGHT + AXIS, out)
    });
    let names = series.iter().enumerate();
    legend_of(names.map(|(index, one)| (index, one.name))) + &chart
}

fn axes(out: &mut String, runs: &[Run], (x, y): (Scale, Scale), right: f64, width: Width) {
    upright_axis(out, y, (LEFT, right), 4, number);
    let most = match width {
        Width::Wide => 9,
        Width::Narrow => 4,
    };
    let every = runs.len().div_ceil(most).max(1);
    for (place, run) in runs.iter().enumerate() {
        let between = x.at(place as f64 - 0.5);
        if !run.continues && place > 0 {
            let bottom = TOP + HEIGHT;
            let _ = writeln!(
                out,
                "<path class=\"one\" d=\"M{between:.1} {TOP}V{bottom}\"/>"
            );
        }
        if place % every == 0 {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x.at(place as f64),
                TOP + HEIGHT + 18.0,
                escape(&run.label)
            );
        }
    }
}

/// Points with their intervals; a line joins those of one machine.
fn draw(out: &mut String, runs: &[Run], one: &Series<'_>, colour: usize, (x, y): (Scale, Scale)) {
    let (mut line, mut ends, mut dots) = (String::new(), String::new(), String::new());
    let mut is_joined = false;
    for (place, (run, figure)) in runs.iter().zip(&one.figures).enumerate() {
        is_joined &= run.continues;
        let Some(figure) = figure else { continue };
        let (across, down) = (x.at(place as f64), y.at(figure.value));
        let pen = if is_joined { 'L' } else { 'M' };
        let _ = write!(line, "{pen}{across:.1} {down:.1}");
        is_joined = true;
        if let Some((low, high)) = figure.ends() {
            let (low, high) = (y.at(low), y.at(high));
            let _ = write!(ends, "M{across:.1} {low:.1}V{high:.1}");
        }
        let _ = writeln!(
            dots,
            "<circle class=\"dot s{colour}\" cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"3.5\">\
             <title>{}: {}</title></circle>",
            escape(one.name),
            escape(&figure.text())
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"line dash s{colour}\" d=\"{line}\"/>\
         <path class=\"line s{colour}\" d=\"{ends}\"/>{dots}"
    );
}
