//! Two runs, figure by figure: `tare compare`.
//!
//! Runs are independent, so the interval of a ratio follows from both intervals, on a
//! logarithmic scale ([`tare_stats::difference`]). A run has tens of figures: among a hundred
//! that did not change some five have an interval without 1. So a change is one where the
//! p-value, adjusted for the number of figures compared (Benjamini and Hochberg 1995), is at
//! most 5 %.

mod page;
mod print;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;
use tare_host::printable::printable;
use tare_stats::{Difference, Interval, adjusted, difference};

use crate::depth::Depth;
use crate::experiment::{Entry, Experiment, better};
use crate::export::word;
use crate::figure::{Figure, Statistic, find};
use crate::metric::Direction;
use crate::stored_runs::{StoredRunError, summary};
use crate::summary::{Status, Summary, subject_of};

/// Of the changes that a comparison names, the share that may be chance.
const FALSE_SHARE: f64 = 0.05;

/// What two runs say of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The interval of the ratio holds 1, or both are the same.
    None,
    /// The interval does not hold 1, as some of this many figures do by chance.
    Chance,
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
    /// The values differ, and the figure has no better side.
    Differs,
    /// One of the figures has no interval.
    Undecided,
}

impl Change {
    const fn text(self) -> &'static str {
        match self {
            Self::None => "cannot be told apart",
            Self::Chance => "may be chance",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Differs => "differs",
            Self::Undecided => "no interval",
        }
    }
}

/// A figure in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// Value in the first run.
    pub before: f64,
    /// Value in the second.
    pub after: f64,
    /// The second over the first; `None` where one is zero or below.
    pub ratio: Option<f64>,
    /// Ends of the ratio's 95 % interval, of this figure alone.
    pub ratio_interval: Option<(f64, f64)>,
    /// Probability of such a difference by chance; `None` for what is exact or
    /// has no interval.
    pub p: Option<f64>,
    /// The same among all figures compared.
    pub p_adjusted: Option<f64>,
    /// What follows.
    pub change: Change,
    #[serde(skip)]
    texts: [String; 2],
    #[serde(skip)]
    direction: Direction,
    /// Ends of the second less the first.
    #[serde(skip)]
    shift: Option<Interval>,
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The experiment of both.
    pub experiment: String,
    /// Why the runs may not be comparable: a sentence each.
    pub warnings: Vec<String>,
    /// Figures that both have.
    pub figures: Vec<Row>,
    /// Figures that only one of them has.
    pub only_in_one: Vec<String>,
    /// How the second run ended.
    #[serde(skip)]
    ended: Status,
    /// That they are of different depths, if so: a sentence.
    #[serde(skip)]
    depths: Option<String>,
}

/// Why two runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// One of them cannot be read.
    #[error(transparent)]
    Run(#[from] StoredRunError),
    /// They are of different experiments.
    #[error("the runs are of {before} and {after}: only runs of one experiment compare")]
    Experiments {
        /// The first's.
        before: String,
        /// The second's.
        after: String,
    },
    /// They measured different things.
    #[error(
        "the runs measured {before} and {after}: only runs of one image or application compare"
    )]
    Subjects {
        /// What the first measured.
        before: String,
        /// What the second measured.
        after: String,
    },
    /// They have no figure in common.
    #[error("the runs have no figure in common")]
    Nothing,
}

/// A run that was kept: the `summary.json` of a run directory.
#[derive(Clone, Debug)]
pub struct KeptRun(Summary);

impl KeptRun {
    /// Reads the run in a directory, or a `summary.json` itself.
    pub fn read(path: &Path) -> Result<Self, CompareError> {
        let file = if path.is_dir() {
            path.join("summary.json")
        } else {
            path.to_owned()
        };
        Ok(Self(summary(&file)?))
    }

    /// The same, of a run that is to be compared with one that is planned.
    pub fn of(path: &Path, entry: &Entry, planned: &dyn Experiment) -> Result<Self, CompareError> {
        let run = Self::read(path)?;
        same_experiment(&run.0.experiment, entry.name)?;
        let subject = subject_of(&planned.plan());
        same_subject(run.0.subject.as_deref(), subject.as_deref())?;
        Ok(run)
    }

