//! A share in percent (of a core, of completions) over time, one panel for each arm above a common
//! axis, as Toro draws it.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{Drawing, Width, figure};
use crate::number::number;
use crate::report::escape;

const LEFT: f64 = 40.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 42.0;
/// Baseline of the labels of the bands.
const LABELS: f64 = 13.0;
const AXIS: f64 = 38.0;
const GAP: f64 = 30.0;

/// A shaded span of time.
#[derive(Clone, Debug)]
pub struct Band {
    /// Begin and end, s.
    pub span: (f64, f64),
    /// What happened in it.
    pub label: &'static str,
}

/// One arm.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title.
    pub title: String,
    /// Begin, end (s) and share (percent) of each window, in order.
    pub windows: Vec<(f64, f64, f64)>,
}

/// The chart.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// End of the time axis, s.
    pub end: f64,
    /// What the time axis says.
    pub axis: &'static str,
    /// Shaded spans.
    pub bands: Vec<Band>,
    /// The arms.
    pub panels: Vec<Panel>,
}

impl Timeline {
    /// The chart as a figure.
    pub fn figure(&self, description: &str) -> String {
        figure(description, |width| self.draw(width))
    }

    fn draw(&self, width: Width) -> (f64, Drawing) {
        let panel = width.of([96.0, 80.0]);
        let right = width.units() - RIGHT;
        let x = Scale::linear(0.0, self.end, (LEFT, right));
        let mut drawing = Drawing::default();
        let mut bottom = TOP + panel;
        self.labels(&mut drawing, x);
        for (index, arm) in self.panels.iter().enumerate() {
            let top = TOP + index as f64 * (panel + GAP);
            bottom = top + panel;
            let y = Scale::linear(0.0, self.greatest(), (bottom, top));
            for Band { span, .. } in &self.bands {
                drawing.band((x.at(span.0), x.at(span.1)), (top, bottom), "");
            }
            drawing.rows(y, (LEFT, right), 2, |tick| format!("{tick}%"));
            draw_windows(&mut drawing, arm, x, y, index);
            let (title, above) = (escape(&arm.title), top - 7.0);
            let _ = writeln!(
                drawing.0,
                "<text class=\"name\" x=\"{LEFT}\" y=\"{above:.1}\">{title}</text>"
            );
        }
        drawing.path("axis", format_args!("M{LEFT} {bottom:.1}H{right}"));
        for tick in x.ticks(width.of([10, 5])) {
            drawing.text((x.at(tick), bottom + 16.0), "middle", &number(tick));
        }
        let middle = (f64::midpoint(LEFT, right), bottom + 33.0);
        drawing.text(middle, "middle", self.axis);
        (bottom + AXIS, drawing)
    }

    /// What happened in the bands, above all panels, where there is room.
    fn labels(&self, drawing: &mut Drawing, x: Scale) {
        let mut free = 0.0;
        for band in &self.bands {
            let middle = f64::midpoint(x.at(band.span.0), x.at(band.span.1));
            let half = band.label.len() as f64 * 3.4;
            if middle - half >= free {
                free = middle + half + 4.0;
                drawing.text((middle, LABELS), "middle", band.label);
            }
        }
    }

    fn greatest(&self) -> f64 {
        let panels = self.panels.iter();
        let shares = panels.flat_map(|panel| panel.windows.iter().map(|window| window.2));
        let greatest = shares.fold(100.0, f64::max);
        // What is a little above one core is noise of the account.
        if greatest <= 115.0 {
            greatest
        } else {
            (greatest / 50.0).ceil() * 50.0
        }
    }
}

/// Steps from window to window, with a gap where windows are apart.
fn draw_windows(drawing: &mut Drawing, panel: &Panel, x: Scale, y: Scale, series: usize) {
    let (mut line, mut area) = (String::new(), String::new());
    let zero = y.at(0.0);
    let mut end = f64::NEG_INFINITY;
    for &(from, to, share) in &panel.windows {
        let (left, right, at) = (x.at(from), x.at(to), y.at(share));
        let is_joined = left - end < 8.0;
        let (pen, start) = if is_joined { ('L', end) } else { ('M', left) };
        let _ = write!(line, "{pen}{start:.1} {at:.1}H{right:.1}");
        let _ = write!(area, "M{start:.1} {zero:.1}V{at:.1}H{right:.1}V{zero:.1}Z");
        end = right;
    }
    drawing.path(&format!("area s{series}"), format_args!("{area}"));
    drawing.path(&format!("line s{series}"), format_args!("{line}"));
}
