//! A kernel cut to one application, against Debian's (Kernel Tailoring):
//! guest instructions for a request and for a boot, sizes, rising rates, and
//! answers that must stay the same.

mod calls;
mod figures;
mod goals;
mod plan;
mod rates;
mod report;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_rootfs::{Cache, Tree};
use tare_tailor::kconfig::Prompts;

pub(crate) use self::calls::print as print_calls;
use self::figures::Weighed;
use self::plan::{Arm, DEBIAN, Plan};
use crate::bench::{Bench, RunError};
use crate::error::WeighError;
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::linux::LinuxError;
use crate::linux::catalog::{self, App};
use crate::linux::counter::Count;
use crate::linux::counter::Plugin;
use crate::linux::kernels::{self, Bootable, Yardstick};
use crate::linux::machine::Booted;
use crate::linux::machine::LinuxMachine;
use crate::linux::{files, fuzz, requests};
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::{Depth, WeighRequest};

/// The experiment and what it has measured.
pub(crate) struct Tailor {
    plan: Plan,
    weighed: Weighed,
}

/// What every arm of a run shares.
struct Workload {
    app: App,
    tree: Tree,
    plugin: Plugin,
    cache: Cache,
    dialogs: Vec<Vec<u8>>,
}

impl Tailor {
    /// Planned for a depth and an application.
    pub(crate) fn new(depth: Depth, app: Option<String>) -> Self {
        Self {
            plan: Plan::new(depth, app),
            weighed: Weighed::default(),
        }
    }

    fn kernel(
        &self,
        bench: &Bench<'_>,
        load: &Workload,
        arm: &Arm,
    ) -> Result<Bootable, LinuxError> {
        bench.progress.step(&format!("the kernel {}", arm.name));
        let kernel = match &arm.cuts {
            None => kernels::debian(&load.cache)?,
            Some(cuts) => {
                kernels::tailored(&load.app, &arm.name, cuts, &load.cache, bench.interrupt)?
            }
        };
        Ok(Bootable {
            name: arm.name.clone(),
            parameters: arm.parameters,
            ..kernel
        })
    }

    /// Boots, answers and counts on one kernel.
    fn counted(
        &mut self,
        bench: &mut Bench<'_>,
        load: &Workload,
        kernel: &Bootable,
    ) -> Result<(), RunError> {
        bench
            .progress
            .step(&format!("{} on {}: counting", load.app.name, kernel.name));
        let mut machine = LinuxMachine::start(&load.app, &load.tree, kernel, Some(&load.plugin))?;
        let booted = machine.serve(&load.app, bench.interrupt)?;
        self.weighed.booted(&kernel.name, booted);
        bench.recorder.sample(&json!({
            "sample": "boot", "kernel": kernel.name, "insns": booted.count,
            "ms": booted.after.as_secs_f64() * 1e3,
        }))?;
        for phase in &load.app.phases {
            let counts = requests::count(&machine, phase, self.plan.requests, bench.interrupt)?;
            bench.recorder.sample(&json!({
                "sample": "requests", "kernel": kernel.name, "phase": phase.name, "insns": counts,
            }))?;
            self.weighed.requests(&kernel.name, &phase.name, &counts);
        }
        if let Some(kib) = machine.touched_kib() {
            self.weighed.memory(&kernel.name, kib);
        }
        let mut answers = Vec::new();
        for request in &load.dialogs {
            bench.interrupt.check().map_err(LinuxError::from)?;
            answers.push(machine.answer(&load.app, request)?);
        }
        self.weighed.answers(&kernel.name, &load.dialogs, answers);
        Ok(bench.recorder.flush()?)
    }

    /// More boots, rising rates and single calls, without counting.
    fn timed(
        &mut self,
        bench: &mut Bench<'_>,
        load: &Workload,
        kernel: &Bootable,
    ) -> Result<(), RunError> {
        for boot in 1..self.plan.boots {
            bench
                .progress
                .step(&format!("boot {} of {}", boot + 1, kernel.name));
            let mut machine =
                LinuxMachine::start(&load.app, &load.tree, kernel, Some(&load.plugin))?;
            let booted = machine.serve(&load.app, bench.interrupt)?;
            self.weighed.booted(&kernel.name, booted);
        }
        bench.progress.step(&format!("rates on {}", kernel.name));
        let mut machine = LinuxMachine::start(&load.app, &load.tree, kernel, None)?;
        let booted = machine.serve(&load.app, bench.interrupt)?;
        self.weighed.started(&kernel.name, booted);
        let steps = rates::rising(&machine, &load.app, &self.plan, bench.interrupt)?;
        bench.recorder.sample(&json!({
            "sample": "rates", "kernel": kernel.name, "steps": steps,
        }))?;
        self.weighed.rates(&kernel.name, &steps);
        drop(machine);
        self.calls(bench, kernel)
    }

