//! A kernel cut to one application, against Debian's (Kernel Tailoring):
//! guest instructions for a request and for a boot, sizes, rising rates, and
//! answers that must stay the same.

mod calls;
mod figures;
mod plan;
mod rates;
mod report;
mod sample;
mod surface;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_lab::kit::{
    Bench, Depth, Entry, Experiment, Figure, Make, Record, Recorder, ReportText, RunError,
    WeighError, replanned,
};
use tare_machines::linux::LinuxError;
use tare_machines::linux::catalog::{self, App};
use tare_machines::linux::kernels::{self, Bootable, Yardstick};
use tare_machines::linux::machine::{self, LinuxMachine};
use tare_machines::linux::{files, firecracker, fuzz, requests, tailored};
use tare_rootfs::{Cache, Tree};
use tare_tailor::counter::{Plugin, contain_iterations};
use tare_tailor::cut::Cut;
use tare_tailor::cves::Records;
use tare_tailor::kconfig::{Config, GivenConfig, Prompts};
use tare_tailor::lock;
use tare_tailor::toolchain::Toolchain;

use self::figures::{BOOT_MS, CODE_KIB, GOALS, IMAGE_BYTES, METRICS, SYSCALLS_USED, Weighed};
use self::plan::{Arm, DEBIAN, FIRECRACKER, MadeOf, Plan};
use self::sample::{BootOf, Line};
use self::surface::Surface;

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "tailor",
    about: "a kernel cut to one application against Debian's: instructions, sizes, answers",
    metrics: METRICS,
    goals: GOALS,
    make: Make::Other(|depth| Options::default().planned(depth)),
};

/// Its options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The example application; `None` is lighttpd.
    pub app: Option<String>,
    /// Cuts that are weighed one by one; empty is all, `None` is as the depth says.
    pub cuts: Option<Vec<Cut>>,
    /// Files of Firecracker's configuration of a guest's kernel, of which a later one wins; empty
    /// is the configuration of an earlier run, if there was one.
    pub configs: Vec<PathBuf>,
    /// Directory of CVE records that are counted.
    pub cves: Option<PathBuf>,
}

impl Options {
    /// Names of the example applications.
    pub fn applications() -> Vec<&'static str> {
        catalog::names()
    }

    /// The experiment with these options.
    pub fn planned(self, depth: Depth) -> Box<dyn Experiment> {
        Box::new(Tailor::new(depth, self))
    }
}

/// The experiment and what it has measured; of no KVM, since the translator's machines run the
/// same way with and without one.
pub(crate) struct Tailor {
    options: Options,
    plan: Plan,
    weighed: Weighed,
    /// Firecracker's configuration, without which its kernels are left out.
    given: Option<GivenConfig>,
    /// CVE records, to be counted.
    records: Option<Records>,
}

/// What every arm of a run shares.
struct Workload {
    /// The program that confines QEMU.
    tare: PathBuf,
    app: App,
    tree: Tree,
    plugin: Plugin,
    cache: Cache,
    dialogs: Vec<Vec<u8>>,
}

impl Workload {
    fn start(
        &self,
        kernel: &Bootable,
        plugin: Option<&Plugin>,
    ) -> Result<LinuxMachine, LinuxError> {
        LinuxMachine::start(&self.tare, &self.app, &self.tree, kernel, plugin)
    }
}

impl Tailor {
    /// Planned for a depth; [`Experiment::configure`] takes the options.
    pub(crate) fn new(depth: Depth, options: Options) -> Self {
        Self {
            plan: Plan::new(depth, options.app.clone()),
            options,
            weighed: Weighed::default(),
            given: None,
            records: None,
        }
    }

    /// Takes Firecracker's configuration from files, else from an earlier run.
    fn take_configuration(&mut self) -> Result<(), WeighError> {
        self.given = match &self.options.configs[..] {
            files @ [_, ..] => Some(
                firecracker::read(files)
                    .map_err(|error| WeighError::Option(format!("--config: {}", chain(&error))))?,
            ),
            [] => Cache::open_default()
                .ok()
                .and_then(|cache| firecracker::stored_config(&cache)),
        };
        if self.given.is_none() {
            self.plan.without_firecracker();
        }
        Ok(())
    }

    fn kernel(
        &self,
        bench: &Bench<'_>,
        load: &Workload,
        arm: &Arm,
    ) -> Result<Bootable, LinuxError> {
        bench.progress.step(&format!("the kernel {}", arm.name));
        let (cache, interrupt) = (&load.cache, bench.interrupt);
        let kernel = match &arm.kernel {
            MadeOf::Debian => kernels::debian(cache)?,
            MadeOf::Firecracker => {
                let given = self.given.as_ref().ok_or_else(|| LinuxError::NotKept {
                    app: arm.name.clone(),
                })?;
                firecracker::kernel(&arm.name, given, cache, interrupt)?
            }
            MadeOf::Cuts(cuts) => tailored::kernel(&load.app, &arm.name, cuts, cache, interrupt)?,
        };
        Ok(Bootable {
            name: arm.name.clone(),
            parameters: arm.parameters,
            ..kernel
        })
    }

