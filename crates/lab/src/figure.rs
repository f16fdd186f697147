//! Figures: named medians with intervals, gathered from samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The normal distribution's upper 2.5 % point.
const Z: f64 = 1.959_964;

/// One figure of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Name; the arm, if any, after a dot.
    pub(crate) name: String,
    /// Unit of value, low and high.
    pub(crate) unit: String,
    /// Median, or the quantile that the name says.
    pub(crate) value: f64,
    /// Lower end of its 95 % interval.
    pub(crate) low: f64,
    /// Upper end of its 95 % interval.
    pub(crate) high: f64,
    /// Samples.
    pub(crate) n: usize,
}

/// A figure by its name, if it is there.
pub(crate) fn find<'a>(figures: &'a [Figure], name: &str) -> Option<&'a Figure> {
    figures.iter().find(|f| f.name == name)
}

/// Value of a figure, if it is there.
pub(crate) fn value(figures: &[Figure], name: &str) -> Option<f64> {
    find(figures, name).map(|f| f.value)
}

/// Samples by figure, in the order in which the figures first came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    order: Vec<String>,
    series: BTreeMap<String, Series>,
}

#[derive(Clone, Debug)]
struct Series {
    unit: &'static str,
    values: Vec<f64>,
}

impl Samples {
    /// Adds a sample to the figure `name`. A value that is not finite is dropped.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        if !value.is_finite() {
            return;
        }
        if !self.series.contains_key(name) {
            self.order.push(name.to_owned());
        }
        let empty = || Series {
            unit,
            values: Vec::new(),
        };
        let series = self.series.entry(name.to_owned()).or_insert_with(empty);
        series.values.push(value);
    }

    /// The samples of a figure; none if there is no such figure.
    pub(crate) fn values(&self, name: &str) -> &[f64] {
        self.series.get(name).map_or(&[], |series| &series.values)
    }

    /// A figure for each series: its median with interval.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let medians = self.order.iter().filter_map(|name| {
            let series = self.series.get(name)?;
            median(name, series.unit, &series.values)
        });
        medians.collect()
    }
}

/// The median of `samples`; `None` if there are none.
pub(crate) fn median(name: &str, unit: &str, samples: &[f64]) -> Option<Figure> {
    let summary = tare_stats::summarize(samples)?;
    Some(Figure {
        name: name.to_owned(),
        unit: unit.to_owned(),
        value: summary.median,
        low: summary.low,
        high: summary.high,
        n: samples.len(),
    })
}

/// The `q`-quantile of `samples`. Its interval is between order statistics whose
/// ranks are `n q` and 1.96 standard deviations of a binomial around it (Conover,
/// *Practical Nonparametric Statistics*, 3.2), at most the range.
pub(crate) fn quantile(name: &str, unit: &str, samples: &[f64], q: f64) -> Option<Figure> {
    let sorted = tare_stats::sorted(samples)?;
    let last = sorted.len().checked_sub(1)?;
    let middle = sorted.len() as f64 * q;
    let half = Z * (middle * (1.0 - q)).sqrt();
    let rank = |rank: f64| (rank.max(0.0) as usize).min(last);
    Some(Figure {
        name: name.to_owned(),
        unit: unit.to_owned(),
        value: tare_stats::quantile(&sorted, q),
        low: sorted[rank((middle - half).floor() - 1.0)],
        high: sorted[rank((middle + half).ceil())],
        n: sorted.len(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_within_its_interval() {
        let mut samples = Samples::default();
        for value in [3.0, 1.0, 2.0, 9.0, 2.5, f64::NAN] {
            samples.add("b", "us", value);
        }
        samples.add("a", "pct", 1.0);
        let figures = samples.figures();
        assert_eq!(figures[0].name, "b");
        assert_eq!((figures[0].value, figures[0].n), (2.5, 5));
        assert_eq!((figures[0].low, figures[0].high), (1.0, 9.0));
        assert_eq!((figures[1].low, figures[1].high), (1.0, 1.0));
    }

    #[test]
    fn a_quantile_lies_within_its_interval() {
        let samples: Vec<f64> = (0..500).map(f64::from).collect();
        let figure = quantile("p99", "us", &samples, 0.99).unwrap();
        assert!(figure.low <= figure.value && figure.value <= figure.high);
        assert!((figure.value - 494.01).abs() < 0.1, "{figure:?}");
        assert_eq!((figure.low, figure.high), (489.0, 499.0));
    }

    #[test]
    fn no_samples_make_no_figure() {
        assert_eq!(quantile("x", "us", &[], 0.5), None);
        assert_eq!(median("x", "us", &[]), None);
    }
}
