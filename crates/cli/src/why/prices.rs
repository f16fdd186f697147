//! The costs of exits for `tare why` and `tare top`: from a run of `tare weigh vmexit`, or built
//! in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_control::exit::ExitCode;
use tare_control::stats::Kvm;
use tare_lab::stored_runs::{self, StoredRun, StoredRunError};
use tare_pin::state_directory;
use tare_why::{Execution, Measured};

use crate::failure::Explain;

/// The experiment that measures the costs of exits.
const EXPERIMENT: &str = "vmexit";

/// Costs, and their origin.
#[derive(Debug, Serialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub(crate) enum Prices {
    /// Built-in estimates.
    BuiltIn,
    /// Measured by `tare weigh vmexit`.
    Measured {
        /// Its `summary.json`.
        file: PathBuf,
        /// When, RFC 3339.
        started: String,
        /// The other host, if not measured on this one.
        #[serde(skip_serializing_if = "Option::is_none")]
        elsewhere: Option<String>,
        #[serde(skip)]
        prices: Measured,
    },
}

/// Copies the results of such a run to the state directory, so that they are found from every
/// working directory.
pub(crate) fn remember(experiment: &str, run: &Path) -> io::Result<()> {
    let (Some(runs), Some(name)) = (runs_directory(), run.file_name()) else {
        return Ok(());
    };
    if experiment != EXPERIMENT {
        return Ok(());
    }
    // One is enough: newer costs replace older ones.
    let copy = runs.join(EXPERIMENT);
    fs::create_dir_all(&copy)?;
    let part = copy.join(format!(".{}", name.to_string_lossy()));
    fs::copy(run.join("summary.json"), &part)?;
    fs::rename(part, copy.join("summary.json"))
}

/// Directories of runs beside those below the working directory: in the state directory, and in the
/// source tree of this program.
fn places() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|path| path.ends_with("target"));
    let tree = target.and_then(Path::parent);
    let tree = tree
        .into_iter()
        .flat_map(|tree| stored_runs::PLACES.map(|place| tree.join(place)));
    runs_directory().into_iter().chain(tree).collect()
}

/// The directory of [`remember`].
fn runs_directory() -> Option<PathBuf> {
    Some(state_directory()?.join("runs"))
}

/// A file of costs that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PricesError {
    /// It cannot be read, or is something else.
    #[error(transparent)]
    Kept(#[from] StoredRunError),
    /// It has no costs.
    #[error("{} has no costs of exits", .0.display())]
    Nothing(PathBuf),
}

impl Explain for PricesError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        Some("tare weigh vmexit --quick makes one, out/vmexit-*/summary.json".to_owned())
    }
}

impl Prices {
    /// From a file, else the newest costs that were measured on this host.
    pub(crate) fn find(file: Option<&Path>) -> Result<Self, PricesError> {
        match file {
            Some(file) => Self::of(stored_runs::read(file, EXPERIMENT)?)
                .ok_or_else(|| PricesError::Nothing(file.to_owned())),
            None => Ok(Self::newest()),
        }
    }

    /// The newest costs that a complete run measured on this host, else the built-in ones.
    pub(crate) fn newest() -> Self {
        Self::first_of(stored_runs::newest_first(EXPERIMENT, &places()))
    }

    /// Of the first run that prices exits.
    fn first_of(runs: Vec<StoredRun>) -> Self {
        let mut priced = runs.into_iter().filter_map(Self::of);
        priced.next().unwrap_or(Self::BuiltIn)
    }

    fn of(run: StoredRun) -> Option<Self> {
        let execution = match run.kvm {
            Kvm::Hardware => Execution::Hardware,
            Kvm::Emulated => Execution::Emulated,
            Kvm::None => return None,
        };
        let lowest = run.lowest.iter();
        let figures = lowest.map(|(name, ns)| (name.as_str(), *ns));
        Some(Self::Measured {
            prices: Measured::of(execution, figures)?,
            file: run.file,
            started: run.started,
            elsewhere: run.elsewhere,
        })
    }

    /// The measured costs.
    pub(crate) fn measured(&self) -> Option<&Measured> {
        match self {
            Self::BuiltIn => None,
            Self::Measured { prices, .. } => Some(prices),
        }
    }

    /// Their origin, as a sentence.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::BuiltIn => "Exits are priced by built-in estimates (tare weigh vmexit --quick \
                              measures this host's)."
                .to_owned(),
            Self::Measured {
                file,
                started,
                elsewhere,
                ..
            } => {
                let day = started.split('T').next().unwrap_or(started);
                let on = elsewhere.as_ref().map_or_else(
                    || "this host".to_owned(),
                    |other| format!("another host ({other})"),
                );
                format!(
                    "Exits are priced as tare weigh vmexit measured them on {on}, {day} ({}).",
                    file.display()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_prices_nothing_hides_no_older_one() {
        let run = |name: &str, kvm, figures: &[(&str, f64)]| StoredRun {
            file: PathBuf::from(name),
            started: "2026-01-01T00:00:00Z".to_owned(),
            kvm,
            is_complete: true,
            lowest: figures
                .iter()
                .map(|(name, ns)| ((*name).to_owned(), *ns))
                .collect(),
            elsewhere: None,
        };
        let priced = [("exit_ns.control", 1.0), ("exit_ns.cpuid", 900.0)];
        let found = Prices::first_of(vec![
            run("no figures", Kvm::Hardware, &[]),
            run("without KVM", Kvm::None, &priced),
            run("no control", Kvm::Hardware, &priced[1..]),
            run("whole", Kvm::Hardware, &priced),
            run("older", Kvm::Hardware, &priced),
        ]);
        let file = match &found {
            Prices::Measured { file, .. } => Some(file.as_path()),
            Prices::BuiltIn => None,
        };
        assert_eq!(file, Some(Path::new("whole")));
    }
}
