//! Charts as inline SVG. Colours come from the page's style, so that charts
//! follow light, dark and print. Each chart is drawn twice, for wide and for
//! narrow windows, so that letters keep their size.

mod bars;
mod course;
mod percentiles;
mod scale;
mod scatter;
mod timeline;

use std::fmt::{Arguments, Write as _};

use super::escape;
use scale::Scale;

pub use bars::{Bar, bars, reach};
pub use course::{Column, Series, course};
pub use percentiles::{Distribution, percentiles};
pub use scatter::{Mark, scatter};
pub use timeline::{Band, Panel, Timeline};

/// Colours of series that the page's style has, as many as the most arms of an experiment.
const COLOURS: usize = 10;

/// Width of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// For windows above 600 pixels.
    Wide,
    /// For telephones.
    Narrow,
}

impl Width {
    /// What is for this width, of what is for wide and narrow.
    const fn of<T: Copy>(self, [wide, narrow]: [T; 2]) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }

    /// Units of the drawing, about pixels.
    pub(crate) const fn units(self) -> f64 {
        self.of([820.0, 372.0])
    }
}

/// Both drawings of a chart, of which `draw` gives height and content, with a description for
/// those who cannot see it.
fn figure(description: &str, draw: impl Fn(Width) -> (f64, Drawing)) -> String {
    let description = escape(description);
    let drawings = [Width::Wide, Width::Narrow].map(|width| {
        let (height, Drawing(body)) = draw(width);
        let (class, units) = (width.of(["wide", "narrow"]), width.units());
        format!(
            "<div class=\"{class}\"><svg viewBox=\"0 0 {units} {height:.0}\" role=\"img\" \
             aria-label=\"{description}\">\n{body}</svg></div>\n"
        )
    });
    format!("<figure>\n{}</figure>\n", drawings.concat())
}

/// Elements of a drawing. Writing to it cannot fail.
#[derive(Debug, Default)]
struct Drawing(String);

impl Drawing {
    fn path(&mut self, class: &str, d: Arguments<'_>) {
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{d}\"/>");
    }

    /// Text that begins at a place, or with an `anchor` of `middle` or `end` stands there.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let anchor = match anchor {
            "" => String::new(),
            anchor => format!(" text-anchor=\"{anchor}\""),
        };
        let text = escape(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{text}</text>"
        );
    }

    /// A dot, with the text of its tooltip.
    fn dot(&mut self, series: usize, (x, y): (f64, f64), radius: f64, title: &str) {
        let series = series % COLOURS;
        let dot =
            format!("circle class=\"dot s{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"");
        let _ = match title {
            "" => writeln!(self.0, "<{dot}/>"),
            title => writeln!(self.0, "<{dot}><title>{}</title></circle>", escape(title)),
        };
    }

    /// A shaded rectangle between two places across, with the text of its tooltip.
    fn band(&mut self, (from, to): (f64, f64), (top, bottom): (f64, f64), title: &str) {
        let (width, height) = (to - from, bottom - top);
        let end = match title {
            "" => "/>".to_owned(),
            title => format!("><title>{}</title></rect>", escape(title)),
        };
        let _ = writeln!(
            self.0,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"{end}"
        );
    }

    /// Lines across at the round values of an upright axis, with their labels.
    fn rows(
        &mut self,
        y: Scale,
        (left, right): (f64, f64),
        count: usize,
        label: impl Fn(f64) -> String,
    ) {
        for tick in y.ticks(count) {
            let at = y.at(tick);
            self.path("grid", format_args!("M{left} {at:.1}H{right:.1}"));
            self.text((left - 6.0, at + 4.0), "end", &label(tick));
        }
    }

    /// Upright lines at places, with their labels below.
    fn columns(
        &mut self,
        places: impl IntoIterator<Item = (f64, String)>,
        (top, bottom): (f64, f64),
    ) {
        for (at, label) in places {
            self.path("grid", format_args!("M{at:.1} {top}V{bottom:.1}"));
            self.text((at, bottom + 16.0), "middle", &label);
        }
    }
}

/// A line through places, from the first to the last; `true` begins it anew there.
fn line(places: impl IntoIterator<Item = ((f64, f64), bool)>) -> String {
    let mut path = String::new();
    for ((x, y), begins) in places {
        let pen = if begins || path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{pen}{x:.1} {y:.1}");
    }
    path
}

/// A legend of bars in the order of their colours.
pub fn legend(names: &[&str]) -> String {
    legend_of(names.iter().copied().enumerate(), |colour| {
        format!(
            "<path class=\"area s{colour}\" d=\"M0 0H30V10H0Z\"/>\
             <path class=\"line s{colour}\" d=\"M0 5H30\"/>"
        )
    })
}

/// A legend of lines, each by the number of its colour.
fn legend_of_lines<'a>(series: impl Iterator<Item = (usize, &'a str)>) -> String {
    legend_of(series, |colour| {
        format!("<path class=\"line dash s{colour}\" d=\"M0 5H30\"/>")
    })
}

/// A legend with a sample of each series, as `draw` gives it for a colour.
fn legend_of<'a>(
    series: impl Iterator<Item = (usize, &'a str)>,
    draw: impl Fn(usize) -> String,
) -> String {
    let items = series.map(|(index, name)| {
        let (sample, name) = (draw(index % COLOURS), escape(name));
        format!("<span><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\">{sample}</svg>{name}</span>")
    });
    let items: String = items.collect();
    format!("<div class=\"legend\">{items}</div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Statistic};

    #[test]
    fn a_legend_looks_like_what_it_is_of() {
        let bars = legend(&["a", "b"]);
        assert!(
            bars.contains("class=\"area s1\"") && !bars.contains("dash"),
            "{bars}"
        );
        let lines = legend_of_lines([(1, "b")].into_iter());
        assert!(lines.contains("class=\"line dash s1\""), "{lines}");
        // As they are drawn.
        let figure = Figure::bare("", "us", 2.0, Statistic::Median, 1);
        let bar = Bar {
            label: "b".into(),
            figure,
            series: 1,
        };
        let drawn = super::bars(&[bar], "us", None, "x");
        assert!(
            drawn.contains("class=\"area s1\"") && !drawn.contains("dash"),
            "{drawn}"
        );
        let series = Distribution::of(1, &[1.0, 2.0]);
        let drawn = percentiles(&["a", "b"], &Vec::from_iter(series), "x");
        assert_eq!(
            drawn.matches("class=\"line dash s1\"").count(),
            3,
            "{drawn}"
        );
    }

    #[test]
    fn every_colour_is_a_lines_and_a_dots_in_the_pages_style() {
        let style = include_str!("../style.css");
        for index in 0..COLOURS {
            for rule in [
                format!("svg .s{index}{{stroke:"),
                format!("svg .dot.s{index}{{fill:"),
            ] {
                assert!(style.contains(&rule), "{rule}");
            }
        }
    }
}
