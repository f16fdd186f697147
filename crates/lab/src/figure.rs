//! Figures: named values with what is known of their error, gathered from samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_stats::{
    Estimated, Interval, count_interval, difference, mean_interval, quantile_interval, signed_rank,
};

use crate::metric::{Metric, of_figure, unit_now};
use crate::number::number;

/// One figure of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Figure {
    /// Name; the arm, if any, after a dot.
    pub name: String,
    /// Unit of value, low and high.
    pub unit: String,
    /// The figure itself, by its statistic.
    pub value: f64,
    /// Lower end of its interval or range.
    pub low: Option<f64>,
    /// Upper end of its interval or range.
    pub high: Option<f64>,
    /// What the two ends are.
    pub spread: Spread,
    /// How the value follows from the samples.
    pub statistic: Statistic,
    /// Samples: of what was repeated, such as booted machines or runs.
    pub n: usize,
}

/// What the two ends around a figure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// There are none: one sample says nothing about its error.
    None,
    /// Least and greatest sample: too few for an interval. Of a model: what the ends of its
    /// inputs' intervals give.
    Range,
    /// A 95 % confidence interval.
    Interval,
}

/// How a figure follows from its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The median.
    Median,
    /// The quantile that the name says; of several machines the median of theirs.
    Quantile,
    /// The mean of the fastest samples.
    MeanOfFastest,
    /// Mean over mean.
    Ratio,
    /// The middle of ratios in pairs of runs.
    PairedRatio,
    /// A coefficient of a fitted line.
    Fit,
    /// Events over time.
    Rate,
    /// A part of a whole.
    Share,
    /// What a model says, not a measurement.
    Model,
    /// Known without error: the same at each measurement.
    Exact,
}

impl Statistic {
    /// In words, for reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Quantile => "quantile",
            Self::MeanOfFastest => "mean of the fastest",
            Self::Ratio => "ratio of means",
            Self::PairedRatio => "ratio in pairs",
            Self::Fit => "fit",
            Self::Rate => "rate",
            Self::Share => "share",
            Self::Model => "model",
            Self::Exact => "exact",
        }
    }
}

/// A figure as any version wrote it: the first ones gave one sample an interval of no width.
#[derive(Deserialize)]
struct Stored {
    name: String,
    unit: String,
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    spread: Option<Spread>,
    statistic: Option<Statistic>,
    n: usize,
}

impl From<Stored> for Figure {
    fn from(stored: Stored) -> Self {
        let spread = stored.spread.unwrap_or(match stored.n {
            0 | 1 => Spread::None,
            2..6 => Spread::Range,
            _ => Spread::Interval,
        });
        let ends = stored
            .low
            .zip(stored.high)
            .filter(|_| spread != Spread::None);
        Self {
            unit: unit_now(&stored.name, stored.unit),
            name: stored.name,
            value: stored.value,
            low: ends.map(|ends| ends.0),
            high: ends.map(|ends| ends.1),
            spread: if ends.is_some() { spread } else { Spread::None },
            statistic: stored.statistic.unwrap_or(Statistic::Median),
            n: stored.n,
        }
    }
}

