//! Loads results of earlier runs from `summary.json`, and checks whether they were
//! measured on this computer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tare_control::stats::Kvm;

use crate::host::HostFacts;
use crate::summary::{Status, Summary, depth_of, subject_of};

/// Directories of run directories: where `tare weigh` puts them, and where a
/// source tree keeps them.
pub const PLACES: [&str; 2] = ["out", "lab/runs"];
/// Longest `summary.json` that is read, bytes.
const LONGEST: u64 = 4 << 20;
/// Longest line with a plan that is read, bytes.
const LONGEST_PLAN: u64 = 1 << 20;

/// A stored run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// Its `summary.json`.
    pub file: PathBuf,
    /// Start time, RFC 3339, UTC.
    pub started: String,
    /// What executed its guests.
    pub kvm: Kvm,
    /// Whether all that was planned was done; samples may have failed.
    pub is_complete: bool,
    /// Lower end of each figure's interval, or its value where there is none, by name: load
    /// on the host only adds to a figure.
    pub lowest: BTreeMap<String, f64>,
    /// The machine it ran on, if it differs from this one.
    pub elsewhere: Option<String>,
}

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFigure {
    /// The run's folder.
    pub run: String,
    /// Its name.
    pub name: String,
    /// Median.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Unusable stored results.
#[derive(Debug, thiserror::Error)]
pub enum StoredRunError {
    /// The file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a `summary.json`.
    #[error("{} is not a summary.json of tare weigh", file.display())]
    NoSummary {
        /// Which.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The run is of another experiment.
    #[error("{} is a run of {found}, not of {wanted}", file.display())]
    Experiment {
        /// Which.
        file: PathBuf,
        /// The experiment in it.
        found: String,
        /// The one that was requested.
        wanted: String,
    },
}

/// The complete stored runs of an experiment on this computer with its present
/// processor and kernel, the newest first, in [`PLACES`] below the working directory and in
/// `more_places`. Unreadable files are skipped.
pub fn newest_first(experiment: &str, more_places: &[PathBuf]) -> Vec<StoredRun> {
    let mut places = PLACES.map(Path::new).to_vec();
    places.extend(more_places.iter().map(PathBuf::as_path));
    newest_first_in(&places, experiment)
}

/// All figures with a 95 % interval whose name begins with one of `prefixes`, from all runs in
/// `places` and any computer, oldest run first. Unreadable files are skipped.
pub fn figures(places: &[&Path], prefixes: &[&str]) -> Vec<StoredFigure> {
    let figures = all(places).into_iter().flat_map(|(run, summary)| {
        let figures = summary.figures.into_iter();
        figures.map(move |figure| (run.clone(), figure))
    });
    let is_wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let about = figures.filter(|(_, figure)| is_wanted(&figure.name));
    about
        .filter_map(|(run, figure)| {
            let (low, high) = figure.interval()?;
            Some(StoredFigure {
                run,
                name: figure.name,
                value: figure.value,
                low,
                high,
            })
        })
        .collect()
}

/// All runs in `places` with the names of their directories, oldest first. Unreadable files
/// are skipped.
pub(crate) fn all(places: &[&Path]) -> Vec<(String, Summary)> {
    let runs = files_in(places).filter_map(|file| {
        let run = file.parent()?.file_name()?.to_string_lossy().into_owned();
        Some((run, summary(&file).ok()?))
    });
    let mut runs: Vec<(String, Summary)> = runs.collect();
    runs.sort_by(|(a, first), (b, second)| (&first.started, a).cmp(&(&second.started, b)));
    runs
}

/// Reads one run's results.
pub fn read(file: &Path, experiment: &str) -> Result<StoredRun, StoredRunError> {
    let summary = summary(file)?;
    if summary.experiment != experiment {
        return Err(StoredRunError::Experiment {
            file: file.to_owned(),
            found: summary.experiment,
            wanted: experiment.to_owned(),
        });
    }
    Ok(StoredRun {
        file: file.to_owned(),
        started: summary.started,
        kvm: summary.machine.kvm,
        is_complete: matches!(summary.status, Status::Complete | Status::Failed),
        elsewhere: elsewhere(&summary.machine),
        lowest: summary
            .figures
            .into_iter()
            .map(|figure| {
                let low = figure.interval().map_or(figure.value, |(low, _)| low);
                (figure.name, low)
            })
            .collect(),
    })
}

/// Reads a `summary.json` of any version; depth and subject of an early one are taken from the
/// record beside it.
pub fn summary(file: &Path) -> Result<Summary, StoredRunError> {
    let failed = |source| StoredRunError::Read {
        file: file.to_owned(),
        source,
    };
    let mut text = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    opened
        .take(LONGEST)
        .read_to_end(&mut text)
        .map_err(failed)?;
    let read = serde_json::from_slice(&text);
    let mut run: Summary = read.map_err(|source| StoredRunError::NoSummary {
        file: file.to_owned(),
        source,
    })?;
    if run.depth.is_none() && run.subject.is_none() {
        let plan = plan_beside(file).unwrap_or_default();
        (run.depth, run.subject) = (depth_of(&plan), subject_of(&plan));
    }
    Ok(run)
}

/// The plan in the record beside a summary.
fn plan_beside(summary: &Path) -> Option<Value> {
    let raw = File::open(summary.with_file_name("raw.jsonl")).ok()?;
    let mut line = String::new();
    let mut lines = BufReader::new(raw).take(LONGEST_PLAN);
    lines.read_line(&mut line).ok()?;
    let mut line: Value = serde_json::from_str(&line).ok()?;
    Some(line.get_mut("plan")?.take())
}

/// The `summary.json` of each run directory below `places`.
fn files_in(places: &[&Path]) -> impl Iterator<Item = PathBuf> {
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok());
    entries
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("summary.json")))
}

