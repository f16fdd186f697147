//! Toro's experiment: a web server under bursts and breaks, with three ways to wait
//! as arms.
//!
//! Every arm has its turn in every cycle, in rotated order: boot, burst, break,
//! one request a second. One machine is alive at a time, since a spinning one
//! would disturb the others. Then two machines without requests are idle side by side. While they
//! are, the same file is served at full speed by Tare's image in either ring, in other monitors,
//! and by a native server (`peers`), and then instructions are counted on other machines, which
//! no load on the host changes. At the end the same files come from Apache on Linux, counted in the translator.

mod arms;
mod charts;
mod counts;
mod data;
mod linux;
mod machines;
mod metrics;
mod peers;
mod phases;
mod plan;
mod report;
mod sample;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tare_control::exit::ExitCode;
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Depth, Entry, Experiment, Figure, MOST_PLANNED, Make, Record, ReportText, RunError,
};
use tare_machines::appliance::ServerKind;

use self::arms::Arm;
pub(super) use self::counts::COUNTS;
use self::data::Data;
use self::metrics::{GOALS, METRICS};
use self::phases::Resting;
use self::plan::{Plan, ms};
use self::sample::{Line, Phase};
use self::session::{BOOT, FILE, Session, Turn, body, spec};

/// Time that starting, serving and ending a machine is planned to take.
const START: Duration = Duration::from_millis(800);
/// The same for one batch of counting.
const BATCH: Duration = Duration::from_millis(600);
/// The same for an arm that is counted in the translator.
const COMPARED: Duration = Duration::from_secs(6);

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "http-bursts",
    about: "a web server under bursts and breaks: CPU, exits, latency of three ways to wait",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(HttpBursts::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct HttpBursts {
    plan: Plan,
    data: Data,
}

impl HttpBursts {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        Self {
            plan: Plan::new(depth, image),
            data: Data::default(),
        }
    }

    /// Starts that end with the first byte.
    fn starts(&mut self, bench: &mut Bench<'_>, root: &Path) -> Result<(), RunError> {
        for start in 0..self.plan.starts {
            bench
                .progress
                .step(&format!("start {} of {}", start + 1, self.plan.starts));
            let turn = self.turn(Arm::Tare, start);
            let mut session = self.session(bench);
            let mut server = session.start(root, turn)?;
            session.first_byte(&mut server)?;
            bench.progress.done(START);
        }
        Ok(())
    }

    /// The rate of the bursts, from what the slowest arm carries.
    fn calibrate(&mut self, bench: &mut Bench<'_>, root: &Path) -> Result<f64, RunError> {
        let mut slowest = f64::INFINITY;
        for arm in Arm::ALL {
            bench.progress.step(&format!("what {} carries", arm.name()));
            let turn = self.turn(arm, 0);
            let mut session = self.session(bench);
            let mut server = session.start(root, turn)?;
            session.serve(&mut server)?;
            slowest = slowest.min(session.calibrate(&mut server)?);
            drop(server);
            bench.progress.done(START + ms(self.plan.calibrate_ms));
        }
        let rate = Plan::rate(slowest);
        if rate <= 0.0 {
            return Err(RunError::NoAnswer);
        }
        let line = Line::Rate {
            carried_per_s: slowest,
            burst_per_s: rate,
        };
        self.data.keep(bench.recorder, line)?;
        Ok(rate)
    }

    /// One arm's turn in a cycle.
    fn arm(
        &mut self,
        bench: &mut Bench<'_>,
        root: &Path,
        turn: Turn,
        rate: f64,
    ) -> Result<(), RunError> {
        let progress = bench.progress;
        progress.step(&format!(
            "cycle {} of {}: {}",
            turn.cycle + 1,
            self.plan.cycles,
            turn.arm.name()
        ));
        let mut session = self.session(bench);
        let plan = session.plan;
        let mut server = session.start(root, turn)?;
        session.serve(&mut server)?;
        progress.done(START);
        session.burst(&mut server, rate)?;
        progress.done(ms(plan.burst_ms));
        session.rest(&mut server)?;
        progress.done(ms(plan.settle_ms + plan.break_ms));
        session.steady(&mut server)?;
        progress.done(ms(plan.steady_ms));
        Ok(())
    }

    /// Idle with one vCPU and with two at the same time, on machines that got no request. Breaks
    /// give machines with one vCPU too; of those with two there are enough here for an interval.
    /// Meanwhile the same file is served at full speed by Tare's image in either ring and by
    /// others, then instructions are counted, on a machine for each cycle. An idle machine has no
    /// thread that runs, so it disturbs no measurement, and none disturbs its own. Each of these
    /// rounds and turns is one window of the idle machines.
    fn idle_meanwhile(&mut self, bench: &mut Bench<'_>, root: &Path) -> Result<(), RunError> {
        let one = (Phase::Idle, self.plan.cpus, self.plan.idle_ms, 1);
        let machines = self.plan.idle_2cpu_machines;
        let phases = [one, (Phase::Idle2Cpu, 2, self.plan.idle_2cpu_ms, machines)];
        let (progress, cycles) = (bench.progress, self.plan.cycles);
        let (counting, rest) = (self.counting(), self.planned_rest());
        let (turn, settle) = (self.turn(Arm::Tare, 0), ms(self.plan.settle_ms));
        let rounds = self.plan.capacity_rounds;
        let mut session = self.session(bench);
        let mut servers = Vec::new();
        for (phase, cpus, time, machines) in phases.into_iter().filter(|(_, _, it, _)| *it > 0) {
            for cycle in 0..machines {
                let turn = Turn {
                    cycle,
                    cpus,
                    ..turn
                };
                let mut server = session.start(root, turn)?;
                session.serve(&mut server)?;
                servers.push((server, phase, ms(time)));
            }
        }
        session.bench.interrupt.sleep(settle)?;
        let begin = Instant::now();
        let resting = servers
            .iter_mut()
            .map(|(server, phase, time)| Resting::new(server, *phase, *time));
        let mut resting: Vec<_> = resting.collect();
        session.settle(&mut resting)?;
        let mut missing = BTreeSet::new();
        for round in 0..rounds {
            let mut all: Vec<_> = resting.iter_mut().collect();
            session.idle_window(&mut all, begin, |session| {
                session.peers(root, round, &mut missing)
            })?;
        }
        for cycle in 0..cycles {
            progress.step(&format!("idle, and counting: {} of {cycles}", cycle + 1));
            let turn = Turn { cycle, ..turn };
            let mut all: Vec<_> = resting.iter_mut().collect();
            session.idle_window(&mut all, begin, |session| session.counted(root, turn))?;
            progress.done(counting);
        }
        progress.step("idle, one vCPU and two each");
        session.idle(&mut resting, begin)?;
        progress.done(rest);
        Ok(())
    }

    /// Time that the idle machines are planned to take after what is done meanwhile.
    fn planned_rest(&self) -> Duration {
        let longer = ms(self.plan.idle_ms.max(self.plan.idle_2cpu_ms));
        let counting = self.counting() * count(self.plan.cycles);
        longer.saturating_sub(self.planned_peers() + counting)
    }

    /// Time that the rounds at full speed are planned to take.
    fn planned_peers(&self) -> Duration {
        let rounds = 0..self.plan.capacity_rounds;
        let peers: usize = rounds.map(|it| peers::order(&self.plan, it).len()).sum();
        peers::planned(&self.plan) * count(peers)
    }

    fn session<'s, 'b>(&'s mut self, bench: &'s mut Bench<'b>) -> Session<'s, 'b> {
        Session {
            bench,
            data: &mut self.data,
            plan: &self.plan,
        }
    }

    /// Starts in QEMU's translator up to the first line, where QEMU is installed.
    fn translated(&mut self, bench: &mut Bench<'_>, root: &Path) -> Result<(), RunError> {
        for start in 0..self.plan.starts {
            bench
                .progress
                .step(&format!("translated start {}", start + 1));
            let turn = self.turn(Arm::Tare, start);
            let spec = spec(&self.plan, root, turn, "qemu");
            let started = bench.executor.start(ServerKind::Image(&spec));
            let served =
                started.and_then(|mut machine| machine.wait_serving(BOOT, bench.interrupt));
            match served {
                Ok(after) => {
                    let (boot, ms) = (Some(turn.boot()), after.as_secs_f64() * 1e3);
                    let recorder = &mut *bench.recorder;
                    self.data.value(recorder, boot, "first_line_ms.tcg", ms)?;
                }
                Err(error) if error.exit_code() == ExitCode::NoEngine => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            bench.progress.done(START);
        }
        Ok(())
    }

    fn turn(&self, arm: Arm, cycle: usize) -> Turn {
        Turn {
            arm,
            cycle,
            cpus: self.plan.cpus,
            ring: "auto",
        }
    }

    /// Time of one machine on which instructions are counted.
    fn counting(&self) -> Duration {
        START + BATCH * count(self.plan.batches)
    }
}

/// A factor of planned times.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Experiment for HttpBursts {
    fn planned(&self) -> Duration {
        let turns = (START + self.plan.turn()) * count(self.plan.cycles * Arm::ALL.len());
        let calibrating = (START + ms(self.plan.calibrate_ms)) * count(Arm::ALL.len());
        let counting = self.counting() * count(self.plan.cycles);
        let compared = COMPARED * count(self.plan.compared.min(1) * linux::Side::ALL.len());
        START * 2 * count(self.plan.starts)
            + calibrating
            + turns
            + self.planned_peers()
            + counting
            + compared
            + self.planned_rest()
    }

    fn plan(&self) -> Value {
        serde_json::to_value(&self.plan).unwrap_or(Value::Null)
    }

    fn replan(&mut self, plan: &Value) {
        if let Ok(plan) = serde_json::from_value::<Plan>(plan.clone()) {
            self.plan = Plan {
                cycles: plan.cycles.min(MOST_PLANNED),
                starts: plan.starts.min(MOST_PLANNED),
                batches: plan.batches.min(MOST_PLANNED),
                ..plan
            };
        }
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        self.data.replay(record);
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let root = make_root(bench.recorder.directory()).map_err(RunError::Root)?;
        self.starts(bench, &root)?;
        let rate = self.calibrate(bench, &root)?;
        for cycle in 0..self.plan.cycles {
            for arm in Arm::order(cycle) {
                self.arm(bench, &root, self.turn(arm, cycle), rate)?;
                bench.recorder.flush()?;
            }
        }
        self.idle_meanwhile(bench, &root)?;
        self.translated(bench, &root)?;
        linux::compare(&mut self.data, &self.plan, bench)
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        self.data.figures()
    }

    fn cause(&self, figures: &[Figure], figure: &Figure) -> Option<String> {
        report::cause(figures, figure)
    }

    fn failures(&self) -> Vec<String> {
        self.data.failures()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(&self.plan, &self.data, figures)
    }
}

/// The directory that the machines serve, kept with the results.
fn make_root(directory: &Path) -> std::io::Result<PathBuf> {
    let root = directory.join("root");
    fs::create_dir(&root)?;
    fs::write(root.join(FILE), body())?;
    fs::write(
        root.join("index.html"),
        format!("<!doctype html><title>tare weigh</title><p><a href={FILE}>1 KiB</a>\n"),
    )?;
    fs::canonicalize(root)
}