impl Figure {
    /// A figure without ends.
    pub fn bare(name: &str, unit: &str, value: f64, statistic: Statistic, n: usize) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            value,
            low: None,
            high: None,
            spread: Spread::None,
            statistic,
            n,
        }
    }

    /// With the 95 % interval, if there is one.
    pub fn with_interval(self, interval: Option<Interval>) -> Self {
        match interval {
            Some(Interval { low, high }) => Self {
                low: Some(low),
                high: Some(high),
                spread: Spread::Interval,
                ..self
            },
            None => self,
        }
    }

    /// With the interval, else with the range of the samples, of which there are several.
    fn with_spread(self, interval: Option<Interval>, sorted: &[f64]) -> Self {
        if interval.is_some() || sorted.len() < 2 {
            return self.with_interval(interval);
        }
        Self {
            low: sorted.first().copied(),
            high: sorted.last().copied(),
            spread: Spread::Range,
            ..self
        }
    }

    /// Both ends, of an interval or a range.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Both ends of the 95 % interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.ends().filter(|_| self.spread == Spread::Interval)
    }

    /// What the value is known within, for a verdict: its interval, and no width for what is exact.
    /// Equal samples of a stepped time say no more than their step, so they have its width.
    pub(crate) fn known_within(&self) -> Option<(f64, f64)> {
        let (low, high) = self.exactly().or(self.interval())?;
        Some(if self.is_one_step() {
            (low.min(low / STEP), high.max(high * STEP))
        } else {
            (low, high)
        })
    }

    /// The value with its interval on the scale of `map`; `None` where there is no interval, or one
    /// that is a step alone: a certain change would be made of two neighbouring ones. What is exact
    /// has one of no width.
    pub(crate) fn estimated(&self, map: fn(f64) -> f64) -> Option<Estimated> {
        let (low, high) = self.exactly().or(self.interval())?;
        (!self.is_one_step()).then(|| Estimated {
            value: map(self.value),
            interval: Interval {
                low: map(low),
                high: map(high),
            },
            n: self.n,
        })
    }

    /// This over another figure, which is of separate machines, with the interval that follows from
    /// both; none where one of them has none.
    pub(crate) fn over(&self, under: &Self) -> Self {
        let logs = under.estimated(f64::ln).zip(self.estimated(f64::ln));
        let ends = logs.and_then(|(under, over)| Some(difference(under, over)?.interval));
        self.of_two(under, self.value / under.value)
            .with_interval(ends.map(|ends| Interval {
                low: ends.low.exp(),
                high: ends.high.exp(),
            }))
    }

    /// This less another figure, in the same way.
    pub(crate) fn less(&self, other: &Self) -> Self {
        let both = other.estimated(|v| v).zip(self.estimated(|v| v));
        let ends = both.and_then(|(other, this)| Some(difference(other, this)?.interval));
        self.of_two(other, self.value - other.value)
            .with_interval(ends)
    }

    /// What is computed of two figures, without an interval.
    fn of_two(&self, other: &Self, value: f64) -> Self {
        Self::bare("", "", value, Statistic::Ratio, self.n.min(other.n))
    }

    /// Both ends of what is known without error.
    fn exactly(&self) -> Option<(f64, f64)> {
        let exact = self.statistic == Statistic::Exact;
        exact.then_some((self.value, self.value))
    }

    /// Whether all samples are one step of what is measured in steps, as times are in buckets of a
    /// histogram, and ratios of such times. Counts have no steps.
    pub(crate) fn is_one_step(&self) -> bool {
        let is_equal = self.interval().is_some_and(|(low, high)| low == high);
        let is_ratio = matches!(self.statistic, Statistic::Ratio | Statistic::PairedRatio);
        is_equal && (is_ratio || TIMES.contains(&self.unit.as_str()))
    }

    /// The ends in words: `0.9 .. 1.1`, `0.9 .. 1.1 range`, `-`.
    pub fn ends_text(&self) -> String {
        let Some((low, high)) = self.ends() else {
            return "-".to_owned();
        };
        let range = match self.spread {
            Spread::Range => " range",
            Spread::None | Spread::Interval => "",
        };
        format!("{} .. {}{range}", number(low), number(high))
    }

    /// Value and ends: `1.04 (0.9 .. 1.2)`; `1.04` alone where there are none.
    pub fn text(&self) -> String {
        match self.ends() {
            Some(_) => format!("{} ({})", number(self.value), self.ends_text()),
            None => number(self.value),
        }
    }

    /// Value, low and high times `factor`, in another unit.
    pub fn scaled(&self, factor: f64, unit: &str) -> Self {
        Self {
            unit: unit.to_owned(),
            value: self.value * factor,
            low: self.low.map(|low| low * factor),
            high: self.high.map(|high| high * factor),
            ..self.clone()
        }
    }
}

/// The widest step of the times that guests keep in histograms (`guests/blk/src/histogram.rs`;
/// earlier ones had 64 buckets to a power of two), as a factor.
const STEP: f64 = 1.0 + 1.0 / 64.0;
/// Units of times.
const TIMES: [&str; 5] = ["ns", "us", "ms", "s", "cycles"];

/// Samples beyond a quantile that make it worth stating.
const BEYOND: f64 = 10.0;

