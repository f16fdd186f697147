//! What is measured: a metric has a name, a unit, and a side that is better. A figure is a
//! metric, mostly of an arm: `NAME.ARM`.

use crate::figure::{self, Figure};

/// Which side is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Less: times, CPU, instructions, sizes.
    Less,
    /// More: rates of work done, gains.
    More,
    /// Neither: what describes a run, or is a trade-off.
    Neither,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: that of its figures before the first dot.
    pub name: &'static str,
    /// Unit of its figures.
    pub unit: &'static str,
    /// Which side is better.
    pub better: Direction,
}

impl Metric {
    /// One of which less is better.
    pub const fn less(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::Less;
        Self { name, unit, better }
    }

    /// One of which more is better.
    pub const fn more(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::More;
        Self { name, unit, better }
    }

    /// One that has no better side.
    pub const fn neither(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::Neither;
        Self { name, unit, better }
    }

    /// The name of its figure of an arm; an empty one is of no arm.
    pub fn of(&self, arm: &str) -> String {
        match arm {
            "" => self.name.to_owned(),
            arm => format!("{}.{arm}", self.name),
        }
    }

    /// Whether a figure of this name is one of its.
    pub fn is_of(&self, figure: &str) -> bool {
        figure.split('.').next() == Some(self.name)
    }

    /// Its figure of an arm, if it is there.
    pub fn find<'a>(&self, figures: &'a [Figure], arm: &str) -> Option<&'a Figure> {
        figure::find(figures, &self.of(arm))
    }

    /// The value of its figure of an arm, if it is there.
    pub fn value(&self, figures: &[Figure], arm: &str) -> Option<f64> {
        self.find(figures, arm).map(|figure| figure.value)
    }

    /// The median of an arm's samples, as [`figure::median`].
    pub fn median(&self, arm: &str, samples: &[f64]) -> Option<Figure> {
        figure::median(&self.of(arm), self.unit, samples)
    }

    /// A quantile of an arm's samples in groups, as [`figure::grouped_quantile`].
    pub fn quantile(&self, arm: &str, groups: &[Vec<f64>], q: f64) -> Option<Figure> {
        figure::grouped_quantile(&self.of(arm), self.unit, groups, q)
    }

    /// The middle of an arm's ratios in pairs, as [`figure::paired_ratio`].
    pub fn paired(&self, arm: &str, ratios: &[f64]) -> Option<Figure> {
        figure::paired_ratio(&self.of(arm), self.unit, ratios)
    }
}

/// Units of metrics, one name for each. Counts, ratios and shares of one are `1`; of instructions,
/// which are counted too, `insns`.
pub const UNITS: [&str; 12] = [
    "1", "%", "1/s", "Mbit/s", "ns", "us", "ms", "cycles", "insns", "bytes", "KiB", "MiB",
];

/// The name that a figure's unit has now: earlier versions had several for one.
pub(crate) fn unit_now(figure: &str, unit: String) -> String {
    let now = match unit.as_str() {
        "" | "exits" => "1",
        "B" => "bytes",
        "pct" => "%",
        "1" if figure.starts_with("instructions_per_") => "insns",
        _ => return unit,
    };
    now.to_owned()
}

/// The metric that a figure is of, if it is one of these.
pub fn of_figure(metrics: &[Metric], figure: &str) -> Option<Metric> {
    let mut metrics = metrics.iter();
    metrics.find(|metric| metric.is_of(figure)).copied()
}

/// Metrics of an experiment as constants, `NAME: better("name", "unit");`, and all of them as
/// `METRICS`.
#[macro_export]
macro_rules! metrics {
    ($($(#[$about:meta])* $name:ident: $better:ident($metric:literal, $unit:literal);)*) => {
        $($(#[$about])* pub(super) const $name: $crate::kit::Metric =
            $crate::kit::Metric::$better($metric, $unit);)*
        pub(crate) const METRICS: &[$crate::kit::Metric] = &[$($name),*];
    };
}