    /// Takes a sample and keeps it.
    fn keep(&mut self, recorder: &mut Recorder, line: &Line) -> Result<(), WeighError> {
        self.weighed.take(line);
        recorder.sample(line)
    }

    /// The kernel's own start, without the application's files.
    fn started_alone(&mut self, bench: &mut Bench<'_>, kernel: &Bootable) -> Result<(), RunError> {
        bench.progress.step(&format!("{} alone", kernel.name));
        let line = Line::Start {
            kernel: kernel.name.clone(),
            insns: machine::start_alone(kernel, bench.interrupt)?,
        };
        Ok(self.keep(bench.recorder, &line)?)
    }

    /// What a configuration has, which may be that of no kernel that boots.
    fn options(
        &mut self,
        recorder: &mut Recorder,
        name: &str,
        config: &Config,
        prompts: &Prompts,
    ) -> Result<(), WeighError> {
        let mut options = figures::options(name, config, prompts).into_iter();
        options.try_for_each(|line| self.keep(recorder, &line))
    }

    /// A boot of one kernel with the counter: its requests, and in the first round its answers.
    fn counted(
        &mut self,
        bench: &mut Bench<'_>,
        load: &Workload,
        kernel: &Bootable,
        round: usize,
    ) -> Result<(), RunError> {
        let (app, name) = (&load.app.name, &kernel.name);
        let step = format!("{app} on {name}: counting, boot {}", round + 1);
        bench.progress.step(&step);
        let mut machine = load.start(kernel, Some(&load.plugin))?;
        let booted = machine.serve(&load.app, bench.interrupt)?;
        let kernel = name.clone();
        let of = BootOf { kernel, round };
        let boot = Line::Boot {
            of: of.clone(),
            insns: booted.count,
            ms: booted.ms(),
        };
        self.keep(bench.recorder, &boot)?;
        for phase in &load.app.phases {
            let requests = self.plan.requests;
            let insns = requests::count(&machine, phase, requests, bench.interrupt)?;
            let (of, phase) = (of.clone(), phase.name.clone());
            self.keep(bench.recorder, &Line::Requests { of, phase, insns })?;
        }
        if let Some(kib) = machine.touched_kib() {
            self.keep(bench.recorder, &Line::Memory { of, kib })?;
        }
        if round == 0 {
            let mut answers = Vec::new();
            for request in &load.dialogs {
                bench.interrupt.check().map_err(LinuxError::from)?;
                answers.push(machine.answer(&load.app, request)?);
            }
            if let Some(differ) = self.weighed.answers(name, &load.dialogs, answers) {
                self.keep(bench.recorder, &differ)?;
            }
        }
        Ok(bench.recorder.flush()?)
    }

    /// Rising rates and single calls, without counting.
    fn timed(
        &mut self,
        bench: &mut Bench<'_>,
        load: &Workload,
        kernel: &Bootable,
    ) -> Result<(), RunError> {
        bench.progress.step(&format!("rates on {}", kernel.name));
        let mut machine = load.start(kernel, None)?;
        let booted = machine.serve(&load.app, bench.interrupt)?;
        let started = Line::single(BOOT_MS, &kernel.name, booted.ms());
        self.keep(bench.recorder, &started)?;
        let line = Line::Rates {
            kernel: kernel.name.clone(),
            steps: rates::rising(&machine, &load.app, &self.plan, bench.interrupt)?,
        };
        self.keep(bench.recorder, &line)?;
        drop(machine);
        self.calls(bench, kernel)
    }

    /// Single calls, which are exact and so show what a request's count hides.
    fn calls(&mut self, bench: &mut Bench<'_>, kernel: &Bootable) -> Result<(), RunError> {
        bench
            .progress
            .step(&format!("system calls on {}", kernel.name));
        let line = Line::Calls {
            kernel: kernel.name.clone(),
            insns: calls::measure(kernel, self.plan.calls, bench.interrupt)?,
        };
        Ok(self.keep(bench.recorder, &line)?)
    }
}

/// Whether a single cut changes no kernel: its gain would be chance.
fn takes_nothing(app: &App, arm: &Arm) -> Result<bool, LinuxError> {
    match (arm.kernel.cuts(), plan::beside(arm)) {
        (Some(cuts), Some(beside)) => kernels::is_same(app, cuts, &beside),
        _ => Ok(false),
    }
}

