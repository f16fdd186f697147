//! Two runs, figure by figure: `tare compare`.
//!
//! The ratio of a figure in both runs has the interval that follows from both intervals, on
//! a logarithmic scale: the half widths add by squares. Runs are independent.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::experiments::more_is_better;
use crate::export::{quoted, word};
use crate::figure::{Figure, Spread, Statistic, find};
use crate::stored_runs::{StoredRunError, summary};
use crate::summary::{Status, Summary};
use crate::table::number;

/// What two runs say of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The interval of the ratio holds 1, or both are the same.
    None,
    /// The second run is better, by its whole interval.
    Better,
    /// The second run is worse, by its whole interval.
    Worse,
    /// One of the figures has no interval.
    Undecided,
}

impl Change {
    const fn words(self) -> &'static str {
        match self {
            Self::None => "cannot be told apart",
            Self::Better => "better",
            Self::Worse => "worse",
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
    /// Ends of the ratio's 95 % interval.
    pub ratio_interval: Option<(f64, f64)>,
    /// What follows.
    pub change: Change,
    #[serde(skip)]
    texts: [String; 2],
    #[serde(skip)]
    more_is_better: bool,
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
    /// They have no figure in common.
    #[error("the runs have no figure in common")]
    Nothing,
}

/// Compares the runs in two directories, the second against the first.
pub fn compare(before: &Path, after: &Path) -> Result<Compared, CompareError> {
    let read = |dir: &Path| {
        let file = if dir.is_dir() {
            dir.join("summary.json")
        } else {
            dir.to_owned()
        };
        summary(&file)
    };
    compared(&read(before)?, &read(after)?)
}

fn compared(before: &Summary, after: &Summary) -> Result<Compared, CompareError> {
    if before.experiment != after.experiment {
        return Err(CompareError::Experiments {
            before: before.experiment.clone(),
            after: after.experiment.clone(),
        });
    }
    let both = before.figures.iter();
    let figures: Vec<Row> = both
        .filter_map(|figure| Some(row(figure, same(&after.figures, figure)?)))
        .collect();
    if figures.is_empty() {
        return Err(CompareError::Nothing);
    }
    let alone = |a: &Summary, b: &Summary| -> Vec<String> {
        let alone = a.figures.iter().filter(|it| same(&b.figures, it).is_none());
        alone.map(|figure| figure.name.clone()).collect()
    };
    let mut only_in_one = alone(before, after);
    let others = alone(after, before).into_iter();
    let others: Vec<String> = others.filter(|name| !only_in_one.contains(name)).collect();
    only_in_one.extend(others);
    Ok(Compared {
        experiment: before.experiment.clone(),
        warnings: warnings(before, after),
        figures,
        only_in_one,
    })
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
        .map(|(what, a, b)| format!("the {what} differs: {a} and {b}"))
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

fn row(before: &Figure, after: &Figure) -> Row {
    let positive = before.value > 0.0 && after.value > 0.0;
    let ratio = positive.then(|| after.value / before.value);
    let ratio_interval = ratio.and_then(|ratio| {
        let half = half(before)?.hypot(half(after)?);
        Some((ratio * (-half).exp(), ratio * half.exp()))
    });
    let better = more_is_better(&before.name);
    Row {
        figure: before.name.clone(),
        unit: before.unit.clone(),
        before: before.value,
        after: after.value,
        ratio,
        ratio_interval,
        change: change(before, after, ratio_interval, better),
        texts: [before.text(), after.text()],
        more_is_better: better,
    }
}

/// Half the width of a figure's interval on the logarithm; 0 for what is exact.
fn half(figure: &Figure) -> Option<f64> {
    if figure.statistic == Statistic::Exact {
        return Some(0.0);
    }
    let (low, high) = figure.interval().filter(|(low, _)| *low > 0.0)?;
    Some((high / low).ln() / 2.0)
}

fn change(
    before: &Figure,
    after: &Figure,
    ratio: Option<(f64, f64)>,
    more_is_better: bool,
) -> Change {
    let directed = |rises: bool| {
        if rises == more_is_better {
            Change::Better
        } else {
            Change::Worse
        }
    };
    if let Some((low, high)) = ratio {
        return match (low > 1.0, high < 1.0) {
            (true, _) => directed(true),
            (_, true) => directed(false),
            _ => Change::None,
        };
    }
    // What can be zero or below has no ratio: intervals that are apart differ.
    let exact = |it: &Figure| (it.statistic == Statistic::Exact).then_some((it.value, it.value));
    let ends = |it: &Figure| it.ends().or(exact(it));
    match ends(before).zip(ends(after)) {
        Some(_) if before.spread == Spread::Range || after.spread == Spread::Range => {
            Change::Undecided
        }
        Some(((_, a_high), (b_low, _))) if b_low > a_high => directed(true),
        Some(((a_low, _), (_, b_high))) if b_high < a_low => directed(false),
        Some(_) => Change::None,
        None => Change::Undecided,
    }
}

impl Row {
    /// How much worse the second run is at least, percent, by the near end of the interval;
    /// `None` if it need not be worse.
    pub fn worse_by(&self) -> Option<f64> {
        if self.change != Change::Worse {
            return None;
        }
        let Some((low, high)) = self.ratio_interval else {
            // From zero on any rise is without bound.
            return Some(f64::INFINITY);
        };
        let factor = if self.more_is_better { 1.0 / high } else { low };
        Some((factor - 1.0) * 100.0)
    }

    fn ratio_text(&self) -> String {
        let Some(ratio) = self.ratio else {
            return "-".to_owned();
        };
        match self.ratio_interval {
            Some((low, high)) => {
                format!("{} ({} .. {})", number(ratio), number(low), number(high))
            }
            None => number(ratio),
        }
    }
}

impl Compared {
    /// Figures that are worse by more than `percent`, with their whole interval.
    pub fn worse_than(&self, percent: f64) -> Vec<&Row> {
        let figures = self.figures.iter();
        figures
            .filter(|row| row.worse_by().is_some_and(|by| by > percent))
            .collect()
    }

    /// A table below 100 columns; figures that cannot be told apart are counted, not listed.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        let _ = writeln!(
            out,
            "{:<34} {:>10} {:>10} {:<26} change",
            "figure", "before", "after", "ratio (95 % interval)"
        );
        let apart = |row: &&Row| row.change != Change::None;
        for row in self.figures.iter().filter(apart) {
            let _ = writeln!(
                out,
                "{:<34} {:>10} {:>10} {:<26} {}",
                row.figure,
                number(row.before),
                number(row.after),
                row.ratio_text(),
                row.change.words()
            );
        }
        let same = self
            .figures
            .iter()
            .filter(|row| row.change == Change::None)
            .count();
        let _ = writeln!(
            out,
            "{same} of {} figures cannot be told apart",
            self.figures.len()
        );
        out.push_str(&self.alone());
        out
    }

