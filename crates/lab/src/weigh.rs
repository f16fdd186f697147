//! A weighing from request to outcome.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize as _;
use serde_json::{Value, json};
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_control::stats::Kvm;
use tare_host::shell::quoted;
use tare_load::interrupt::Interrupt;
use tare_machines::appliance::Executor;
use tare_machines::appliance::tare::TareRun;
use tare_machines::observe::Crowding;
use tare_machines::versions::{self, Versions};

use crate::bench::{Bench, RunError};
use crate::compare::KeptRun;
use crate::depth::Depth;
use crate::error::WeighError;
use crate::experiment::{Entry, Experiment, Merged};
use crate::export;
use crate::figure::{self, Figure};
use crate::goal::{JudgedGoal, Judgement, undecided, verdicts};
use crate::host::{self, HostFacts};
use crate::progress::Progress;
use crate::record::Recorder;
use crate::replay::Record;
use crate::report::{self, AGAINST, Report, ReportText};
use crate::stored_runs;
use crate::summary::{Digests, Effect, SCHEMA, Status, Summary, depth_of, subject_of};
use crate::table;
use crate::weigh_result::{WeighEnd, WeighResult};

/// How a run is recorded and judged, whatever it measures.
#[derive(Clone, Debug)]
pub struct WeighRequest {
    /// Where the results go; `None` makes `out/EXPERIMENT-DATE-TIME` here. A
    /// directory that exists must be empty.
    pub out: Option<PathBuf>,
    /// Whether a missed goal fails the run.
    pub fail_on_missed: bool,
    /// The earlier run that the page has beside the new one.
    pub against: Option<KeptRun>,
    /// Revision of the source that this program was built from.
    pub revision: String,
    /// The command as it was typed, added to `command.txt`.
    pub command: Vec<String>,
}

impl Default for WeighRequest {
    fn default() -> Self {
        Self {
            out: None,
            fail_on_missed: false,
            against: None,
            revision: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            command: std::env::args().collect(),
        }
    }
}

/// Runs an experiment that is planned, and writes its results. Progress goes to
/// standard error. Blocks; SIGINT and SIGTERM end it early with partial results.
pub fn weigh(
    request: &WeighRequest,
    entry: Entry,
    mut experiment: Box<dyn Experiment>,
) -> Result<WeighResult, WeighError> {
    let executable = std::env::current_exe().map_err(WeighError::Executable)?;
    let (interrupt, _watch) = Interrupt::watch().map_err(WeighError::Signals)?;
    experiment.configure()?;
    let progress = Progress::new(experiment.planned());
    let weighing = Weighing {
        entry,
        programs: host::programs(subject_of(&experiment.plan()).as_deref()),
        request,
        interrupt: &interrupt,
        progress: &progress,
        watches_host: true,
    };
    weighing.run(experiment, &mut TareRun::new(executable))
}

fn find(name: &str, known: &[Entry]) -> Result<Entry, WeighError> {
    let found = known.iter().find(|entry| entry.name == name);
    found.copied().ok_or_else(|| WeighError::UnknownExperiment {
        name: name.to_owned(),
        known: known.iter().map(|entry| entry.name).collect(),
    })
}

/// One weighing, whatever starts its machines.
pub(crate) struct Weighing<'a> {
    pub(crate) entry: Entry,
    /// What is run: digests and versions.
    pub(crate) programs: Value,
    pub(crate) request: &'a WeighRequest,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a Progress,
    /// Whether others that want the CPU leave goals unjudged.
    pub(crate) watches_host: bool,
}

