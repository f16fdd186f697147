//! `tare advise`: recommends how to run an application.
//!
//! The rules are in `crates/advise`; this module has their input ([`mod@measure`]), the output, and
//! the trial of a recommendation ([`trial`]).

mod advised;
mod disks;
mod measure;
mod text;
mod trial;

use std::path::{Path, PathBuf};

use tare_advise::{Change, Figure, Runs, Workload, workload};
use tare_control::exit::ExitCode;
use tare_lab::stored_runs;
use tare_pin::{Host, Store, Target};
use tare_policy::placement::Class;

use self::advised::{Advised, facts_of};
use self::measure::measure;
use crate::args::AdviseArgs;
use crate::failure::{CommandResult, Failure};
use crate::output::print;
use crate::pin::recover;
use crate::signals::Requests;

/// Another directory of stored runs.
const RUNS_VARIABLE: &str = "TARE_RUNS";

/// Prints recommendations; with `--try` also tries them.
pub(crate) fn advise(args: &AdviseArgs) -> CommandResult {
    let store = Store::open_default()?;
    let requests = Requests::watch().map_err(|error| Failure::new(ExitCode::Internal, error))?;
    recover(&store);
    let host = Host::read()?;
    let runs = runs();
    let (advised, target) = match &args.target {
        None => (kinds(&host, &runs), None),
        Some(name) => match workload(name) {
            Some(known) => (vec![planned(&host, known, &runs)], None),
            None => {
                let target = Target::find(name)?;
                let window = args.seconds.duration();
                let (facts, unavailable) = measure(&target, name, &host, window, &requests)?;
                let advised = Advised::of(format!("{name} (now)"), facts, unavailable, &runs);
                (vec![advised], Some(target))
            }
        },
    };
    if args.json {
        let json = serde_json::to_string_pretty(&advised)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return print(&(json + "\n"));
    }
    let code = print(&text::of(&advised))?;
    if !args.try_it {
        return Ok(code);
    }
    let pins = advised
        .iter()
        .flat_map(|advised| &advised.report.advice)
        .any(|advice| advice.change == Change::Pin);
    match (target, &args.target) {
        (Some(target), Some(name)) if pins => {
            let trial = trial::Trial {
                store: &store,
                name,
                target: &target,
                host: &host,
                class: advised.first().and_then(|advised| advised.facts.class),
                window: args.seconds.duration().div_f64(5.0),
            };
            trial.run(&requests)
        }
        _ => print("Nothing to try: no advice here is to pin something that runs.\n"),
    }
}

/// The recommendations for each kind of workload on this host.
fn kinds(host: &Host, runs: &Runs) -> Vec<Advised> {
    [
        ("CPU-bound work (ffmpeg, MPI)", Class::CpuBound),
        ("I/O-bound work (web servers, caches)", Class::IoBound),
        (
            "ultra-I/O-bound work (databases, disks)",
            Class::UltraIoBound,
        ),
    ]
    .into_iter()
    .map(|(subject, class)| {
        let mut facts = facts_of(host, "TARGET");
        facts.class = Some(class);
        Advised::of(subject.to_owned(), facts, Vec::new(), runs)
    })
    .collect()
}

/// The recommendations for a planned workload on this host.
fn planned(host: &Host, known: Workload, runs: &Runs) -> Advised {
    let mut facts = facts_of(host, "TARGET");
    facts.class = Some(known.class);
    facts.workload = Some(known.name);
    let subject = format!("{} (planned; {})", known.name, known.source);
    Advised::of(subject, facts, Vec::new(), runs)
}

fn runs() -> Runs {
    let set = std::env::var_os(RUNS_VARIABLE).map(PathBuf::from);
    let mut places: Vec<&Path> = stored_runs::PLACES.iter().map(Path::new).collect();
    places.extend(set.as_deref());
    let figures = stored_runs::figures(&places, &Runs::PREFIXES)
        .into_iter()
        .map(|it| Figure {
            name: it.name,
            value: it.value,
            low: it.low,
            high: it.high,
            run: it.run,
        });
    Runs::new(figures.collect())
}