/// A figure by its name, if it is there.
pub fn find<'a>(figures: &'a [Figure], name: &str) -> Option<&'a Figure> {
    figures.iter().find(|f| f.name == name)
}

/// Value of a figure, if it is there.
pub fn value(figures: &[Figure], name: &str) -> Option<f64> {
    find(figures, name).map(|f| f.value)
}

/// Samples by figure, in the order in which the figures first came.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The round that samples come from.
    round: usize,
    order: Vec<String>,
    series: BTreeMap<String, Series>,
}

#[derive(Clone, Debug)]
struct Series {
    unit: &'static str,
    values: Vec<f64>,
    /// The round of each value.
    rounds: Vec<usize>,
}

impl Series {
    /// Values by their round, and by their place within it.
    fn by_round(&self) -> BTreeMap<(usize, usize), f64> {
        let mut seen = BTreeMap::new();
        let values = self.rounds.iter().zip(&self.values);
        let keyed = values.map(|(round, value)| {
            let place = seen.entry(*round).or_insert(0);
            *place += 1;
            ((*round, *place), *value)
        });
        keyed.collect()
    }
}

impl Samples {
    /// Samples come from `round` from now on.
    pub fn enter_round(&mut self, round: usize) {
        self.round = round;
    }

    /// Adds a sample to the figure `name`. A value that is not finite is dropped.
    pub fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        if !value.is_finite() {
            return;
        }
        if !self.series.contains_key(name) {
            self.order.push(name.to_owned());
        }
        let empty = || Series {
            unit,
            values: Vec::new(),
            rounds: Vec::new(),
        };
        let series = self.series.entry(name.to_owned()).or_insert_with(empty);
        series.values.push(value);
        series.rounds.push(self.round);
    }

    /// Adds a sample of a metric to an arm's figure.
    pub fn put(&mut self, metric: Metric, arm: &str, value: f64) {
        self.add(&metric.of(arm), metric.unit, value);
    }

    /// Adds a sample to a figure of one of these metrics; of others none.
    pub fn add_of(&mut self, metrics: &[Metric], figure: &str, value: f64) {
        if let Some(metric) = of_figure(metrics, figure) {
            self.add(figure, metric.unit, value);
        }
    }

    /// The samples of a figure; none if there is no such figure.
    pub fn values(&self, name: &str) -> &[f64] {
        self.series.get(name).map_or(&[], |series| &series.values)
    }

    /// Samples of two arms of a figure in the rounds that both have; those that are not
    /// positive are left out.
    pub fn pairs(&self, name: &str, arms: [&str; 2]) -> Vec<(f64, f64)> {
        let [first, second] = arms.map(|arm| {
            let series = self.series.get(&format!("{name}.{arm}"));
            series.map(Series::by_round).unwrap_or_default()
        });
        let both = |(key, a): (&(usize, usize), &f64)| Some((*a, *second.get(key)?));
        let pairs = first.iter().filter_map(both);
        pairs.filter(|(a, b)| *a > 0.0 && *b > 0.0).collect()
    }

    /// The first arm over the second in each of these pairs.
    pub fn ratios(&self, name: &str, arms: [&str; 2]) -> Vec<f64> {
        self.pairs(name, arms).iter().map(|(a, b)| a / b).collect()
    }

    /// A figure for each series: its median with interval.
    pub fn figures(&self) -> Vec<Figure> {
        let medians = self.order.iter().filter_map(|name| {
            let series = self.series.get(name)?;
            median(name, series.unit, &series.values)
        });
        medians.collect()
    }
}

/// The median of `samples` with its interval, below six samples their range; `None` if there
/// are none.
pub fn median(name: &str, unit: &str, samples: &[f64]) -> Option<Figure> {
    let sorted = tare_stats::sorted(samples)?;
    let summary = tare_stats::summarize(&sorted)?;
    let figure = Figure::bare(name, unit, summary.median, Statistic::Median, summary.n);
    Some(figure.with_spread(summary.interval, &sorted))
}

