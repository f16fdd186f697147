//! CPU-Pinning 2020's study: workloads on bare metal, in a container, in a virtual
//! machine and in a container in one, vanilla and pinned, at doubling sizes.
//!
//! ```text
//! options ── plan (cells, order) ── stage (tare-platform) ── data (runs)
//!                                        observe ┘             │
//!      report ── findings, model, figures ── analysis, fit, instrument ─┘
//! ```
//! Runs go to `raw.jsonl` as they come; `--resume` continues such a record,
//! `--merge` reads those of several hosts, `--shard` does a part of the whole.

#![forbid(unsafe_code)]

mod analysis;
mod charts;
mod data;
mod estimate;
mod evidence;
mod figures;
mod findings;
mod fit;
mod instrument;
mod model;
mod observe;
mod options;
mod plan;
mod record;
mod report;
mod schedule;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_control::stats::Kvm;
pub use tare_platform::Platform;
pub use tare_platform::container_engine::ContainerEngine;
pub use tare_platform::journal;
use tare_platform::place::doubling;
use tare_platform::workload::{self, Form};
use tare_platform::{Mode, Place, Step, Timeout, Validity, Workload, pin};

pub use options::{PlatformOptions, parse_shard};
pub(crate) use stage::StageError;

use data::{Data, Run};
use observe::Observed;
use plan::{Cell, Turn};
use stage::{Ran, RunRequest, Stage};
use tare_lab::kit::{
    Bench, Depth, Entry, Experiment, Figure, Goal, HostFacts, Make, Merged, Metric, Record,
    ReportText, RunError, WeighError, sha256_of_text,
};

/// Making the root, and installing a workload, may each take so long.
const MAKING: Duration = Duration::from_secs(30 * 60);
/// A run may take so long even where less of the budget is left.
const LEAST_LIMIT: Duration = Duration::from_secs(30);
/// What the observer may cost, and the A/A arms differ, percent.
const GOALS: &[Goal] = &[
    Goal::on_any("aa_half_width_pct", 2.0),
    Goal::on_any("observer_cost_pct", 2.0),
    Goal::on_any("observer_accounted_pct", 2.0),
];

/// The experiment.
pub(crate) struct Platforms {
    form: Form,
    /// Time for runs.
    budget: Duration,
    /// Time for all, set-up with it.
    whole: Option<Duration>,
    pub(self) seed: u64,
    host: String,
    host_cpus: u32,
    /// CPUs of the host, also those that this may not use.
    online: u32,
    workloads: Vec<Workload>,
    sizes: Vec<u32>,
    options: PlatformOptions,
    pub(self) data: Data,
    /// Where the runs are from that were read instead of measured.
    merged: Option<Merged>,
    /// What is not available here.
    missing: Vec<String>,
    failures: BTreeMap<String, usize>,
    /// Kinds of runs that failed so often in a row.
    bad: BTreeMap<Cell, usize>,
    /// What a kind of run takes, s.
    took: BTreeMap<Cell, f64>,
}

/// What it measures.
pub(crate) const METRICS: &[Metric] = &[
    Metric::less("ratio", "x"),
    Metric::less("pto_pct", "%"),
    Metric::less("pso_pct", "%"),
    Metric::more("pin_gain_pct", "%"),
    Metric::neither("pin_control_pct", "%"),
    Metric::neither("quota_to_set_pct", "%"),
    Metric::neither("aa_pct", "%"),
    // It describes a run: by chance alone it is another in the next.
    Metric::neither("aa_half_width_pct", "%"),
    Metric::less("aa_significant_pct", "%"),
    Metric::neither("aa_left_out", "1"),
    Metric::more("finds_5pct_of_100", "1"),
    Metric::less("runs_to_find_5pct", "1"),
    Metric::less("observer_cost_pct", "%"),
    Metric::less("observer_accounted_pct", "%"),
    // Of a model: another one is not a change of the host.
    Metric::neither("model_pct", "%"),
];

/// The study among the experiments.
pub const ENTRY: Entry = Entry {
    name: "platforms",
    about: "bare metal, container, VM, container in VM: what each costs, and what pinning gains",
    metrics: METRICS,
    goals: GOALS,
    make: Make::Other(|depth| PlatformOptions::default().planned(depth)),
};

impl PlatformOptions {
    /// The study with these options.
    pub fn planned(self, depth: Depth) -> Box<dyn Experiment> {
        Box::new(Platforms {
            options: self,
            ..Platforms::new(depth)
        })
    }
}