    /// Single calls, which are exact and so show what a request's count hides.
    fn calls(&mut self, bench: &mut Bench<'_>, kernel: &Bootable) -> Result<(), RunError> {
        bench
            .progress
            .step(&format!("system calls on {}", kernel.name));
        let calls = calls::measure(kernel, self.plan.calls, bench.interrupt)?;
        bench.recorder.sample(&json!({
            "sample": "calls", "kernel": kernel.name, "insns": calls,
        }))?;
        self.weighed.calls(&kernel.name, &calls);
        Ok(())
    }
}

/// Whether a single cut changes no kernel: its gain would be chance.
fn takes_nothing(app: &App, arm: &Arm) -> Result<bool, LinuxError> {
    match (&arm.cuts, plan::beside(arm)) {
        (Some(cuts), Some(beside)) => kernels::is_same(app, cuts, &beside),
        _ => Ok(false),
    }
}

impl Experiment for Tailor {
    fn configure(&mut self, request: &WeighRequest) -> Result<(), WeighError> {
        let Some(cuts) = &request.cuts else {
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

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for line in &record.lines {
            let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
            let (kernel, insns) = (
                text("kernel"),
                line.get("insns").cloned().unwrap_or_default(),
            );
            match text("sample") {
                "boot" => {
                    if let Ok(count) = serde_json::from_value(insns) {
                        let ms = line.get("ms").and_then(Value::as_f64).unwrap_or(0.0);
                        let after = Duration::from_secs_f64((ms / 1e3).clamp(0.0, 1e6));
                        self.weighed.booted(kernel, Booted { after, count });
                    }
                }
                "requests" => {
                    let counts: Vec<Count> = serde_json::from_value(insns).unwrap_or_default();
                    self.weighed.requests(kernel, text("phase"), &counts);
                }
                "rates" => {
                    let steps = line.get("steps").cloned().unwrap_or_default();
                    let steps: Vec<rates::Step> = serde_json::from_value(steps).unwrap_or_default();
                    self.weighed.rates(kernel, &steps);
                }
                "calls" => {
                    let calls = serde_json::from_value(insns).unwrap_or_default();
                    self.weighed.calls(kernel, &calls);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.progress.step("packages");
        let app = catalog::find(&self.plan.app)?;
        let cache = Cache::open_default().map_err(LinuxError::from)?;
        let load = Workload {
            tree: files::tree(&app, &cache)?,
            plugin: Plugin::compile(&cache)?,
            dialogs: fuzz::dialogs(app.protocol, fuzz::SEED, self.plan.dialogs),
            cache,
            app,
        };
        self.weighed.used(&load.app.profile()?);
        let sources = kernels::sources(&load.cache)?;
        let prompts = Prompts::of(&sources.tree);
        for yardstick in [Yardstick::Microvm, Yardstick::Floor] {
            let config = yardstick.configuration(&sources)?;
            self.weighed.options(yardstick.name(), &config, &prompts);
        }
        let mut whole = Vec::new();
        for arm in self.plan.arms.clone() {
            let kernel = self.kernel(bench, &load, &arm)?;
            self.weighed.kernel(&kernel, &prompts);
            self.counted(bench, &load, &kernel)?;
            whole.push(kernel);
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
            self.counted(bench, &load, &kernel)?;
            self.calls(bench, &kernel)?;
        }
        Ok(())
    }

    /// The translator's machines run the same way with and without a KVM.
    fn kvm(&self) -> Kvm {
        Kvm::None
    }

    fn figures(&self) -> Vec<Figure> {
        self.weighed.figures()
    }

    fn goals(&self) -> &'static [Goal] {
        goals::GOALS
    }

    fn failures(&self) -> Vec<String> {
        self.weighed.failures(DEBIAN)
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(&self.plan, &self.weighed, figures)
    }
}
