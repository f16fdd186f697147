//! A figure over stored runs: a point with its interval for each run, oldest first.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{COLOURS, Drawing, Width, figure, legend_of, line};
use crate::figure::Figure;
use crate::number::number;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 130.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 34.0;

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
        let y = if Scale::is_wide(least, greatest) {
            Scale::log(least, greatest, (BOTTOM, TOP))
        } else {
            Scale::linear(least.min(0.0), greatest, (BOTTOM, TOP))
        };
        let mut drawing = Drawing::default();
        drawing.rows(y, (LEFT, right), 4, number);
        axis(&mut drawing, runs, x, width);
        for (index, one) in series.iter().enumerate() {
            draw(&mut drawing, runs, one, index % COLOURS, (x, y));
        }
        (BOTTOM + AXIS, drawing)
    });
    let names = series.iter().enumerate();
    legend_of(names.map(|(index, one)| (index, one.name))) + &chart
}

/// Dates, and an upright line between machines.
fn axis(drawing: &mut Drawing, runs: &[Run], x: Scale, width: Width) {
    let every = runs.len().div_ceil(width.of([9, 4])).max(1);
    for (place, run) in runs.iter().enumerate() {
        let between = x.at(place as f64 - 0.5);
        if !run.continues && place > 0 {
            drawing.path("one", format_args!("M{between:.1} {TOP}V{BOTTOM}"));
        }
        if place % every == 0 {
            let at = (x.at(place as f64), BOTTOM + 18.0);
            drawing.text(at, "middle", &run.label);
        }
    }
}

/// Points with their intervals; a line joins those of one machine.
fn draw(
    drawing: &mut Drawing,
    runs: &[Run],
    one: &Series<'_>,
    colour: usize,
    (x, y): (Scale, Scale),
) {
    let (mut places, mut ends, mut is_apart) = (Vec::new(), String::new(), true);
    for (place, (run, figure)) in runs.iter().zip(&one.figures).enumerate() {
        is_apart |= !run.continues;
        let Some(figure) = figure else { continue };
        let at = (x.at(place as f64), y.at(figure.value));
        places.push((at, is_apart, figure));
        is_apart = false;
        if let Some((low, high)) = figure.ends() {
            let (low, high) = (y.at(low), y.at(high));
            let _ = write!(ends, "M{:.1} {low:.1}V{high:.1}", at.0);
        }
    }
    let joined = line(places.iter().map(|(at, is_apart, _)| (*at, *is_apart)));
    drawing.path(&format!("line dash s{colour}"), format_args!("{joined}"));
    drawing.path(&format!("line s{colour}"), format_args!("{ends}"));
    for (at, _, figure) in places {
        let title = format!("{}: {}", one.name, figure.text());
        drawing.dot(colour, at, 3.5, &title);
    }
}
