//! `tare weigh`: runs the experiments of `crates/experiments` and `crates/platforms-study`.

use std::path::Path;

use tare_control::exit::ExitCode;
use tare_lab::{CompareError, Compared, Files, KeptRun, WeighError, WeighRequest, stored_runs};

use crate::args::{CompareArgs, CompareFormat, ExperimentArgs, ReportArgs, WeighArgs};
use crate::experiments::known;
use crate::failure::{CommandResult, Explain};
use crate::output::{print, warn};
use crate::why::prices;

impl Explain for WeighError {
    fn code(&self) -> ExitCode {
        self.exit_code()
    }
}

impl Explain for CompareError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Runs the experiment; prints its table to standard output.
pub(crate) fn weigh(args: WeighArgs) -> CommandResult {
    let ExperimentArgs {
        entry,
        shared: args,
        own,
    } = args.experiment;
    let depth = args.depth();
    let experiment = own.planned(&entry, depth);
    // Before the measurement: a run can take hours.
    let against = args.against.as_deref();
    let against = against.map(|dir| KeptRun::of(dir, &entry, &*experiment));
    let request = WeighRequest {
        out: args.out,
        fail_on_missed: args.fail_on_missed,
        against: against.transpose()?,
        revision: env!("TARE_REVISION").to_owned(),
        ..WeighRequest::default()
    };
    let before = request.against.as_ref();
    if let Some(why) = before.and_then(|run| run.other_depth(depth)) {
        warn(&format!("--against: {why}"));
    }
    let outcome = tare_lab::weigh(&request, entry, experiment)?;
    let printed = print(&outcome.to_string());
    if outcome.exit_code() == ExitCode::Terminated && printed.is_err() {
        // The terminal has gone; the report is in its files.
        return Ok(ExitCode::Terminated);
    }
    printed?;
    if outcome.exit_code() == ExitCode::Success
        && let Err(error) = prices::remember(entry.name, &outcome.directory)
    {
        warn(&format!("cannot keep these costs for tare why: {error}"));
    }
    let code = outcome.exit_code();
    let Some(before) = before else {
        return Ok(code);
    };
    // A failed or interrupted run has figures too; its own exit code takes precedence.
    let compared = tare_lab::compare(before, &KeptRun::read(&outcome.directory)?, &known())?;
    print(&compared.text())?;
    let judged = judged(&compared, args.fail_on)?;
    Ok(match code {
        ExitCode::Success => judged,
        failed => failed,
    })
}

/// Compares two runs.
pub(crate) fn compare(args: &CompareArgs) -> CommandResult {
    let (before, after) = (KeptRun::read(&args.before)?, KeptRun::read(&args.after)?);
    let compared = tare_lab::compare(&before, &after, &known())?;
    print(&match args.format {
        CompareFormat::Text => compared.text(),
        CompareFormat::Markdown => compared.markdown(),
        CompareFormat::Csv => compared.csv(),
        CompareFormat::Json => compared.json(),
    })?;
    judged(&compared, args.fail_on)
}

/// The exit code of a comparison; prints figures that are worse than allowed, or why that cannot
/// be seen, to standard error.
fn judged(compared: &Compared, fail_on: Option<f64>) -> CommandResult {
    let Some(percent) = fail_on else {
        return Ok(ExitCode::Success);
    };
    let worse = compared.worse_than(percent);
    for row in &worse {
        warn(&format!("{} is worse by more than {percent} %", row.figure));
    }
    let undecided = compared.undecided();
    if let Some(why) = &undecided {
        warn(&format!("--fail-on cannot be decided: {why}"));
    }
    Ok(match (worse.is_empty(), undecided) {
        (false, _) => ExitCode::GoalMissed,
        (true, Some(_)) => ExitCode::WeighFailed,
        (true, None) => ExitCode::Success,
    })
}

/// Regenerates a report, or a page of an experiment's history.
pub(crate) fn report(args: &ReportArgs) -> CommandResult {
    if let Some(experiment) = &args.history {
        return history(args, experiment);
    }
    let files = if args.page { Files::Page } else { Files::All };
    let dir = args.dir.as_deref().unwrap_or_else(|| Path::new("."));
    let outcome = tare_lab::rebuild(dir, &known(), files)?;
    print(&outcome.to_string())?;
    Ok(ExitCode::Success)
}

fn history(args: &ReportArgs, experiment: &str) -> CommandResult {
    let places = match &args.dir {
        Some(dir) => vec![dir.as_path()],
        None => stored_runs::PLACES.map(Path::new).into(),
    };
    let page = tare_lab::history(experiment, &places, &args.figure)?;
    let path = args
        .out
        .clone()
        .unwrap_or_else(|| format!("out/history-{experiment}.html").into());
    let failed = |source| WeighError::Write {
        path: path.clone(),
        source,
    };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    std::fs::write(&path, page).map_err(failed)?;
    print(&format!("history: {}\n", path.display()))
}
