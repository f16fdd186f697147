//! Whole weighings against fakes, for the tests of experiments.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use serde_json::Value;
use tare_lab::kit::{Depth, Entry, Experiment, Figure, Record, of_figure};
use tare_lab::results::Summary;
use tare_lab::testing::{check, weigh_on};
use tare_lab::{Files, WeighEnd, WeighRequest, WeighResult, rebuild};
use tare_load::interrupt::Interrupt;
use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::{Fakes, Fault};
use tempfile::TempDir;

use super::ALL;
use super::ping_pong::{PingPong, PingPongSpec};

/// A weighing that is over.
pub(crate) struct Run {
    directory: TempDir,
    entry: Entry,
    pub(crate) fakes: Fakes,
    pub(crate) outcome: WeighResult,
}

impl Run {
    /// Weighs `experiment`, known as `name`, with machines from `fakes`.
    pub(crate) fn of(name: &str, experiment: Box<dyn Experiment>, fakes: Fakes) -> Self {
        Self::until(name, experiment, fakes, &Interrupt::default())
    }

    /// The same until `interrupt` trips.
    pub(crate) fn until(
        name: &str,
        experiment: Box<dyn Experiment>,
        fakes: Fakes,
        interrupt: &Interrupt,
    ) -> Self {
        Self::requested(name, WeighRequest::default(), experiment, fakes, interrupt)
    }

    /// The same as a request says.
    pub(crate) fn requested(
        name: &str,
        mut request: WeighRequest,
        experiment: Box<dyn Experiment>,
        mut fakes: Fakes,
        interrupt: &Interrupt,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        request.revision = "abc".to_owned();
        request.out = Some(directory.path().join("out"));
        request.command = ["tare", "weigh", "<an experiment>"]
            .map(str::to_owned)
            .into();
        let entry = *ALL.iter().find(|entry| entry.name == name).unwrap();
        let outcome = weigh_on(&mut fakes, &request, entry, experiment, interrupt).unwrap();
        let this = Self {
            directory,
            entry,
            fakes,
            outcome,
        };
        this.check();
        this
    }

    fn check(&self) {
        check(&self.entry, &self.text("summary.json"));
        for figure in self.summary().figures {
            let metric = of_figure(self.entry.metrics, &figure.name).unwrap();
            assert_eq!(figure.unit, metric.unit, "{}", figure.name);
        }
    }

    /// All that was planned was done.
    #[track_caller]
    pub(crate) fn is_complete(&self) {
        let WeighResult { ending, table, .. } = &self.outcome;
        assert_eq!(*ending, WeighEnd::Complete, "{table}");
    }

    /// Makes all results again, from the record.
    pub(crate) fn rebuilt(&self) -> WeighResult {
        let outcome = rebuild(&self.path(), ALL, Files::All).unwrap();
        self.check();
        outcome
    }

    /// Where the results are.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    /// The lines of the record that are of a kind.
    pub(crate) fn lines(&self, sample: &str) -> Vec<Value> {
        let text = self.text("raw.jsonl");
        let lines = text.lines();
        let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|line| line["sample"] == sample).collect()
    }

    /// Makes the report again from the raw samples alone; the figures must be the same.
    pub(crate) fn is_rebuilt_from_its_samples(&self) {
        let dir = self.path();
        let before = self.summary();
        for file in ["summary.json", "report.html", "report.md", "figures.csv"] {
            fs::remove_file(dir.join(file)).unwrap();
        }
        let outcome = self.rebuilt();
        let after = self.summary();
        // The record's decimals are read back to the last but one bit.
        let close = |(a, b): (&Figure, &Figure)| {
            a.name == b.name && a.n == b.n && (a.value - b.value).abs() <= 1e-9 * b.value.abs()
        };
        assert_eq!(after.figures.len(), before.figures.len());
        let mut pairs = after.figures.iter().zip(&before.figures);
        assert_eq!(pairs.find(|pair| !close(*pair)), None);
        assert_eq!(after.goals, before.goals);
        assert_eq!(after.machine.kvm, before.machine.kvm);
        assert!(outcome.directory.join("report.html").exists());
        assert!(self.text("report.md").contains("| figure |"));
    }

    /// A record whose machines' lines were lost does not replace the summary.
    pub(crate) fn is_kept_where_its_record_cannot_be_read(&self) {
        let raw = self.path().join("raw.jsonl");
        let text = self.text("raw.jsonl");
        let kept = text.lines().filter(|line| !line.contains("\"guest\""));
        fs::write(
            raw,
            kept.map(|line| format!("{line}\n")).collect::<String>(),
        )
        .unwrap();
        let before = self.text("summary.json");
        let error = rebuild(&self.path(), ALL, Files::All).unwrap_err();
        assert!(error.to_string().contains("record"), "{error}");
        assert_eq!(self.text("summary.json"), before);
    }

    /// A short weighing of two threads that answer each other, with machines that
    /// say what `prints` gives.
    pub(crate) fn of_ping_pong(
        kind: &'static PingPongSpec,
        prints: fn(&GuestSpec) -> Vec<Value>,
        fault: Fault,
    ) -> Self {
        let short = PingPong {
            turns: 2,
            exchanges: 4,
            ..PingPong::new(kind, Depth::Quick, None)
        };
        Self::of(kind.image, Box::new(short), Fakes::printing(prints, fault))
    }

    /// A file of the results.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    pub(crate) fn summary(&self) -> Summary {
        serde_json::from_str(&self.text("summary.json")).unwrap()
    }

    /// Every machine has ended.
    pub(crate) fn nothing_is_left(&self) {
        assert_eq!(self.fakes.alive.load(Ordering::SeqCst), 0);
        assert!(self.fakes.started > 0);
    }
}

/// The record of a run that is kept in `lab/runs`.
pub(crate) fn kept(name: &str) -> Record {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    Record::read(&runs.join(name)).unwrap()
}

/// A figure that must be there.
pub(crate) fn figure(summary: &Summary, name: &str) -> Figure {
    let found = summary.figures.iter().find(|f| f.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing")).clone()
}
