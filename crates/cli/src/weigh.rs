//! `tare weigh`: runs the experiments of `crates/experiments` and `crates/platforms-study`.

use std::path::Path;
use std::time::Duration;

use tare_control::exit::ExitCode;
use tare_lab::{
    CompareError, Compared, Depth, Files, KeptRun, WeighError, WeighRequest, stored_runs,
};
use tare_platforms_study::PlatformOptions;

use crate::args::{
    CompareArgs, CompareFormat, ExperimentArgs, OwnArgs, PlatformArgs, ReportArgs, WeighArgs,
};
use crate::experiments::{STUDY, known};
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
        name: experiment,
        shared: args,
        own,
    } = args.experiment;
    let mut request = WeighRequest::new(experiment.clone());
    request.depth = match (args.quick, args.full) {
        (true, _) => Depth::Quick,
        (false, true) => Depth::Full,
        (false, false) => Depth::Standard,
    };
    request.fail_on_missed = args.fail_on_missed;
    request.out = args.out;
    request.revision = env!("TARE_REVISION").to_owned();
    let mut platforms = None;
    match own {
        OwnArgs::None => {}
        OwnArgs::Image(own) => request.image = own.image,
        OwnArgs::Cuts(own) => {
            (request.app, request.cuts) = (own.app, own.cuts);
            (request.configs, request.cves) = (own.configs, own.cves);
        }
        OwnArgs::Kernels(own) => request.kernels = own.kernels,
        OwnArgs::Platforms(own) => {
            let options = options(*own);
            request.resume.clone_from(&options.resume);
            platforms = Some(options);
        }
    }
    // Before the measurement: a run can take hours.
    let against = args.against.as_deref();
    let against = against
        .map(|dir| KeptRun::of(dir, &request, &known()))
        .transpose()?;
    if let Some(why) = against
        .as_ref()
        .and_then(|run| run.other_depth(request.depth))
    {
        warn(&format!("--against: {why}"));
    }
    request.against.clone_from(&args.against);
    let outcome = match platforms {
        None => tare_lab::weigh(request, &known())?,
        Some(options) => {
            let study = tare_platforms_study::planned(request.depth, options);
            tare_lab::weigh_planned(request, STUDY, study)?
        }
    };
    let printed = print(&outcome.to_string());
    if outcome.exit_code() == ExitCode::Terminated && printed.is_err() {
        // The terminal has gone; the report is in its files.
        return Ok(ExitCode::Terminated);
    }
    printed?;
    if outcome.exit_code() == ExitCode::Success
        && let Err(error) = prices::remember(&experiment, &outcome.directory)
    {
        warn(&format!("cannot keep these costs for tare why: {error}"));
    }
    let code = outcome.exit_code();
    let Some(before) = against else {
        return Ok(code);
    };
    // A failed or interrupted run has figures too; its own exit code takes precedence.
    let compared = tare_lab::compare(&before, &KeptRun::read(&outcome.directory)?, &known())?;
    print(&compared.text())?;
    let judged = judged(&compared, args.fail_on)?;
    Ok(match code {
        ExitCode::Success => judged,
        failed => failed,
    })
}

/// Options of the study of platforms.
fn options(args: PlatformArgs) -> PlatformOptions {
    let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
    PlatformOptions {
        workloads: args.workloads,
        platforms: args.platforms,
        sizes: args.sizes,
        container_engine: args.container_engine,
        resume: args.resume,
        shard: args.shard,
        merge: args.merge,
        seed: args.seed,
        budget: args.budget.map(minutes),
    }
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