    /// That a run of this depth is of another one, if so: a sentence.
    pub fn other_depth(&self, depth: Depth) -> Option<String> {
        other_depth(self.0.depth.as_deref(), Some(depth.name()))
    }
}

/// Compares two runs of one of the experiments that are known, the second against the first.
pub fn compare(
    before: &KeptRun,
    after: &KeptRun,
    known: &[Entry],
) -> Result<Compared, CompareError> {
    compared(&before.0, &after.0, known)
}

fn same_experiment(before: &str, after: &str) -> Result<(), CompareError> {
    if before == after {
        return Ok(());
    }
    Err(CompareError::Experiments {
        before: printable(before).into_owned(),
        after: printable(after).into_owned(),
    })
}

/// Refuses two subjects; runs that name none are not told apart.
fn same_subject(before: Option<&str>, after: Option<&str>) -> Result<(), CompareError> {
    match (before, after) {
        (Some(before), Some(after)) if before != after => Err(CompareError::Subjects {
            before: printable(before).into_owned(),
            after: printable(after).into_owned(),
        }),
        _ => Ok(()),
    }
}

/// That two depths differ: such runs take other numbers of machines, and for other times.
fn other_depth(before: Option<&str>, after: Option<&str>) -> Option<String> {
    let (before, after) = before
        .zip(after)
        .filter(|(before, after)| before != after)?;
    let (before, after) = (printable(before), printable(after));
    Some(format!(
        "the depth differs: {before} and {after} (machines and times are not the same)"
    ))
}

fn compared(before: &Summary, after: &Summary, known: &[Entry]) -> Result<Compared, CompareError> {
    same_experiment(&before.experiment, &after.experiment)?;
    same_subject(before.subject.as_deref(), after.subject.as_deref())?;
    let depths = other_depth(before.depth.as_deref(), after.depth.as_deref());
    let figures = of_figures(&before.figures, &after.figures, known);
    if figures.is_empty() {
        return Err(CompareError::Nothing);
    }
    let alone = |a: &Summary, b: &Summary| -> Vec<String> {
        let alone = a.figures.iter().filter(|it| same(&b.figures, it).is_none());
        alone
            .map(|figure| printable(&figure.name).into_owned())
            .collect()
    };
    let mut only_in_one = alone(before, after);
    let others: Vec<String> = alone(after, before)
        .into_iter()
        .filter(|name| !only_in_one.contains(name))
        .collect();
    only_in_one.extend(others);
    Ok(Compared {
        experiment: printable(&before.experiment).into_owned(),
        warnings: depths
            .iter()
            .cloned()
            .chain(warnings(before, after))
            .collect(),
        figures,
        only_in_one,
        ended: after.status,
        depths,
    })
}

/// Figures that are in both, compared all at once.
pub fn of_figures(before: &[Figure], after: &[Figure], known: &[Entry]) -> Vec<Row> {
    let both = before.iter();
    let mut rows: Vec<Row> = both
        .filter_map(|figure| Some(row(figure, same(after, figure)?, known)))
        .collect();
    correct(&mut rows);
    rows
}

/// The figure of that name, if it is in the same unit: versions may differ in it.
fn same<'a>(figures: &'a [Figure], as_this: &Figure) -> Option<&'a Figure> {
    find(figures, &as_this.name).filter(|figure| figure.unit == as_this.unit)
}

fn warnings(before: &Summary, after: &Summary) -> Vec<String> {
    let (a, b) = (&before.machine, &after.machine);
    let facts = [
        ("processor", a.cpu.clone(), b.cpu.clone()),
        ("number of CPUs", a.cores.to_string(), b.cores.to_string()),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("KVM", format!("{:?}", a.kvm), format!("{:?}", b.kvm)),
    ];
    let differ = facts.into_iter().filter(|(_, a, b)| a != b);
    let mut warnings: Vec<String> = differ
        .map(|(what, a, b)| {
            format!(
                "the {what} differs: {} and {}",
                printable(&a),
                printable(&b)
            )
        })
        .collect();
    for (which, summary) in [("first", before), ("second", after)] {
        if let Some(busy) = summary.machine.busy() {
            warnings.push(format!("in the {which} run {busy}"));
        }
        if summary.status != Status::Complete {
            let how = word(&summary.status);
            warnings.push(format!(
                "the {which} run is {how}: figures may miss samples"
            ));
        }
    }
    warnings
}

