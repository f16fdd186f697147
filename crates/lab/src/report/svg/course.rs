//! Figures over columns, which are runs by their date or machines by their size: a point with its
//! interval in each.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{COLOURS, Drawing, Width, figure, legend_of_lines, line};
use crate::figure::Figure;
use crate::number::number;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 130.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 34.0;

/// A column of the chart.
#[derive(Clone, Debug)]
pub struct Column {
    /// A date, or a size.
    pub label: String,
    /// Whether lines go on from the column before: a run on the same machine as the run before.
    pub continues: bool,
}

/// One line, with a figure for each column.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// Its name.
    pub name: &'a str,
    /// The figures, where there are any.
    pub figures: Vec<Option<&'a Figure>>,
}

/// The chart with its legend; at most eight series, which have a colour each.
pub fn course(columns: &[Column], series: &[Series<'_>], description: &str) -> String {
    let all = || series.iter().flat_map(|one| one.figures.iter().flatten());
    let ends = |it: &Figure| (it.low.unwrap_or(it.value), it.high.unwrap_or(it.value));
    let least = all().map(|it| ends(it).0).fold(f64::INFINITY, f64::min);
    let greatest = all().map(|it| ends(it).1).fold(f64::NEG_INFINITY, f64::max);
    if !least.is_finite() {
        return String::new();
    }
    let chart = figure(description, |width| {
        let right = width.units() - RIGHT;
        let x = Scale::linear(-0.5, columns.len() as f64 - 0.5, (LEFT, right));
        let y = if Scale::is_wide(least, greatest) {
            Scale::log(least, greatest, (BOTTOM, TOP))
        } else {
            Scale::linear(least.min(0.0), greatest, (BOTTOM, TOP))
        };
        let mut drawing = Drawing::default();
        drawing.rows(y, (LEFT, right), 4, number);
        axis(&mut drawing, columns, x, width);
        for (index, one) in series.iter().enumerate() {
            draw(&mut drawing, columns, one, index % COLOURS, (x, y));
        }
        (BOTTOM + AXIS, drawing)
    });
    let names = series.iter().enumerate();
    legend_of_lines(names.map(|(index, one)| (index, one.name))) + &chart
}

/// Labels, and an upright line where no line goes on.
fn axis(drawing: &mut Drawing, columns: &[Column], x: Scale, width: Width) {
    let every = columns.len().div_ceil(width.of([9, 4])).max(1);
    for (place, column) in columns.iter().enumerate() {
        let between = x.at(place as f64 - 0.5);
        if !column.continues && place > 0 {
            drawing.path("one", format_args!("M{between:.1} {TOP}V{BOTTOM}"));
        }
        if place % every == 0 {
            let at = (x.at(place as f64), BOTTOM + 18.0);
            drawing.text(at, "middle", &column.label);
        }
    }
}

/// Points with their intervals, joined by a line as far as it goes on.
fn draw(
    drawing: &mut Drawing,
    columns: &[Column],
    one: &Series<'_>,
    colour: usize,
    (x, y): (Scale, Scale),
) {
    let (mut places, mut ends, mut is_apart) = (Vec::new(), String::new(), true);
    for (place, (column, figure)) in columns.iter().zip(&one.figures).enumerate() {
        is_apart |= !column.continues;
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