impl Weighing<'_> {
    /// Runs the experiment and writes what came out, complete or not.
    pub(crate) fn run(
        &self,
        mut experiment: Box<dyn Experiment>,
        executor: &mut dyn Executor,
    ) -> Result<WeighResult, WeighError> {
        let started = SystemTime::now();
        let merged = experiment.merged().cloned();
        let host = merged
            .as_ref()
            .map_or_else(HostFacts::read, |it| it.machine.clone());
        let measures = self.watches_host && merged.is_none();
        let crowding = measures.then(Crowding::begin).flatten();
        if let Some(busy) = host.busy() {
            self.progress.say(&format!("warning: {busy}"));
        }
        let (mut recorder, mut commands) = match experiment.resumes() {
            Some(directory) => (Recorder::resume(directory)?, commands_of(directory)?),
            None => (Recorder::create(&self.directory(started))?, String::new()),
        };
        commands.push_str(&self.command());
        recorder.file("command.txt", commands.as_bytes())?;
        if let Some(earlier) = &self.request.against {
            recorder.file(AGAINST, earlier.json().as_bytes())?;
        }
        recorder.sample(&json!({
            "sample": "plan",
            "record": RECORD,
            "experiment": self.entry.name,
            "started": rfc3339(started),
            "revision": merged.as_ref().map_or(&self.request.revision, |it| &it.revision),
            "programs": self.programs(merged.as_ref()),
            "machine": host.before_guests(),
            "plan": experiment.plan(),
        }))?;
        let result = experiment.run(&mut Bench {
            executor,
            recorder: &mut recorder,
            progress: self.progress,
            interrupt: self.interrupt,
        });
        self.finish(
            &*experiment,
            &mut recorder,
            (host, crowding),
            started,
            result,
        )
    }

    fn finish(
        &self,
        experiment: &dyn Experiment,
        recorder: &mut Recorder,
        (mut host, crowding): (HostFacts, Option<Crowding>),
        started: SystemTime,
        result: Result<(), RunError>,
    ) -> Result<WeighResult, WeighError> {
        let (ending, broken) = ending(result);
        let mut failures = experiment.failures();
        failures.extend(broken);
        let took = started.elapsed().unwrap_or(Duration::ZERO);
        let merged = experiment.merged();
        if merged.is_none() {
            host.load_average_after = host::load_average();
        }
        if let Some(crowd) = crowding.and_then(Crowding::end) {
            host.seen(crowd);
        }
        host.waited_at_least(experiment.waited_pct());
        recorder.sample(&json!({
            "sample": "end", "failures": failures, "status": Status::of(ending, &failures),
            "took_s": took.as_secs_f64(), "load_average_after": host.load_average_after,
            "others_cpu_pct": host.others_cpu_pct, "own_wait_pct": host.own_wait_pct,
            "kvm": experiment.kvm(),
        }))?;
        recorder.flush()?;
        host.kvm = experiment.kvm();
        let mut versions = versions::of(&self.programs(merged));
        versions.extend(recorder.versions().clone());
        let origin = Origin {
            entry: self.entry,
            plan: experiment.plan(),
            versions,
            digests: Digests::of(&self.programs(merged)),
            started: merged.map_or_else(|| rfc3339(started), |it| it.started.clone()),
            revision: merged
                .map_or(&self.request.revision, |it| &it.revision)
                .clone(),
            machine: host,
            command: commands_of(recorder.directory())?,
            took,
            fail_on_missed: self.request.fail_on_missed,
            files: Files::All,
            against: KeptRun::read(&recorder.directory().join(AGAINST)).ok(),
        };
        write(recorder, experiment, origin, failures, ending, Vec::new())
    }

    /// What is run; merged runs were made by programs of their hosts.
    fn programs(&self, merged: Option<&Merged>) -> Value {
        let mut programs = self.programs.clone();
        if let (Some(_), Some(fields)) = (merged, programs.as_object_mut()) {
            fields.clear();
        }
        programs
    }

    /// Where the results of a new run go.
    fn directory(&self, started: SystemTime) -> PathBuf {
        self.request.out.clone().unwrap_or_else(|| {
            let stamp: String = rfc3339(started)
                .chars()
                .filter(|c| c.is_ascii_digit() || *c == 'T')
                .collect();
            Path::new("out").join(format!("{}-{}", self.entry.name, stamp.replace('T', "-")))
        })
    }

    /// The command as it can be typed again.
    fn command(&self) -> String {
        let args: Vec<String> = self.request.command.iter().map(|w| quoted(w)).collect();
        format!("{}\n", args.join(" "))
    }
}

/// The commands of a run, a line each: that with which it began, and those that continued it.
fn commands_of(directory: &Path) -> Result<String, WeighError> {
    let path = directory.join("command.txt");
    let mut commands = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|source| WeighError::Read { path, source })?,
    };
    if !commands.is_empty() && !commands.ends_with('\n') {
        commands.push('\n');
    }
    Ok(commands)
}

/// Where a run's samples come from.
struct Origin {
    entry: Entry,
    plan: Value,
    versions: Versions,
    digests: Option<Digests>,
    started: String,
    revision: String,
    machine: HostFacts,
    command: String,
    took: Duration,
    fail_on_missed: bool,
    files: Files,
    against: Option<KeptRun>,
}

/// Which files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// The summary, reports, and tables for other programs.
    All,
    /// `report.html` alone.
    Page,
}

