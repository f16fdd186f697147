//! Figures of one kept run: `summary.json`, or medians of `raw.jsonl` where there is none.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// One figure with its interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Figure {
    pub value: f64,
    /// `None` where one sample gives no interval.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Samples behind it.
    pub n: u64,
    /// Whether the ends are an `interval` or a `range`; summaries of platforms do not say.
    #[serde(default)]
    pub spread: Option<String>,
    /// What the run says of its goal, if it has one.
    #[serde(skip)]
    pub goal: Option<Goal>,
}

/// A goal beside what the run says of it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Goal {
    /// The most or the least that the figure should be.
    #[serde(alias = "at_most", alias = "at_least")]
    pub limit: f64,
    /// `met`, `missed` or `undecided`.
    pub verdict: String,
}

/// Fewer samples give a range instead of an interval, as in `tare_lab::figure`.
const SAMPLES: u64 = 6;

impl Figure {
    /// Whether its ends are a range, not an interval.
    pub(crate) fn is_range(&self) -> bool {
        match self.spread.as_deref() {
            Some(spread) => spread == "range",
            None => self.n < SAMPLES,
        }
    }
}

/// Figures by name.
pub(crate) type Run = BTreeMap<String, Figure>;

#[derive(Deserialize)]
struct Summary {
    figures: Vec<Named>,
    #[serde(default)]
    goals: Vec<Judged>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(Deserialize)]
struct Judged {
    figure: String,
    #[serde(flatten)]
    goal: Goal,
}

/// Reads the run in `dir`.
pub(crate) fn load(dir: &Path) -> Result<Run> {
    let summary = dir.join("summary.json");
    if !summary.is_file() {
        let raw = dir.join("raw.jsonl");
        let text = fs::read_to_string(&raw);
        return medians(&text.with_context(|| format!("cannot read {}", raw.display()))?);
    }
    let text = fs::read_to_string(&summary)?;
    let summary: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a summary", summary.display()))?;
    Ok(run(summary))
}

fn run(summary: Summary) -> Run {
    let figures = summary.figures.into_iter();
    let mut run: Run = figures.map(|named| (named.name, named.figure)).collect();
    for Judged { figure, goal } in summary.goals {
        if let Some(figure) = run.get_mut(&figure) {
            figure.goal = Some(goal);
        }
    }
    run
}

/// Medians of each number by the record's text field, as `number.text`; the interval is the range.
fn medians(raw: &str) -> Result<Run> {
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in raw.lines() {
        let record: Map<String, Value> = serde_json::from_str(line).context("raw.jsonl")?;
        let arm = record.values().find_map(Value::as_str).unwrap_or_default();
        for (name, value) in &record {
            if let Some(value) = value.as_f64() {
                samples
                    .entry(format!("{name}.{arm}"))
                    .or_default()
                    .push(value);
            }
        }
    }
    Ok(samples
        .into_iter()
        .map(|(name, mut values)| {
            values.sort_by(f64::total_cmp);
            (name, summary(&values))
        })
        .collect())
}

/// Median and range of sorted samples, of which there is at least one.
fn summary(sorted: &[f64]) -> Figure {
    let middle = sorted.len() / 2;
    let value = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Figure {
        value,
        low: sorted.first().copied(),
        high: sorted.last().copied(),
        n: sorted.len() as u64,
        spread: Some("range".to_owned()),
        ..Figure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_a_summary_give_medians_by_arm() {
        let raw = "{\"monitor\": \"a\", \"kib\": 3}\n{\"monitor\": \"b\", \"kib\": 9}\n\
                   {\"monitor\": \"a\", \"kib\": 1}\n{\"monitor\": \"a\", \"kib\": 2}\n";
        let run = medians(raw).unwrap();
        assert_eq!(run["kib.a"].value, 2.0);
        assert_eq!(
            (run["kib.a"].low, run["kib.a"].high),
            (Some(1.0), Some(3.0))
        );
        assert_eq!((run["kib.b"].value, run["kib.b"].n), (9.0, 1));
    }

    #[test]
    fn a_figure_has_the_goal_that_the_run_judged() {
        let text = r#"{"figures": [{"name": "x", "value": 2.5, "low": null, "high": null, "n": 1},
                                   {"name": "y", "value": 2.5, "low": null, "high": null, "n": 1}],
                       "goals": [{"figure": "x", "at_least": 2.0, "verdict": "met"},
                                 {"figure": "z", "at_most": 2.0, "verdict": "missed"}]}"#;
        let run = run(serde_json::from_str(text).unwrap());
        let goal = run["x"].goal.clone().unwrap();
        assert_eq!((goal.limit, goal.verdict.as_str()), (2.0, "met"));
        assert_eq!(run["y"].goal, None);
    }

    #[test]
    fn a_summary_may_lack_intervals() {
        let text = r#"{"figures": [{"name": "x", "unit": "s", "value": 2.5, "low": null,
                       "high": null, "n": 1}]}"#;
        let summary: Summary = serde_json::from_str(text).unwrap();
        assert_eq!(summary.figures[0].figure.low, None);
    }
}