/// The middle of ratios of two arms in pairs of runs that came one after the other, with the
/// interval by signed ranks on the logarithm; below six pairs their range.
pub fn paired_ratio(name: &str, unit: &str, ratios: &[f64]) -> Option<Figure> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let test = signed_rank(&logs)?;
    let sorted = tare_stats::sorted(ratios)?;
    let figure = Figure::bare(name, unit, test.shift.exp(), Statistic::PairedRatio, test.n);
    let interval = test.interval.map(|it| Interval {
        low: it.low.exp(),
        high: it.high.exp(),
    });
    Some(figure.with_spread(interval, &sorted))
}

/// What is the same at each measurement, such as a size: the last value. Values that differ
/// are samples, of which it is the median.
pub fn exact(name: &str, unit: &str, samples: &[f64]) -> Option<Figure> {
    let last = *samples.last()?;
    if samples.iter().any(|sample| *sample != last) {
        return median(name, unit, samples);
    }
    Some(Figure::bare(
        name,
        unit,
        last,
        Statistic::Exact,
        samples.len(),
    ))
}

/// Makes the figures exact whose names are `known` to have no error, if their samples agree.
pub fn without_error(figures: &mut [Figure], samples: &Samples, known: impl Fn(&str) -> bool) {
    for figure in figures.iter_mut().filter(|figure| known(&figure.name)) {
        if let Some(exact) = exact(&figure.name, &figure.unit, samples.values(&figure.name)) {
            *figure = exact;
        }
    }
}

/// The `q`-quantile of independent samples with its interval. `None` where they are too few
/// to bound it from both sides; the extremes (`q` 0 and 1) have no interval.
pub(crate) fn quantile(name: &str, unit: &str, samples: &[f64], q: f64) -> Option<Figure> {
    let sorted = tare_stats::sorted(samples).filter(|sorted| !sorted.is_empty())?;
    let interval = quantile_interval(&sorted, q);
    if interval.is_none() && q > 0.5 && q < 1.0 {
        return None;
    }
    let value = tare_stats::quantile(&sorted, q);
    let figure = Figure::bare(name, unit, value, Statistic::Quantile, sorted.len());
    Some(figure.with_interval(interval))
}

/// Samples of one machine that its `q`-quantile needs: ten beyond it. From fewer it is too low:
/// the 99th percentile of 100 exponential samples lies 9 % below the true one at the mean, that
/// of 1,000 lies 1 % below.
pub fn needed(q: f64) -> usize {
    (BEYOND / (1.0 - q).min(q)).round() as usize
}

/// The `q`-quantile of samples that come in groups, one of each machine that was booted: the
/// median of the groups' quantiles, since samples of one machine are not independent. `n` and
/// the interval are of groups; the extremes are of all samples. Groups with fewer than
/// [`needed`] samples for a quantile above the median do not count; `None` if none is left.
pub fn grouped_quantile(name: &str, unit: &str, groups: &[Vec<f64>], q: f64) -> Option<Figure> {
    if q <= 0.0 || q >= 1.0 {
        let figure = quantile(name, unit, &groups.concat(), q)?;
        return Some(Figure {
            n: groups.len(),
            ..figure
        });
    }
    let least = if q > 0.5 { needed(q) } else { 1 };
    let long = groups.iter().filter(|group| group.len() >= least);
    let sorted = long.filter_map(|group| tare_stats::sorted(group));
    let each: Vec<f64> = sorted
        .map(|group| tare_stats::quantile(&group, q))
        .collect();
    let figure = median(name, unit, &each)?;
    Some(Figure {
        statistic: Statistic::Quantile,
        ..figure
    })
}