/// Writes what came out: `summary.json`, the reports, and tables for other programs. `kept`
/// are figures of which the record may lack samples.
fn write(
    recorder: &Recorder,
    experiment: &dyn Experiment,
    origin: Origin,
    failures: Vec<String>,
    ending: WeighEnd,
    kept: Vec<Figure>,
) -> Result<WeighResult, WeighError> {
    let mut figures = experiment.figures();
    for old in kept {
        let new = figures.iter_mut().find(|new| new.name == old.name);
        match new {
            None => figures.push(old),
            Some(new) if experiment.lacks(&old.name) && old.n >= new.n => *new = old,
            Some(_) => {}
        }
    }
    let not_judged = origin.machine.not_judged();
    let goals = match not_judged {
        None => origin.entry.goals,
        Some(_) => &[],
    };
    let summary = Summary {
        schema: SCHEMA,
        experiment: origin.entry.name.to_owned(),
        depth: depth_of(&origin.plan),
        subject: subject_of(&origin.plan),
        started: origin.started,
        duration_s: origin.took.as_secs_f64(),
        status: Status::of(ending, &failures),
        revision: origin.revision,
        goals: verdicts(&figures, goals, origin.machine.kvm),
        effects: figures.iter().filter_map(Effect::of).collect(),
        not_judged,
        failures: failures.clone(),
        machine: origin.machine,
        versions: origin.versions,
        digests: origin.digests,
        figures,
    };
    let mut text = experiment.report(&summary.figures);
    text.limitations.splice(..0, unmet(&summary, experiment));
    let against = origin.against.as_ref();
    let beside = against.and_then(|earlier| earlier.beside(&summary, origin.entry));
    text.sections.extend(beside);
    if origin.files == Files::All {
        write_tables(recorder, &summary, &text)?;
    }
    let html = report::html(&Report {
        summary: &summary,
        goals,
        text,
        command: &origin.command,
        directory: recorder.directory(),
    });
    recorder.file("report.html", html.as_bytes())?;
    Ok(WeighResult {
        directory: recorder.directory().to_owned(),
        table: table::table(&summary.figures, goals, summary.machine.kvm),
        missed: missed(&summary),
        undecided: undecided(&summary.goals, goals),
        not_judged: summary.not_judged,
        failures,
        fail_on_missed: origin.fail_on_missed,
        ending,
    })
}

/// Writes the files beside the page.
fn write_tables(
    recorder: &Recorder,
    summary: &Summary,
    report: &ReportText,
) -> Result<(), WeighError> {
    let mut text = serde_json::to_string_pretty(&summary).unwrap_or_default();
    text.push('\n');
    recorder.file("summary.json", text.as_bytes())?;
    recorder.file("figures.csv", export::csv(summary).as_bytes())?;
    recorder.file("metrics.txt", export::metrics(summary).as_bytes())?;
    let path = recorder.directory().join("raw.jsonl");
    let raw = fs::File::open(&path).map_err(|source| WeighError::Read { path, source })?;
    let samples = export::samples::csv(std::io::BufReader::new(raw));
    recorder.file("samples.csv", samples.as_bytes())?;
    recorder.file("report.md", export::markdown(summary, report).as_bytes())
}

/// Version of the records that are written now: from 2 on a record has every sample.
const RECORD: u64 = 2;

/// Makes summary and report of a run directory again, from its raw samples: after a kill, or
/// with a newer program. Figures of which an early record lacks all samples, or some, are taken
/// over from its `summary.json`.
pub fn rebuild(dir: &Path, known: &[Entry], files: Files) -> Result<WeighResult, WeighError> {
    let record = Record::read(dir)?;
    let entry = find(&record.word("experiment").unwrap_or_default(), known)?;
    let plan = record
        .plan()
        .and_then(|line| line.get("plan"))
        .cloned()
        .unwrap_or_default();
    let depth = depth_of(&plan).map_or(Depth::Standard, |name| Depth::named(&name));
    let mut experiment = entry.planned(depth, subject_of(&plan));
    experiment.replan(&plan);
    let replayed = experiment.replay(&record);
    let earlier = stored_runs::summary(&dir.join("summary.json")).ok();
    let number = |name: &str| record.end().and_then(|end| end.get(name)?.as_f64());
    let mut machine = record.machine();
    machine.load_average_after = number("load_average_after");
    machine.others_cpu_pct = record.greatest("others_cpu_pct");
    machine.own_wait_pct = record.greatest("own_wait_pct");
    machine.waited_at_least(experiment.waited_pct());
    let used = record.end().and_then(|end| end.get("kvm"));
    let used = used.and_then(|kvm| Kvm::deserialize(kvm).ok());
    let used = used.or(earlier.as_ref().map(|earlier| earlier.machine.kvm));
    machine.kvm = match (experiment.kvm(), used) {
        (Kvm::None, Some(used)) => used,
        (kvm, _) => kvm,
    };
    let status = |end: &Value| {
        end.get("status")
            .and_then(|it| Status::deserialize(it).ok())
    };
    let ending = match record.end().map(status) {
        // A kill leaves no end.
        None | Some(Some(Status::Interrupted)) => WeighEnd::Interrupted(ExitCode::Success),
        Some(Some(Status::Broken)) => WeighEnd::Broken(ExitCode::WeighFailed),
        Some(_) => WeighEnd::Complete,
    };
    let partly = experiment.was_recorded_in_part() && record.version() < RECORD;
    if let Err(error) = replayed
        && ending == WeighEnd::Complete
        && (earlier.is_none() || !partly)
    {
        let why = format!("cannot read the record back: {}", chain(&error));
        return Err(WeighError::Option(why));
    }
    // Such a record is of an earlier form: what it gave is in its summary alone.
    let had = earlier.as_ref().is_some_and(|it| !it.figures.is_empty());
    if had && !partly && experiment.figures().is_empty() {
        let why = format!("the record in {} gives no figures now", dir.display());
        return Err(WeighError::Option(why));
    }
    let origin = Origin {
        entry,
        plan,
        versions: record.versions(),
        digests: record.digests(),
        started: record.word("started").unwrap_or_default(),
        revision: record.word("revision").unwrap_or_default(),
        machine,
        command: fs::read_to_string(dir.join("command.txt")).unwrap_or_default(),
        took: Duration::from_secs_f64(number("took_s").unwrap_or(0.0).clamp(0.0, 1e9)),
        fail_on_missed: false,
        files,
        against: KeptRun::read(&dir.join(AGAINST)).ok(),
    };
    let mut failures = record.failures();
    failures.extend(
        experiment
            .failures()
            .into_iter()
            .filter(|it| !record.failures().contains(it)),
    );
    let kept = earlier
        .filter(|_| partly)
        .map_or_else(Vec::new, |earlier| earlier.figures);
    write(
        &Recorder::silent(dir),
        &*experiment,
        origin,
        failures,
        ending,
        kept,
    )
}