impl Experiment for Tailor {
    fn configure(&mut self) -> Result<(), WeighError> {
        self.take_configuration()?;
        let records = self.options.cves.as_deref().map(Records::read).transpose();
        self.records =
            records.map_err(|error| WeighError::Option(format!("--cves: {}", chain(&error))))?;
        if Toolchain::of(&BTreeSet::from([Cut::ThinLto])).is_err() {
            self.plan.without_lto();
        }
        let Some(cuts) = &self.options.cuts else {
            return Ok(());
        };
        let idle = cuts.iter().find(|cut| !plan::is_in_the_kernel(**cut));
        if let Some(cut) = idle {
            let why = "changes no instruction that is counted here: leave it out";
            return Err(WeighError::Option(format!("--cuts: {cut} {why}")));
        }
        self.plan.take_singly(cuts);
        Ok(())
    }

    fn planned(&self) -> Duration {
        self.plan.planned()
    }

    fn plan(&self) -> Value {
        serde_json::to_value(&self.plan).unwrap_or(Value::Null)
    }

    fn replan(&mut self, plan: &Value) {
        if let Some(app) = plan.get("app").and_then(Value::as_str) {
            app.clone_into(&mut self.plan.app);
        }
        replanned(plan, "boots", &mut self.plan.boots);
        replanned(plan, "requests", &mut self.plan.requests);
        replanned(plan, "dialogs", &mut self.plan.dialogs);
    }

    fn was_recorded_in_part(&self) -> bool {
        true
    }

    fn lacks(&self, figure: &str) -> bool {
        self.weighed.lacks_boots(figure, self.plan.boots)
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for line in &record.lines {
            // A line that is truncated or of another form is not a sample.
            let Ok(kept) = Line::deserialize(line) else {
                continue;
            };
            if let Line::Boot { .. } | Line::Requests { .. } = kept {
                let insns = line.get("insns");
                self.weighed.iterations_inside |= insns.is_some_and(contain_iterations);
            }
            self.weighed.take(&kept);
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.progress.step("packages");
        let app = catalog::find(&self.plan.app)?;
        let cache = Cache::open_default().map_err(LinuxError::from)?;
        if let Some(given) = &self.given {
            firecracker::keep(given, &cache)?;
            bench.recorder.sample(&json!({
                "sample": "configuration", "kernel": FIRECRACKER,
                "sha256": lock::sha256(given.text().as_bytes()),
            }))?;
        }
        let load = Workload {
            tare: machine::this_program()?,
            tree: files::tree(&app, &cache)?,
            plugin: Plugin::compile(&cache).map_err(LinuxError::from)?,
            dialogs: fuzz::dialogs(app.protocol, fuzz::SEED, self.plan.dialogs),
            cache,
            app,
        };
        let versions = files::versions(&load.app, &load.cache);
        bench.recorder.versions_of(versions)?;
        let used = load.app.profile()?.calls.len() as f64;
        self.keep(bench.recorder, &Line::single(SYSCALLS_USED, "", used))?;
        let sources = kernels::sources(&load.cache)?;
        let prompts = Prompts::of(&sources.tree);
        let records = self.records.take();
        let surface = Surface::of(&sources.tree, records.as_ref()).map_err(LinuxError::from)?;
        if let Some(line) = surface.of_records() {
            self.keep(bench.recorder, &line)?;
        }
        for yardstick in [Yardstick::DefconfigKvm, Yardstick::Floor] {
            let config = yardstick.configuration(&sources, bench.interrupt)?;
            self.options(bench.recorder, yardstick.name(), &config, &prompts)?;
        }
        let mut whole = Vec::new();
        for arm in self.plan.arms.clone() {
            let kernel = self.kernel(bench, &load, &arm)?;
            self.options(bench.recorder, &kernel.name, &kernel.config, &prompts)?;
            let bytes = kernel.image_bytes as f64;
            let size = Line::single(IMAGE_BYTES, &kernel.name, bytes);
            self.keep(bench.recorder, &size)?;
            for line in surface.lines(&kernel.name, &kernel.config) {
                self.keep(bench.recorder, &line)?;
            }
            if let Some(kib) = machine::code_kib(&load.tare, &kernel, bench.interrupt)? {
                let line = Line::single(CODE_KIB, &kernel.name, kib as f64);
                self.keep(bench.recorder, &line)?;
            }
            self.started_alone(bench, &kernel)?;
            self.counted(bench, &load, &kernel, 0)?;
            whole.push(kernel);
        }
        for turn in plan::later_boots(self.plan.boots, whole.len()) {
            self.counted(bench, &load, &whole[turn.index], turn.round)?;
        }
        for kernel in &whole {
            self.timed(bench, &load, kernel)?;
        }
        for arm in self.plan.single.clone() {
            if takes_nothing(&load.app, &arm)? {
                let sample = json!({ "sample": "same", "kernel": arm.name });
                bench.recorder.sample(&sample)?;
                continue;
            }
            let kernel = self.kernel(bench, &load, &arm)?;
            self.counted(bench, &load, &kernel, 0)?;
            self.calls(bench, &kernel)?;
        }
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        self.weighed.figures()
    }

    fn failures(&self) -> Vec<String> {
        self.weighed.failures(DEBIAN)
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(&self.plan, &self.weighed, figures)
    }
}
