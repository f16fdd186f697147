//! Charts as inline SVG. Colours come from the page's style, so that charts
//! follow light, dark and print. Each chart is drawn twice, for wide and for
//! narrow windows, so that letters keep their size.

mod bars;
pub(crate) mod history;
mod percentiles;
mod scale;
mod scatter;
mod timeline;

use std::fmt::Write as _;

use scale::Scale;

pub use bars::{Bar, bars, reach};
pub(crate) use percentiles::{Distribution, percentiles};
pub(crate) use scatter::{Mark, scatter};
pub(crate) use timeline::{Band, Panel, Timeline};

/// Colours of series that the page's style has, as many as the most arms of an experiment.
const COLOURS: usize = 8;

/// Width of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// For windows above 600 pixels.
    Wide,
    /// For telephones.
    Narrow,
}

impl Width {
    /// Units of the drawing, about pixels.
    pub(crate) const fn units(self) -> f64 {
        match self {
            Self::Wide => 820.0,
            Self::Narrow => 372.0,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// Both drawings of a chart with its description for those who cannot see it.
pub(crate) fn figure(description: &str, draw: impl Fn(Width) -> (f64, String)) -> String {
    let mut out = String::from("<figure>\n");
    for width in [Width::Wide, Width::Narrow] {
        let (height, body) = draw(width);
        out.push_str(&format!(
            "<div class=\"{}\"><svg viewBox=\"0 0 {} {height:.0}\" role=\"img\" \
             aria-label=\"{}\">\n{body}</svg></div>\n",
            width.class(),
            width.units(),
            super::escape(description),
        ));
    }
    out.push_str("</figure>\n");
    out
}

/// Lines across a drawing at the round values of its upright axis, with their labels.
fn upright_axis(
    out: &mut String,
    y: Scale,
    (left, right): (f64, f64),
    count: usize,
    label: impl Fn(f64) -> String,
) {
    for tick in y.ticks(count) {
        let (at, text) = (y.at(tick), label(tick));
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{left} {at:.1}H{right:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            left - 6.0,
            at + 4.0
        );
    }
}

/// A legend of series in the order of their colours.
pub fn legend(names: &[&str]) -> String {
    legend_of(names.iter().copied().enumerate())
}

/// A legend of series, each by the number of its colour.
fn legend_of<'a>(series: impl Iterator<Item = (usize, &'a str)>) -> String {
    let items = series.map(|(index, name)| {
        format!(
            "<span><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\">\
             <path class=\"line dash s{}\" d=\"M0 5H30\"/></svg>{}</span>",
            index % COLOURS,
            super::escape(name)
        )
    });
    format!(
        "<div class=\"legend\">{}</div>\n",
        items.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_is_a_lines_and_a_dots_in_the_pages_style() {
        let style = include_str!("../style.css");
        for index in 0..COLOURS {
            assert!(
                style.contains(&format!("svg .s{index}{{stroke:")),
                "{index}"
            );
            assert!(
                style.contains(&format!("svg .dot.s{index}{{fill:")),
                "{index}"
            );
        }
    }
}