/// A sentence for each goal that is not met, with its cause where the experiment knows one.
fn unmet(summary: &Summary, experiment: &dyn Experiment) -> Vec<String> {
    let sentence = |goal: &JudgedGoal| {
        let figure = figure::find(&summary.figures, &goal.figure)?;
        let sentence = goal.sentence(figure)?;
        Some(match experiment.cause(&summary.figures, figure) {
            Some(cause) => format!("{sentence} {cause}"),
            None => sentence,
        })
    };
    summary.goals.iter().filter_map(sentence).collect()
}

/// A sentence for each goal that was missed.
fn missed(summary: &Summary) -> Vec<String> {
    let missed = summary
        .goals
        .iter()
        .filter(|goal| goal.verdict == Judgement::Missed);
    let sentences =
        missed.filter_map(|goal| goal.sentence(figure::find(&summary.figures, &goal.figure)?));
    sentences.collect()
}

fn ending(result: Result<(), RunError>) -> (WeighEnd, Option<String>) {
    match result {
        Ok(()) => (WeighEnd::Complete, None),
        Err(RunError::Interrupted(interrupted)) => {
            (WeighEnd::Interrupted(interrupted.exit_code()), None)
        }
        Err(error) => {
            let code = match error.exit_code() {
                ExitCode::Success => ExitCode::WeighFailed,
                code => code,
            };
            (WeighEnd::Broken(code), Some(chain(&error)))
        }
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Replay;
    use crate::testing::{KNOWN, Nothing, weigh_on};

    #[test]
    fn a_run_that_is_continued_keeps_its_first_command() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let weighed = |resumed: Option<PathBuf>, word: &str| {
            let request = WeighRequest {
                out: Some(out.clone()),
                command: vec!["tare".to_owned(), word.to_owned()],
                ..WeighRequest::default()
            };
            let experiment = Box::new(Nothing(resumed));
            let (mut none, interrupt) = (Replay::default(), Interrupt::default());
            weigh_on(&mut none, &request, KNOWN[0], experiment, &interrupt).unwrap();
            ["command.txt", "report.html"].map(|file| fs::read_to_string(out.join(file)).unwrap())
        };
        assert_eq!(weighed(None, "first")[0], "tare first\n");
        let [commands, page] = weighed(Some(out.clone()), "second");
        assert_eq!(commands, "tare first\ntare second\n");
        assert!(
            page.contains(commands.trim_end()),
            "the page of a run made again has both"
        );
        // An early record has none, or one without its end of line.
        fs::write(out.join("command.txt"), "tare first").unwrap();
        assert_eq!(
            weighed(Some(out.clone()), "third")[0],
            "tare first\ntare third\n"
        );
        fs::remove_file(out.join("command.txt")).unwrap();
        assert_eq!(weighed(Some(out.clone()), "fourth")[0], "tare fourth\n");
    }

    #[test]
    fn an_unknown_experiment_lists_those_there_are() {
        let error = find("http-burst", KNOWN).map(drop);
        let text = error.map_err(|e| (e.to_string(), e.exit_code()));
        let expected = "there is no experiment 'http-burst'; there are: http-bursts, ";
        let (said, code) = text.expect_err("no such experiment");
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(code, ExitCode::Usage);
    }
}