fn newest_first_in(places: &[&Path], experiment: &str) -> Vec<StoredRun> {
    let mut runs: Vec<StoredRun> = files_in(places)
        .filter_map(|file| read(&file, experiment).ok())
        .filter(|run| run.elsewhere.is_none() && run.is_complete)
        .collect();
    runs.sort_by(|a, b| b.started.cmp(&a.started));
    runs
}

/// The run's processor and kernel, which exit costs depend on, if they differ from
/// this machine's.
fn elsewhere(there: &HostFacts) -> Option<String> {
    let here = HostFacts::read();
    let same = here.cpu == there.cpu && here.kernel == there.kernel;
    (!same).then(|| format!("{}, Linux {}", there.cpu, there.kernel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Spread;
    use crate::testing::stored as keep;

    #[test]
    fn the_newest_run_of_this_computer_is_found() {
        let root = tempfile::tempdir().unwrap();
        let (out, runs) = (root.path().join("out"), root.path().join("runs"));
        let here = HostFacts::read;
        let other = HostFacts {
            kernel: "2.6.32".to_owned(),
            ..here()
        };
        keep(&out, "a", "vmexit", "2026-01-01T00:00:00Z", here());
        keep(&runs, "b", "vmexit", "2026-02-01T00:00:00Z", here());
        keep(&out, "c", "vmexit", "2026-03-01T00:00:00Z", other);
        keep(&out, "d", "kv", "2026-04-01T00:00:00Z", here());
        fs::create_dir(out.join("e")).unwrap();
        fs::write(out.join("e/summary.json"), "{").unwrap();
        let edited = |name: &str, started, edit: fn(&mut Summary)| {
            keep(&out, name, "vmexit", started, here());
            let file = out.join(name).join("summary.json");
            let mut summary = summary(&file).unwrap();
            edit(&mut summary);
            fs::write(file, serde_json::to_vec(&summary).unwrap()).unwrap();
        };
        edited("f", "2026-05-01T00:00:00Z", |summary| {
            summary.status = Status::Interrupted;
            summary.figures.clear();
        });
        edited("g", "2026-06-01T00:00:00Z", |summary| {
            summary.status = Status::Broken;
        });
        let places = [out.as_path(), runs.as_path(), Path::new("/nowhere")];
        let found = newest_first_in(&places, "vmexit");
        let files: Vec<&Path> = found.iter().map(|run| run.file.as_path()).collect();
        assert_eq!(
            files,
            [runs.join("b/summary.json"), out.join("a/summary.json")]
        );
        assert_eq!(found[0].lowest["exit_ns.cpuid"], 1.0);
        assert_eq!(newest_first_in(&places, "tcp-rr"), []);
    }

    #[test]
    fn a_range_of_few_samples_is_not_an_interval() {
        let root = tempfile::tempdir().unwrap();
        keep(root.path(), "a", "vmexit", "2026-01-01", HostFacts::read());
        let file = root.path().join("a/summary.json");
        let mut summary = summary(&file).unwrap();
        summary.figures[0].spread = Spread::Range;
        fs::write(&file, serde_json::to_vec(&summary).unwrap()).unwrap();
        let run = read(&file, "vmexit").unwrap();
        assert_eq!(run.lowest["exit_ns.cpuid"], 2.0, "its median");
    }

    #[test]
    fn figures_come_with_the_latest_runs_last() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        keep(place, "a", "platforms", "2026-02-01", HostFacts::read());
        keep(place, "b", "platforms", "2026-01-01", HostFacts::read());
        fs::create_dir(place.join("c")).unwrap();
        fs::write(place.join("c/summary.json"), "{").unwrap();
        let places = [place, Path::new("/nonexistent")];
        let found = figures(&places, &["pin_gain_pct.", "exit_ns."]);
        let runs: Vec<&str> = found.iter().map(|figure| figure.run.as_str()).collect();
        assert_eq!(runs, ["b", "a"]);
        assert_eq!(
            (found[0].value, found[0].low, found[0].high),
            (2.0, 1.0, 3.0)
        );
        assert_eq!(figures(&places, &["pin_gain_pct."]), []);
    }

    #[test]
    fn an_unusable_summary_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        keep(place, "kv", "kv", "2026-01-01T00:00:00Z", HostFacts::read());
        fs::write(place.join("text"), "no JSON").unwrap();
        let said = |name: &str| read(&place.join(name), "vmexit").unwrap_err().to_string();
        assert!(said("gone").starts_with("cannot read "));
        assert!(said("text").ends_with("is not a summary.json of tare weigh"));
        assert!(said("kv/summary.json").ends_with("is a run of kv, not of vmexit"));
        assert!(said(".").starts_with("cannot read "), "a directory");
    }
}
