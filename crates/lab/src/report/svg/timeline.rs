//! A share in percent (of a core, of completions) over time, one panel for each arm above a common axis, as
//! Toro draws it.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{Width, figure};
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
pub(crate) struct Band {
    /// Begin and end, s.
    pub(crate) span: (f64, f64),
    /// What happened in it.
    pub(crate) label: &'static str,
}

/// One arm.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Title.
    pub(crate) title: String,
    /// Begin, end (s) and share (percent) of each window, in order.
    pub(crate) windows: Vec<(f64, f64, f64)>,
}

/// The chart.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// End of the time axis, s.
    pub(crate) end: f64,
    /// What the time axis says.
    pub(crate) axis: &'static str,
    /// Shaded spans.
    pub(crate) bands: Vec<Band>,
    /// The arms.
    pub(crate) panels: Vec<Panel>,
}

impl Timeline {
    /// The chart as a figure.
    pub(crate) fn figure(&self, description: &str) -> String {
        figure(description, |width| self.draw(width))
    }

    fn draw(&self, width: Width) -> (f64, String) {
        let panel = match width {
            Width::Wide => 96.0,
            Width::Narrow => 80.0,
        };
        let x = Scale::linear(0.0, self.end, (LEFT, width.units() - RIGHT));
        let mut out = String::new();
        let mut top = TOP;
        self.labels(&mut out, x);
        for (index, arm) in self.panels.iter().enumerate() {
            top = TOP + index as f64 * (panel + GAP);
            let y = Scale::linear(0.0, self.greatest(), (top + panel, top));
            self.backdrop(&mut out, width, x, y, (top, panel));
            draw_windows(&mut out, arm, x, y, index);
            let _ = writeln!(
                out,
                "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
                top - 7.0,
                escape(&arm.title)
            );
        }
        let bottom = top + panel;
        self.time_axis(&mut out, width, x, bottom);
        (bottom + AXIS, out)
    }

    /// What happened in the bands, above all panels, where there is room.
    fn labels(&self, out: &mut String, x: Scale) {
        let mut free = 0.0;
        for band in &self.bands {
            let middle = f64::midpoint(x.at(band.span.0), x.at(band.span.1));
            let half = band.label.len() as f64 * 3.4;
            if middle - half < free {
                continue;
            }
            free = middle + half + 4.0;
            let _ = writeln!(
                out,
                "<text x=\"{middle:.1}\" y=\"{LABELS}\" text-anchor=\"middle\">{}</text>",
                escape(band.label)
            );
        }
    }

    /// Shades, grid and share axis of a panel.
    fn backdrop(
        &self,
        out: &mut String,
        width: Width,
        x: Scale,
        y: Scale,
        (top, height): (f64, f64),
    ) {
        for band in &self.bands {
            let (from, to) = (x.at(band.span.0), x.at(band.span.1));
            let _ = writeln!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{height}\"/>",
                to - from
            );
        }
        let right = width.units() - RIGHT;
        for tick in y.ticks(2) {
            let at = y.at(tick);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}%</text>",
                LEFT - 5.0,
                at + 4.0
            );
        }
    }

    fn time_axis(&self, out: &mut String, width: Width, x: Scale, bottom: f64) {
        let right = width.units() - RIGHT;
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right}\"/>"
        );
        let count = if width == Width::Wide { 10 } else { 5 };
        for tick in x.ticks(count) {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x.at(tick),
                bottom + 16.0,
                crate::number::number(tick)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            bottom + 33.0,
            escape(self.axis)
        );
    }

    fn greatest(&self) -> f64 {
        let shares = self
            .panels
            .iter()
            .flat_map(|p| p.windows.iter().map(|w| w.2));
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
fn draw_windows(out: &mut String, panel: &Panel, x: Scale, y: Scale, series: usize) {
    let (mut line, mut area) = (String::new(), String::new());
    let zero = y.at(0.0);
    let mut end = f64::NEG_INFINITY;
    for &(from, to, share) in &panel.windows {
        let (left, right, at) = (x.at(from), x.at(to), y.at(share));
        let joined = left - end < 8.0;
        let pen = if joined { 'L' } else { 'M' };
        let start = if joined { end } else { left };
        let _ = write!(line, "{pen}{start:.1} {at:.1}H{right:.1}");
        let _ = write!(area, "M{start:.1} {zero:.1}V{at:.1}H{right:.1}V{zero:.1}Z");
        end = right;
    }
    let _ = writeln!(
        out,
        "<path class=\"area s{series}\" d=\"{area}\"/><path class=\"line s{series}\" d=\"{line}\"/>"
    );
}
