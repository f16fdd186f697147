//! A weighing from request to outcome.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::json;
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_control::shell::quoted;

use crate::appliance::Executor;
use crate::appliance::tare::TareRun;
use crate::bench::{Bench, RunError};
use crate::error::WeighError;
use crate::experiments::{self, Entry, Experiment, Subject};
use crate::figure;
use crate::goal::{Judgement, verdicts};
use crate::host::{HostFacts, revision};
use crate::interrupt::Interrupt;
use crate::outcome::{Ending, Outcome};
use crate::progress::Progress;
use crate::record::Recorder;
use crate::report::{self, Report};
use crate::request::WeighRequest;
use crate::summary::{SCHEMA, Status, Summary};
use crate::table;

/// Runs an experiment and writes its results. Progress goes to standard error.
/// Blocks; SIGINT and SIGTERM end it early with partial results.
pub fn weigh(request: WeighRequest) -> Result<Outcome, WeighError> {
    let entry = find(&request.experiment)?;
    let executable = match &request.tare {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(WeighError::Executable)?,
    };
    let (interrupt, _watch) = Interrupt::watch().map_err(WeighError::Signals)?;
    let subject = subject(entry, &request)?;
    let mut experiment = (entry.make)(request.depth, subject);
    experiment.configure(&request)?;
    let progress = Progress::new(experiment.planned());
    let weighing = Weighing {
        entry,
        revision: revision(&executable),
        request: &request,
        interrupt: &interrupt,
        progress: &progress,
    };
    weighing.run(experiment, &mut TareRun::new(executable))
}

fn find(name: &str) -> Result<&'static Entry, WeighError> {
    let found = experiments::ALL.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| WeighError::UnknownExperiment {
        name: name.to_owned(),
        known: experiments::ALL.iter().map(|entry| entry.name).collect(),
    })
}

/// The image or application to measure, if the experiment takes one.
fn subject(entry: &Entry, request: &WeighRequest) -> Result<Option<String>, WeighError> {
    let refused = |option| {
        let name = entry.name;
        Err(WeighError::Option(format!(
            "{option} is not an option of {name}"
        )))
    };
    match (entry.subject, &request.image, &request.app) {
        (Subject::App | Subject::Own, Some(_), _) => refused("--image"),
        (Subject::Image | Subject::Own, _, Some(_)) => refused("--app"),
        (_, image, app) => Ok(image.clone().or(app.clone())),
    }
}

/// One weighing, whatever starts its machines.
pub(crate) struct Weighing<'a> {
    pub(crate) entry: &'static Entry,
    pub(crate) revision: String,
    pub(crate) request: &'a WeighRequest,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a Progress,
}

impl Weighing<'_> {
    /// Runs the experiment and writes what came out, complete or not.
    pub(crate) fn run(
        &self,
        mut experiment: Box<dyn Experiment>,
        executor: &mut dyn Executor,
    ) -> Result<Outcome, WeighError> {
        let started = SystemTime::now();
        let host = HostFacts::read();
        let directory = self.directory(started);
        let mut recorder = match &self.request.platforms.resume {
            Some(_) => Recorder::resume(&directory)?,
            None => Recorder::create(&directory)?,
        };
        recorder.file("command.txt", self.command().as_bytes())?;
        recorder.sample(&json!({
            "sample": "plan",
            "experiment": self.entry.name,
            "started": rfc3339(started),
            "revision": self.revision,
            "machine": host,
            "plan": experiment.plan(),
        }))?;
        let result = experiment.run(&mut Bench {
            executor,
            recorder: &mut recorder,
            progress: self.progress,
            interrupt: self.interrupt,
        });
        self.finish(&*experiment, &mut recorder, host, started, result)
    }

    fn finish(
        &self,
        experiment: &dyn Experiment,
        recorder: &mut Recorder,
        mut host: HostFacts,
        started: SystemTime,
        result: Result<(), RunError>,
    ) -> Result<Outcome, WeighError> {
        let (ending, broken) = ending(result);
        let mut failures = experiment.failures();
        failures.extend(broken);
        recorder.sample(&json!({"sample": "end", "failures": failures}))?;
        recorder.flush()?;
        host.kvm = experiment.kvm();
        let figures = experiment.figures();
        let goals = experiment.goals();
        let took = started.elapsed().unwrap_or(Duration::ZERO);
        let summary = Summary {
            schema: SCHEMA,
            experiment: self.entry.name.to_owned(),
            started: rfc3339(started),
            duration_s: took.as_secs_f64(),
            status: Status::of(ending, &failures),
            revision: self.revision.clone(),
            goals: verdicts(&figures, goals, host.kvm),
            failures: failures.clone(),
            machine: host,
            figures,
        };
        let mut text = serde_json::to_string_pretty(&summary).unwrap_or_default();
        text.push('\n');
        recorder.file("summary.json", text.as_bytes())?;
        let html = report::html(&Report {
            summary: &summary,
            goals,
            text: experiment.report(&summary.figures),
            failures: &failures,
            ending,
            command: &self.command(),
            took,
        });
        recorder.file("report.html", html.as_bytes())?;
        Ok(Outcome {
            directory: recorder.directory().to_owned(),
            table: table::table(&summary.figures, goals, summary.machine.kvm),
            failures,
            missed: missed(&summary),
            fail_on_missed: self.request.fail_on_missed,
            ending,
        })
    }

    /// Where the results go.
    fn directory(&self, started: SystemTime) -> PathBuf {
        let resumed = self.request.platforms.resume.clone();
        resumed.or(self.request.out.clone()).unwrap_or_else(|| {
            let stamp: String = rfc3339(started)
                .chars()
                .filter(|c| c.is_ascii_digit() || *c == 'T')
                .collect();
            Path::new("out").join(format!("{}-{}", self.entry.name, stamp.replace('T', "-")))
        })
    }

    /// The command as it can be typed again.
    fn command(&self) -> String {
        let words: Vec<String> = self.request.command.iter().map(|w| quoted(w)).collect();
        format!("{}\n", words.join(" "))
    }
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

fn ending(result: Result<(), RunError>) -> (Ending, Option<String>) {
    match result {
        Ok(()) => (Ending::Complete, None),
        Err(RunError::Interrupted(interrupted)) => {
            (Ending::Interrupted(interrupted.exit_code()), None)
        }
        Err(error) => {
            let code = match error.exit_code() {
                ExitCode::Success => ExitCode::WeighFailed,
                code => code,
            };
            (Ending::Broken(code), Some(chain(&error)))
        }
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_lists_those_there_are() {
        let error = weigh(WeighRequest::new("http-burst")).map(drop);
        let text = error.map_err(|e| (e.to_string(), e.exit_code()));
        let expected = "there is no experiment 'http-burst'; there are: http-bursts, ";
        let (said, code) = text.expect_err("no such experiment");
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(code, ExitCode::Usage);
    }

    #[test]
    fn options_of_other_experiments_are_refused() {
        let told = |experiment: &str, image: Option<&str>, app: Option<&str>| {
            let mut request = WeighRequest::new(experiment);
            request.image = image.map(str::to_owned);
            request.app = app.map(str::to_owned);
            let entry = find(experiment).ok()?;
            subject(entry, &request).ok().flatten()
        };
        assert_eq!(
            told("tailor", None, Some("nginx")),
            Some("nginx".to_owned())
        );
        assert_eq!(told("kv", Some("kv"), None), Some("kv".to_owned()));
        assert_eq!(told("kv", None, Some("nginx")), None);
        assert_eq!(told("tailor", Some("kv"), None), None);
        assert_eq!(told("platforms", Some("kv"), None), None);
    }
}