/// A stage that cannot be set up breaks the weighing off.
impl From<StageError> for RunError {
    fn from(error: StageError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl Platforms {
    /// Planned for a depth; [`Experiment::configure`] says the rest.
    pub(crate) fn new(depth: Depth) -> Self {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let (form, budget, whole) = match depth {
            Depth::Quick => (Form::Quick, minutes(12), Some(minutes(14))),
            Depth::Standard => (Form::Standard, minutes(45), None),
            Depth::Full => (Form::Full, minutes(12 * 60), None),
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host_cpus = pin::allowed().len() as u32;
        Self {
            form,
            budget,
            whole,
            seed: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |t| t.as_secs()),
            // Two computers may have one name.
            host: format!("{}#{}", host.trim(), HostFacts::read().identity()),
            host_cpus,
            online: pin::online().len() as u32,
            workloads: Vec::new(),
            sizes: doubling(host_cpus),
            options: PlatformOptions::default(),
            data: Data::default(),
            merged: None,
            missing: Vec::new(),
            failures: BTreeMap::new(),
            bad: BTreeMap::new(),
            took: BTreeMap::new(),
        }
    }

    fn choose_workloads(&mut self) -> Result<(), WeighError> {
        let named = !self.options.workloads.is_empty();
        let names = if named {
            self.options.workloads.clone()
        } else {
            workload::known()
        };
        for name in names {
            let workload = match workload::find(&name) {
                Ok(workload) => workload,
                // One that was not requested does not stop the others.
                Err(error) if !named => {
                    self.missing.push(format!("workload {name}: {error}"));
                    continue;
                }
                Err(error) => return Err(WeighError::NotAvailable(Box::new(error))),
            };
            match workload.parameters(self.form) {
                Some(_) if !named && self.form < workload.unasked_from => {}
                Some(_) => self.workloads.push(workload),
                None if named => {
                    let why = format!("workload {name} has no {} form", self.form.name());
                    return Err(WeighError::Option(why));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn choose_sizes(&mut self) -> Result<(), WeighError> {
        if self.options.sizes.is_empty() {
            return Ok(());
        }
        self.sizes.clone_from(&self.options.sizes);
        let cpus = self.host_cpus;
        match self.sizes.iter().find(|size| !(1..=cpus).contains(*size)) {
            Some(size) => Err(WeighError::Option(format!(
                "size {size} is not available: this machine allows 1 to {cpus} CPUs"
            ))),
            None => Ok(()),
        }
    }

    /// CPUs of the host that the runs are of, which need not be this one; the first host's
    /// where records of several were merged.
    fn cpus_of_runs(&self) -> u32 {
        let hosts = self.data.hosts();
        hosts.first().map_or(self.host_cpus, |(_, cpus)| *cpus)
    }

    pub(self) fn place(&self, platform: Platform, mode: Mode, size: u32) -> Place {
        Place::new(platform, mode, size, self.cpus_of_runs())
    }

    pub(self) fn translated(&self) -> bool {
        let tcg = tare_platform::machine::Engine::QemuTcg.name();
        let mut engines = self
            .data
            .runs
            .iter()
            .filter_map(|run| run.engine.as_deref());
        engines.any(|engine| engine == tcg)
    }

    pub(self) fn limitations(&self) -> Vec<String> {
        let mut sentences = self.missing.clone();
        if self.options.container_engine == ContainerEngine::Podman {
            let sentence =
                "Containers are podman's: conmon and runc, with its own seccomp profile.";
            sentences.push(sentence.to_owned());
        }
        if !self.options.wanted().contains(&Platform::Bare) && self.options.merge.is_empty() {
            let sentence = "No ratios: bare metal was not among the platforms that were requested.";
            sentences.push(sentence.to_owned());
        }
        let online = self.online;
        if self.host_cpus < online && self.options.merge.is_empty() {
            sentences.push(format!(
                "This weighing was allowed {} of this host's {online} CPUs (by a cpuset or its \
                 affinity): sizes and CHR are of those.",
                self.host_cpus
            ));
        }
        if self.cpus_of_runs() == 1 {
            sentences.push("One CPU: there is one size, and nothing to float among.".to_owned());
        }
        sentences
    }

    /// Prepares the platforms: an unavailable one is reported, and the rest runs.
    fn set_up(&mut self, bench: &mut Bench<'_>) -> Result<Stage, RunError> {
        let begin = Instant::now();
        let stop = || bench.interrupt.check().is_err();
        // Where all has its time, making one thing takes half of what is left at most.
        let whole = self.whole;
        let timeout = || Timeout {
            limit: whole.map_or(MAKING, |whole| whole.saturating_sub(begin.elapsed()) / 2),
            stop: &stop,
        };
        bench.progress.step("root file system");
        let wanted = self.options.wanted();
        let engine = self.options.container_engine;
        let tare = env::current_exe().map_err(WeighError::Executable)?;
        let stage = Stage::new(&tare, &wanted, engine, timeout());
        bench.interrupt.check()?;
        let mut stage = stage?;
        for workload in std::mem::take(&mut self.workloads) {
            bench
                .progress
                .step(&format!("installing {}", workload.name));
            let installed = stage.install(&workload, self.form, timeout());
            bench.interrupt.check()?;
            match installed {
                Ok(()) => {
                    for (package, version) in stage.versions(&workload) {
                        bench.recorder.version(&package, &version)?;
                    }
                    self.workloads.push(workload);
                }
                Err(error) => self.fail(format!("{}: {}", workload.name, chain(&error))),
            }
        }
        self.missing.append(&mut stage.missing);
        if !wanted.iter().any(|platform| platform.has_linux_guest()) {
            return Ok(stage);
        }
        bench.progress.step("disk of the root");
        let disk = stage.finish_root(timeout());
        for size in self.sizes.clone() {
            let booted = match &disk {
                Ok(()) => {
                    bench
                        .progress
                        .step(&format!("booting a machine of {size} CPUs"));
                    stage.boot(size, bench.interrupt).map_err(|e| chain(&e))
                }
                Err(error) => Err(chain(error)),
            };
            bench.interrupt.check()?;
            if let Err(why) = booted {
                self.missing.push(format!("machines of {size} CPUs: {why}"));
            }
        }
        Ok(stage)
    }

    fn fail(&mut self, what: String) {
        *self.failures.entry(what).or_default() += 1;
    }

    fn once(
        &mut self,
        bench: &mut Bench<'_>,
        stage: &mut Stage,
        cell: &Cell,
        turn: Turn,
        left: Duration,
    ) -> Result<(), RunError> {
        bench.interrupt.check()?;
        let Some(workload) = self.workloads.iter().find(|w| w.name == cell.workload) else {
            return Ok(());
        };
        let Some(step) = Step::new(workload, self.form, cell.place.size) else {
            return Ok(());
        };
        let step = step.within(left.max(LEAST_LIMIT));
        bench.progress.step(&format!(
            "round {}: {} on {}",
            turn.round + 1,
            cell.workload,
            cell.place
        ));
        let begin = Instant::now();
        let request = RunRequest {
            cell,
            step: &step,
            workload,
            form: self.form,
            warms_up: !self.is_warm(cell),
        };
        let ran = stage.run(&request, bench.interrupt);
        bench.interrupt.check()?;
        let (value, failure, ran) = match ran {
            Ok(ran) => match &ran.report.validity {
                Validity::Valid(value) => (Some(*value), None, Some(ran)),
                Validity::Invalid(why) => (None, Some(why.clone()), Some(ran)),
            },
            Err(error) => (None, Some(chain(&error)), None),
        };
        let run = self.run_of(
            workload,
            cell,
            turn,
            value,
            failure,
            ran.as_ref(),
            begin.elapsed(),
        );
        self.note(&run);
        bench.recorder.sample(&run)?;
        bench.recorder.flush()?;
        self.data.runs.push(run);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn run_of(
        &self,
        workload: &Workload,
        cell: &Cell,
        turn: Turn,
        value: Option<f64>,
        failure: Option<String>,
        ran: Option<&Ran>,
        took: Duration,
    ) -> Run {
        Run {
            sample: "run".to_owned(),
            host: self.host.clone(),
            host_cpus: self.host_cpus,
            cell: cell.clone(),
            round: turn.round,
            block: Some(turn.block),
            warm_up: !self.is_warm(cell),
            value,
            unit: workload.metric.unit.clone(),
            time: value.map(|value| workload.time_of(value)),
            failure,
            wall_s: ran.map_or(0.0, |ran| ran.report.wall_us as f64 / 1e6),
            took_s: took.as_secs_f64(),
            observed: ran.map_or_else(Observed::default, |ran| ran.observed.clone()),
            engine: ran.and_then(|ran| ran.engine.clone()),
        }
    }

    /// The first run of a workload on a platform and size of this process fills
    /// caches.
    fn is_warm(&self, cell: &Cell) -> bool {
        let same = |other: &Cell| {
            other.workload == cell.workload
                && other.place.platform == cell.place.platform
                && other.place.size == cell.place.size
        };
        self.took.keys().any(same)
    }

    fn note(&mut self, run: &Run) {
        self.took.insert(run.cell.clone(), run.took_s);
        match &run.failure {
            None => {
                self.bad.remove(&run.cell);
            }
            Some(_) => {
                *self.bad.entry(run.cell.clone()).or_default() += 1;
            }
        }
    }
}

fn by_name(workloads: &[Workload], what: impl Fn(&Workload) -> String) -> BTreeMap<&str, String> {
    let each = workloads
        .iter()
        .map(|workload| (workload.name.as_str(), what(workload)));
    each.collect()
}

fn names(platforms: &[Platform]) -> String {
    let names: Vec<&str> = platforms.iter().map(|platform| platform.name()).collect();
    names.join(", ")
}

impl Experiment for Platforms {
    fn configure(&mut self) -> Result<(), WeighError> {
        self.seed = self.options.seed.unwrap_or(self.seed);
        if let Some(budget) = self.options.budget {
            if budget.is_zero() {
                let why = "--budget 0 leaves no time for a run: give at least 1 minute";
                return Err(WeighError::Option(why.to_owned()));
            }
            (self.budget, self.whole) = (budget, None);
        }
        if let Some(dir) = &self.options.resume {
            self.check_record(dir)?;
        }
        let records = self.options.merge.iter().chain(&self.options.resume);
        for dir in &records.cloned().collect::<Vec<_>>() {
            let read = self.data.read(dir);
            let path = dir.join("raw.jsonl");
            let added = read.map_err(|source| WeighError::Read { path, source })?;
            if self.options.resume.is_none() {
                self.merge(dir, added)?;
            } else {
                // It was checked to be of this host.
                self.data.adopt(&self.host);
            }
        }
        if self.options.merge.is_empty() {
            self.choose_workloads()?;
            self.choose_sizes()?;
        }
        if let Some(dir) = self.options.resume.clone() {
            self.check_workloads(&dir)?;
        }
        Ok(())
    }

    fn resumes(&self) -> Option<&Path> {
        self.options.resume.as_deref()
    }

    fn planned(&self) -> Duration {
        if self.options.merge.is_empty() {
            self.budget
        } else {
            Duration::ZERO
        }
    }

    fn plan(&self) -> Value {
        json!({
            "form": self.form.name(), "budget_s": self.budget.as_secs(), "seed": self.seed,
            "host": self.host, "host_cpus": self.host_cpus, "online_cpus": self.online,
            "sizes": self.sizes,
            "workloads": self.workloads.iter().map(|w| &w.name).collect::<Vec<_>>(),
            "workload_texts": by_name(&self.workloads, |w| w.text.clone()),
            "workload_sha256": by_name(&self.workloads, |w| sha256_of_text(&w.text)),
            "platforms": self.options.wanted().iter().map(|p| p.name()).collect::<Vec<_>>(),
            "container_engine": self.options.container_engine.name(),
            "shard": self.options.shard, "merge": self.options.merge,
        })
    }

    fn replan(&mut self, plan: &Value) {
        let number = |name: &str| plan.get(name).and_then(Value::as_u64);
        let word = |name: &str| plan.get(name).and_then(Value::as_str);
        self.seed = number("seed").unwrap_or(self.seed);
        // Earlier records do not say how many there were.
        self.online = number("online_cpus").map_or(0, |cpus| cpus as u32);
        if let Some(Ok(engine)) = word("container_engine").map(str::parse) {
            self.options.container_engine = engine;
        }
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        let path = record.dir.join("raw.jsonl");
        let read = self.data.read(&record.dir);
        read.map_err(|source| WeighError::Read { path, source })?;
        if let Some((_, cpus)) = self.data.hosts().first() {
            self.host_cpus = *cpus;
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let begin = Instant::now();
        let result = if self.options.merge.is_empty() {
            self.set_up(bench).and_then(|mut stage| {
                if let Some(whole) = self.whole {
                    self.budget = self.budget.min(whole.saturating_sub(begin.elapsed()));
                }
                self.rounds(bench, &mut stage)
            })
        } else {
            for run in &self.data.runs {
                bench.recorder.sample(run)?;
            }
            Ok(())
        };
        bench
            .recorder
            .file("runs.csv", self.data.csv().as_bytes())?;
        result
    }

    fn kvm(&self) -> Kvm {
        let engines = self
            .data
            .runs
            .iter()
            .filter_map(|run| run.engine.as_deref());
        let kinds = engines.map(|engine| match engine {
            stage::ON_EMULATION => Kvm::Emulated,
            stage::ON_HARDWARE => Kvm::Hardware,
            engine if engine == tare_platform::machine::Engine::Tare.name() => Kvm::Hardware,
            _ => Kvm::None,
        });
        // The first that there is, in the order of their speed.
        kinds.min_by_key(|kind| *kind as u8).unwrap_or(Kvm::None)
    }

    fn merged(&self) -> Option<&Merged> {
        self.merged.as_ref()
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = figures::figures(&self.data, &self.costs());
        figures.extend(model::figures(&self.data, &self.ran()));
        figures
    }

    fn failures(&self) -> Vec<String> {
        let counted = |(what, count): (&String, &usize)| match count {
            1 => what.clone(),
            n => format!("{what} ({n} times)"),
        };
        // Also of runs that were read from a record.
        let mut all = self.failures.clone();
        for run in &self.data.runs {
            if let Some(why) = &run.failure {
                let what = format!("{} on {}: {why}", run.cell.workload, run.cell.place);
                *all.entry(what).or_default() += 1;
            }
        }
        all.iter().map(counted).collect()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