fn row(before: &Figure, after: &Figure, known: &[Entry]) -> Row {
    let positive = before.value > 0.0 && after.value > 0.0;
    let exact = is_exact(before) && is_exact(after);
    let apart = before
        .estimated(|v| v)
        .zip(after.estimated(|v| v))
        .and_then(|(a, b)| difference(a, b));
    // On a logarithmic scale, if no end is zero or below.
    let logs = before
        .estimated(f64::ln)
        .zip(after.estimated(f64::ln))
        .and_then(|(a, b)| difference(a, b));
    let decides: Option<Difference> = logs.or(apart);
    Row {
        figure: printable(&before.name).into_owned(),
        unit: printable(&before.unit).into_owned(),
        before: before.value,
        after: after.value,
        ratio: positive.then(|| after.value / before.value),
        ratio_interval: logs.map(|it| (it.interval.low.exp(), it.interval.high.exp())),
        p: decides.filter(|_| !exact).map(|it| it.p),
        p_adjusted: None,
        change: match decides {
            None => Change::Undecided,
            Some(it) if it.interval.low > 0.0 || it.interval.high < 0.0 => Change::Chance,
            Some(_) => Change::None,
        },
        texts: [before.text(), after.text()],
        direction: better(known, &before.name).unwrap_or(Direction::Neither),
        shift: apart.map(|it| it.interval),
    }
}

fn is_exact(figure: &Figure) -> bool {
    figure.statistic == Statistic::Exact
}

/// Adjusts the p-values for their number, and names the changes that remain.
fn correct(rows: &mut [Row]) {
    let tested: Vec<f64> = rows.iter().filter_map(|row| row.p).collect();
    let mut adjusted = adjusted(&tested).into_iter();
    for row in rows {
        row.p_adjusted = row.p.and_then(|_| adjusted.next());
        let sure = row.p_adjusted.is_none_or(|p| p <= FALSE_SHARE);
        if row.change == Change::Chance && sure {
            row.change = match (row.direction, row.after > row.before) {
                (Direction::Neither, _) => Change::Differs,
                (Direction::More, true) | (Direction::Less, false) => Change::Better,
                _ => Change::Worse,
            };
        }
    }
}

impl Row {
    /// How much worse the second run is at least, percent of the first, by the near end of
    /// the interval; `None` if it need not be worse.
    pub(crate) fn worse_by(&self) -> Option<f64> {
        if self.change != Change::Worse {
            return None;
        }
        let more = self.direction == Direction::More;
        if let Some((low, high)) = self.ratio_interval {
            let factor = if more { 1.0 / high } else { low };
            return Some((factor - 1.0) * 100.0);
        }
        let shift = self.shift?;
        let near = if more { -shift.high } else { shift.low };
        // From zero on any change is without bound.
        Some(near / self.before.abs() * 100.0)
    }
}

impl Compared {
    /// Figures that are worse by more than `percent`, with their whole interval; none of runs of
    /// different depths, whose difference may be that of their plans.
    pub fn worse_than(&self, percent: f64) -> Vec<&Row> {
        let figures = self.figures.iter().filter(|_| self.depths.is_none());
        figures
            .filter(|row| row.worse_by().is_some_and(|by| by > percent))
            .collect()
    }

    /// Why it cannot be said that no figure is worse, a sentence: the depths differ, the second run
    /// did not complete, or no figure has an interval in both. `None` if it can.
    pub fn undecided(&self) -> Option<String> {
        if let Some(depths) = &self.depths {
            return Some(depths.clone());
        }
        if let Status::Broken | Status::Interrupted = self.ended {
            let how = word(&self.ended);
            return Some(format!(
                "the second run is {how}, so figures and samples are missing"
            ));
        }
        let is_decided = |row: &Row| row.change != Change::Undecided;
        (!self.figures.iter().any(is_decided)).then(|| {
            let count = self.figures.len();
            format!("none of {count} figures has an interval in both runs (6 samples or more)")
        })
    }
}