/// Events a second from counts in windows of time: all events over all time. The interval is
/// that of a Poisson count (Garwood 1936) or, where windows differ more than such counts do,
/// Student's over windows; `n` is windows. Several of one machine are to be one.
pub fn rate(name: &str, unit: &str, windows: &[(f64, f64)]) -> Option<Figure> {
    let count: f64 = windows.iter().map(|window| window.0).sum();
    let time: f64 = windows.iter().map(|window| window.1).sum();
    if time <= 0.0 {
        return None;
    }
    let value = count / time;
    let Interval { low, high } = count_interval(count.round() as u64)?;
    let (mut low, mut high) = (low / time, high / time);
    let each: Vec<f64> = windows.iter().map(|(count, time)| count / time).collect();
    if let Some(wide) = mean_interval(&each).filter(|_| count > 0.0) {
        low = low.min(wide.low.max(0.0));
        high = high.max(wide.high);
    }
    let figure = Figure::bare(name, unit, value, Statistic::Rate, windows.len());
    Some(figure.with_interval(Some(Interval { low, high })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_within_its_interval() {
        let mut samples = Samples::default();
        for value in [3.0, 1.0, 2.0, 9.0, 2.5, 2.6, f64::NAN] {
            samples.add("b", "us", value);
        }
        samples.add("a", "%", 1.0);
        samples.add("a", "%", 2.0);
        let figures = samples.figures();
        assert_eq!(figures[0].name, "b");
        assert_eq!((figures[0].value, figures[0].n), (2.55, 6));
        let (low, high) = figures[0].interval().unwrap();
        assert!((1.0..2.0).contains(&low) && (3.0..=9.0).contains(&high));
        assert_eq!(figures[1].spread, Spread::Range);
        assert_eq!(figures[1].ends(), Some((1.0, 2.0)));
        assert_eq!(figures[1].interval(), None);
    }

    #[test]
    fn one_sample_has_no_interval_in_json_nor_in_words() {
        let figure = median("x", "us", &[4.0]).unwrap();
        let json = serde_json::to_value(&figure).unwrap();
        assert!(json["low"].is_null() && json["high"].is_null(), "{json}");
        assert_eq!(json["spread"], "none");
        assert_eq!(
            (figure.ends_text(), figure.text()),
            ("-".into(), "4".into())
        );
        let few = median("x", "us", &[4.0, 5.0]).unwrap();
        assert_eq!(few.ends_text(), "4 .. 5 range");
    }

    #[test]
    fn figures_of_earlier_versions_lose_intervals_of_one_sample() {
        let old = r#"{"name":"x","unit":"s","value":2.0,"low":2.0,"high":2.0,"n":1}"#;
        let figure: Figure = serde_json::from_str(old).unwrap();
        assert_eq!((figure.ends(), figure.spread), (None, Spread::None));
        let again: Figure = serde_json::from_str(&serde_json::to_string(&figure).unwrap()).unwrap();
        assert_eq!(again, figure);
        let old = r#"{"name":"x","unit":"s","value":2.0,"low":1.0,"high":3.0,"n":3}"#;
        let figure: Figure = serde_json::from_str(old).unwrap();
        assert_eq!(figure.spread, Spread::Range);
    }

    #[test]
    fn units_of_earlier_versions_have_the_name_of_today() {
        for (name, then, now) in [
            ("image_bytes.debian", "B", "bytes"),
            ("options.tailored", "", "1"),
            ("exits_per_request", "exits", "1"),
            ("instructions_per_io.cif1.off", "1", "insns"),
            ("interrupts_per_io.cif1.off", "1", "1"),
            ("cpu", "pct", "%"),
            ("ratio.ffmpeg.vm.vanilla.1", "x", "x"),
        ] {
            let old = format!(r#"{{"name":"{name}","unit":"{then}","value":2.0,"n":1}}"#);
            let figure: Figure = serde_json::from_str(&old).unwrap();
            assert_eq!(figure.unit, now, "{name}");
        }
    }

    #[test]
    fn a_quantile_lies_within_its_interval() {
        let samples: Vec<f64> = (0..500).map(f64::from).collect();
        let figure = quantile("p99", "us", &samples, 0.99).unwrap();
        let (low, high) = figure.interval().unwrap();
        assert!(low <= figure.value && figure.value <= high);
        assert!((figure.value - 494.01).abs() < 0.1, "{figure:?}");
        assert_eq!(quantile("p99", "us", &samples[..84], 0.99), None);
        assert_eq!(quantile("max", "us", &samples, 1.0).unwrap().ends(), None);
    }

    #[test]
    fn samples_of_one_machine_are_one_sample_of_machines() {
        let machine =
            |offset: f64| -> Vec<f64> { (0..100).map(|i| offset + f64::from(i)).collect() };
        let two = [machine(0.0), machine(50.0)];
        let p50 = grouped_quantile("p50", "us", &two, 0.5).unwrap();
        assert_eq!((p50.value, p50.n, p50.spread), (74.5, 2, Spread::Range));
        let one = grouped_quantile("p50", "us", &two[..1], 0.5).unwrap();
        assert_eq!((one.n, one.ends()), (1, None));
        // Ten samples of each machine beyond the quantile, not of all machines together.
        assert_eq!((needed(0.9), needed(0.99)), (100, 1000));
        assert!(grouped_quantile("p90", "us", &two, 0.9).is_some());
        let twenty = vec![machine(0.0); 20];
        assert_eq!(grouped_quantile("p99", "us", &twenty, 0.99), None);
        let short = [machine(0.0), vec![1.0; 99]];
        assert_eq!(grouped_quantile("p90", "us", &short, 0.9).unwrap().n, 1);
        let max = grouped_quantile("max", "us", &two, 1.0).unwrap();
        assert_eq!((max.value, max.ends()), (149.0, None));
    }

    #[test]
    fn no_event_in_a_short_time_bounds_the_rate_by_that_time() {
        // Zero events in 2.4 s: up to 3.69 / 2.4 a second.
        let none = rate("exits", "1/s", &[(0.0, 0.4); 6]).unwrap();
        let (low, high) = none.interval().unwrap();
        assert_eq!((none.value, low, none.n), (0.0, 0.0, 6));
        assert!((high - 1.537).abs() < 0.001, "{high}");
        let bursts = rate("exits", "1/s", &[(0.0, 1.0), (12.0, 1.0), (0.0, 1.0)]).unwrap();
        assert!(
            bursts.interval().unwrap().1 > 20.0,
            "windows differ: {bursts:?}"
        );
        assert_eq!(rate("exits", "1/s", &[]), None);
    }

    #[test]
    fn ratios_of_pairs_have_the_interval_of_signed_ranks() {
        let ratios = [0.98, 1.01, 1.0, 1.02, 0.99, 1.03];
        let figure = paired_ratio("x", "1", &ratios).unwrap();
        assert_eq!((figure.n, figure.statistic), (6, Statistic::PairedRatio));
        let (low, high) = figure.interval().unwrap();
        assert!(low < figure.value && figure.value < high, "{figure:?}");
        let few = paired_ratio("x", "1", &ratios[..3]).unwrap();
        assert_eq!(
            (few.spread, few.ends()),
            (Spread::Range, Some((0.98, 1.01)))
        );
        assert_eq!(paired_ratio("x", "1", &[0.0]), None);
        let mut samples = Samples::default();
        for (arm, values) in [("a", [1.0, 0.0, 2.0]), ("b", [3.0, 1.0, 4.0])] {
            for value in values {
                samples.add(&format!("x.{arm}"), "us", value);
            }
        }
        assert_eq!(samples.pairs("x", ["a", "b"]), [(1.0, 3.0), (2.0, 4.0)]);
    }

    #[test]
    fn a_round_that_one_arm_lacks_moves_no_other_pair() {
        let mut samples = Samples::default();
        for round in 0..3 {
            samples.enter_round(round);
            let value = (round + 1) as f64;
            samples.add("x.a", "us", value);
            if round != 1 {
                samples.add("x.b", "us", 10.0 * value);
            }
        }
        assert_eq!(samples.pairs("x", ["a", "b"]), [(1.0, 10.0), (3.0, 30.0)]);
    }

    #[test]
    fn what_never_differs_is_exact() {
        let size = exact("bytes", "bytes", &[7.0, 7.0, 7.0]).unwrap();
        assert_eq!(
            (size.statistic, size.ends(), size.n),
            (Statistic::Exact, None, 3)
        );
        let size = exact("bytes", "bytes", &[7.0, 8.0]).unwrap();
        assert_eq!(size.spread, Spread::Range);
    }

    #[test]
    fn no_samples_make_no_figure() {
        assert_eq!(quantile("x", "us", &[], 0.5), None);
        assert_eq!(median("x", "us", &[]), None);
        assert_eq!(grouped_quantile("x", "us", &[], 0.5), None);
        assert_eq!(exact("x", "us", &[]), None);
    }
}