    /// A line about figures that do not compare; none where there are none.
    fn alone(&self) -> String {
        match self.only_in_one.as_slice() {
            [] => String::new(),
            names => format!(
                "in one run only, or in another unit: {}\n",
                names.join(", ")
            ),
        }
    }

    /// The same for a pull request, with all figures.
    pub fn markdown(&self) -> String {
        let mut out = format!("### tare compare: {}\n\n", self.experiment);
        for warning in &self.warnings {
            let _ = writeln!(out, "> warning: {warning}\n");
        }
        out.push_str("| figure | unit | before | after | ratio (95 % interval) | change |\n");
        out.push_str("|---|---|---|---|---|---|\n");
        for row in &self.figures {
            let [before, after] = &row.texts;
            let words = row.change.words();
            let words = match row.change {
                Change::Worse => format!("**{words}**"),
                _ => words.to_owned(),
            };
            let _ = writeln!(
                out,
                "| `{}` | {} | {before} | {after} | {} | {words} |",
                row.figure,
                row.unit,
                row.ratio_text()
            );
        }
        if !self.only_in_one.is_empty() {
            let _ = write!(out, "\n{}", self.alone());
        }
        out
    }

    /// One line for each figure, RFC 4180.
    pub fn csv(&self) -> String {
        let mut out = String::from("figure,unit,before,after,ratio,ratio_low,ratio_high,change\n");
        let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        for row in &self.figures {
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{}",
                quoted(&row.figure),
                quoted(&row.unit),
                row.before,
                row.after,
                number(row.ratio),
                number(row.ratio_interval.map(|ends| ends.0)),
                number(row.ratio_interval.map(|ends| ends.1)),
                row.change.words()
            );
        }
        out
    }

    /// All of it as JSON.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&json!(self)).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::figure::{exact, median, rate};
    use crate::host::HostFacts;

    fn run(experiment: &str, figures: Vec<Figure>) -> Summary {
        let json = json!({
            "experiment": experiment, "started": "2026-01-01T00:00:00Z", "revision": "x",
            "machine": HostFacts::default(), "figures": figures,
        });
        serde_json::from_value(json).unwrap()
    }

    fn times(mean: f64) -> Vec<f64> {
        (0..20)
            .map(|i| mean * (1.0 + f64::from(i - 10) / 500.0))
            .collect()
    }

    fn change_of(before: Figure, after: Figure) -> Row {
        let both = compared(&run("x", vec![before]), &run("x", vec![after]));
        both.unwrap().figures.remove(0)
    }

    #[test]
    fn a_change_counts_where_the_interval_of_the_ratio_excludes_one() {
        let of = |mean: f64| median("wake_us", "us", &times(mean)).unwrap();
        let slower = change_of(of(10.0), of(11.0));
        assert_eq!(slower.change, Change::Worse);
        let (low, high) = slower.ratio_interval.unwrap();
        assert!(low > 1.05 && high < 1.15, "{slower:?}");
        assert!(slower.worse_by().unwrap() < 10.0);
        assert_eq!(change_of(of(11.0), of(10.0)).change, Change::Better);
        assert_eq!(change_of(of(10.0), of(10.01)).change, Change::None);
        let one = median("wake_us", "us", &[20.0]).unwrap();
        assert_eq!(change_of(of(10.0), one).change, Change::Undecided);
    }

    #[test]
    fn more_is_better_for_rates_and_exact_figures_have_no_error() {
        let of = |mean: f64| median("iops.cif1.vic", "1/s", &times(mean)).unwrap();
        assert_eq!(change_of(of(10.0), of(11.0)).change, Change::Better);
        let of = |mean: f64| median("db_iops.vic", "1/s", &times(mean)).unwrap();
        assert_eq!(change_of(of(10.0), of(11.0)).change, Change::Better);
        let size = |bytes: f64| exact("image_bytes", "bytes", &[bytes]).unwrap();
        let grown = change_of(size(100.0), size(104.0));
        assert_eq!(grown.change, Change::Worse);
        assert!((grown.worse_by().unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(change_of(size(100.0), size(100.0)).change, Change::None);
        // Of what is exact, zero is known too.
        assert_eq!(change_of(size(0.0), size(0.0)).change, Change::None);
        assert_eq!(change_of(size(3.0), size(0.0)).change, Change::Better);
        assert_eq!(
            change_of(size(0.0), size(3.0)).worse_by(),
            Some(f64::INFINITY)
        );
        let none = || rate("idle_exits_per_s.tare", "1/s", &[(0.0, 60.0)]).unwrap();
        let some = rate("idle_exits_per_s.tare", "1/s", &[(120.0, 60.0)]).unwrap();
        assert_eq!(change_of(none(), some).worse_by(), Some(f64::INFINITY));
        assert_eq!(change_of(none(), none()).change, Change::None);
    }

    #[test]
    fn only_worse_than_allowed_fails() {
        let of = |mean: f64| vec![median("wake_us", "us", &times(mean)).unwrap()];
        let both = compared(&run("x", of(10.0)), &run("x", of(11.0))).unwrap();
        assert_eq!(both.worse_than(3.0).len(), 1);
        assert_eq!(both.worse_than(20.0).len(), 0);
        assert!(both.markdown().contains("| **worse** |"));
        assert!(both.csv().lines().count() == 2);
        assert!(both.json().contains("\"change\": \"worse\""));
        assert!(both.text().contains("0 of 1 figures"));
    }

    #[test]
    fn runs_that_do_not_compare_are_refused() {
        let figure = || vec![exact("x", "B", &[1.0]).unwrap()];
        let error = compared(&run("kv", figure()), &run("vic", figure())).unwrap_err();
        assert!(error.to_string().contains("kv and vic"), "{error}");
        let error = compared(&run("kv", figure()), &run("kv", Vec::new())).unwrap_err();
        assert!(matches!(error, CompareError::Nothing));
        let elsewhere = Summary {
            machine: HostFacts {
                cpu: "another".to_owned(),
                ..HostFacts::default()
            },
            ..run("kv", figure())
        };
        let both = compared(&run("kv", figure()), &elsewhere).unwrap();
        assert!(both.warnings[0].contains("processor differs"), "{both:?}");
    }

    #[test]
    fn what_does_not_compare_is_named() {
        let size = |unit: &str| vec![exact("a,b", unit, &[1.0]).unwrap(), figure()];
        fn figure() -> Figure {
            exact("x", "B", &[1.0]).unwrap()
        }
        let both = compared(&run("kv", size("us")), &run("kv", size("ns"))).unwrap();
        assert_eq!(both.figures.len(), 1);
        assert!(
            both.text().ends_with("another unit: a,b\n"),
            "{}",
            both.text()
        );
        assert!(both.markdown().ends_with("another unit: a,b\n"));
        let both = compared(&run("kv", size("us")), &run("kv", size("us"))).unwrap();
        assert!(both.csv().contains("\"a,b\",us,1,1,"), "{}", both.csv());
        let broken = Summary {
            status: Status::Broken,
            ..run("kv", size("us"))
        };
        let both = compared(&run("kv", size("us")), &broken).unwrap();
        assert!(
            both.warnings[0].contains("second run is broken"),
            "{both:?}"
        );
    }
}
