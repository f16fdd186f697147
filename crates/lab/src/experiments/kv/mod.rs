//! A cache under Tare and memcached in a container on the same machine: what
//! each carries, and how long answers take at a rate that both carry.
//!
//! First each arm's capacity, by a few connections that ask without a pause.
//! Then turns in rotated order, each a server of its own, filled with the same
//! items: open-loop load at half of what the slower arm carried. Where KVM
//! executes a guest itself, the instructions of a `get` and a `set` are counted.

pub(super) mod mix;
mod report;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tare_control::stats::{Kvm, Stats};

use super::guest_bench::{self, ArmRound, Data};
use crate::appliance::{Appliance, Spec};
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::{Figure, grouped_quantile};
use crate::goal::Goal;
use crate::load::{Connections, Exchange, Generator, Request, Schedule};
use crate::observe::counters::{activity_between, instructions_between};
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::Depth;

/// Connections, and commands under way at once while calibrating.
const CONNECTIONS: usize = 4;
/// Memory for items, MiB.
const ITEMS_MIB: u32 = 32;
/// Memory of the machine, MiB.
const MEMORY_MIB: u32 = 128;
/// Longest time from exec to serving.
const BOOT: Duration = Duration::from_secs(30);
/// A command without an answer for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than a delayed acknowledgement takes.
const QUIET: Duration = Duration::from_millis(250);
/// What starting and filling a server is planned to take.
const START: Duration = Duration::from_secs(2);
/// Distribution of answers, in us.
const LATENCY: &str = "kv_us";

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Tare,
    Memcached,
}

impl Arm {
    const ALL: [Self; 2] = [Self::Tare, Self::Memcached];

    const fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare",
            Self::Memcached => "memcached",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Tare => "tare: the kv appliance on one vCPU",
            Self::Memcached => "memcached: one thread in a container (runc), the host's network",
        }
    }
}

/// The experiment and what it has measured.
pub(crate) struct Kv {
    depth: Depth,
    image: String,
    turns: usize,
    calibrate: Duration,
    load: Duration,
    batch: usize,
    data: Data,
    /// Commands a second that are offered, once it is known.
    rate: Option<f64>,
    failures: Vec<String>,
}

impl Kv {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (turns, calibrate_s, load_s, batch) = match depth {
            Depth::Quick => (1, 1, 3, 20),
            Depth::Standard => (6, 2, 4, 50),
            Depth::Full => (10, 5, 20, 100),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "kv".to_owned()),
            turns,
            calibrate: Duration::from_secs(calibrate_s),
            load: Duration::from_secs(load_s),
            batch,
            data: Data::default(),
            rate: None,
            failures: Vec::new(),
        }
    }

    /// Starts a loaded server; `None` if the optional arm is unavailable.
    fn serve(
        &mut self,
        bench: &mut Bench<'_>,
        arm: Arm,
    ) -> Result<Option<Box<dyn Appliance>>, RunError> {
        let mut server = match arm {
            Arm::Tare => bench.executor.start(&self.spec())?,
            Arm::Memcached => match bench.executor.contain(ITEMS_MIB) {
                Ok(server) => server,
                Err(error) => return self.missing(arm, error.into()),
            },
        };
        match server.wait_serving(BOOT, bench.interrupt) {
            Ok(_) => {}
            Err(error) if arm == Arm::Memcached => return self.missing(arm, error.into()),
            Err(error) => return Err(error.into()),
        }
        let fill = mix::fill();
        let schedule = Schedule::one_by_one(fill.len());
        let filled = generator(server.as_ref(), fill).run(schedule, bench.interrupt)?;
        self.check(arm, "filling", &filled);
        Ok(Some(server))
    }

    fn spec(&self) -> Spec {
        Spec {
            label: Arm::Tare.name().to_owned(),
            image: self.image.clone(),
            root: None,
            port: 11211,
            cmdline: format!("mem={ITEMS_MIB}"),
            engine: "auto",
            ring: "auto",
            idle: "block",
            cpus: 1,
            memory_mib: MEMORY_MIB,
        }
    }

    /// Records once why an arm is unavailable; an interruption is passed on.
    fn missing<T>(&mut self, arm: Arm, error: RunError) -> Result<Option<T>, RunError> {
        let why = guest_bench::optional(Err(error))?;
        self.data.unavailable(arm.name(), why);
        Ok(None)
    }

    /// Finds what an arm carries.
    fn calibrate(&mut self, bench: &mut Bench<'_>, arm: Arm) -> Result<(), RunError> {
        let Some(server) = self.serve(bench, arm)? else {
            return Ok(());
        };
        let schedule = Schedule::Closed {
            concurrency: CONNECTIONS,
            until: self.calibrate,
            count: usize::MAX,
        };
        let begin = Instant::now();
        let asked = generator(server.as_ref(), mix::mixed()).run(schedule, bench.interrupt)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.check(arm, "calibrating", &asked);
        let answered = asked.iter().filter(|r| r.failure.is_none()).count();
        let record = json!({"answered": answered, "seconds": seconds});
        self.keep(bench, place(arm, 0), "calibration", &record)
    }

    /// Half of what the slower arm carries, commands a second; `None` before it is known.
    fn offered(&self) -> Option<f64> {
        let carried = Arm::ALL.iter().flat_map(|arm| {
            let name = format!("kv_ops_per_s.{}", arm.name());
            self.data.samples.values(&name).to_vec()
        });
        let slowest = carried.reduce(f64::min)?;
        Some((slowest / 2.0).max(1.0))
    }

    /// Keeps a sample of an arm, in the record and in memory.
    fn keep(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        sample: &str,
        record: &Value,
    ) -> Result<(), RunError> {
        guest_bench::keep(bench, place, sample, record)?;
        self.take(place.arm, sample, record);
        Ok(())
    }

    fn take(&mut self, arm: &'static str, sample: &str, record: &Value) {
        let number = |name: &str| record.get(name).and_then(Value::as_f64);
        if sample == "load" {
            let asked: Vec<Request> = serde_json::from_value(record.clone()).unwrap_or_default();
            let answered = asked.iter().filter(|request| request.failure.is_none());
            let us = answered.map(|request| request.latency_ns() as f64 / 1e3);
            self.data.extend(LATENCY, arm, us);
        } else if let Some((answered, seconds)) = number("answered").zip(number("seconds")) {
            let name = format!("kv_ops_per_s.{arm}");
            self.data.samples.add(&name, "1/s", answered / seconds);
        }
    }

    /// Keeps a sample of a figure.
    fn value(&mut self, bench: &mut Bench<'_>, figure: &str, value: f64) -> Result<(), RunError> {
        let line = json!({"sample": "value", "figure": figure, "value": value});
        bench.recorder.sample(&line)?;
        self.data.samples.add(figure, unit_of(figure), value);
        Ok(())
    }

    /// Open-loop load, then what a command costs.
    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        arm: Arm,
        round: usize,
        rate: f64,
    ) -> Result<(), RunError> {
        let Some(mut server) = self.serve(bench, arm)? else {
            return Ok(());
        };
        let schedule = Schedule::steady(rate, self.load);
        let cpu = server.cpu()?;
        let asked = generator(server.as_ref(), mix::mixed()).run(schedule, bench.interrupt)?;
        let spent = server.cpu()?.since(&cpu);
        self.keep(bench, place(arm, round), "load", &json!(asked))?;
        self.check(arm, "load", &asked);
        let share = (spent.monitor_ns + spent.helper_ns) as f64 / spent.wall_ns as f64;
        let name = format!("kv_cpu_pct.{}", arm.name());
        self.value(bench, &name, share * 100.0)?;
        if arm == Arm::Tare {
            self.count(bench, server.as_mut(), "get", mix::gets())?;
            self.count(bench, server.as_mut(), "set", mix::sets())?;
        }
        Ok(())
    }

    /// Instructions and exits of a command, one after the other on a connection.
    fn count(
        &mut self,
        bench: &mut Bench<'_>,
        server: &mut dyn Appliance,
        what: &str,
        exchanges: Vec<Exchange>,
    ) -> Result<(), RunError> {
        let mut generator = generator(server, exchanges);
        // The first opens the connection, the second runs on a warm one.
        generator.run(Schedule::one_by_one(2), bench.interrupt)?;
        let from = self.quiet(bench, server)?;
        let asked = generator.run(Schedule::one_by_one(self.batch), bench.interrupt)?;
        let to = self.quiet(bench, server)?;
        self.check(Arm::Tare, "counting", &asked);
        if let (Some(from), Some(to)) = (from, to) {
            let n = asked.len() as f64;
            if let Some(count) = instructions_between(&from, &to) {
                self.value(bench, &format!("kv_insns_per_{what}"), count / n)?;
            }
            let exits = activity_between(&from, &to) / n;
            self.value(bench, &format!("kv_exits_per_{what}"), exits)?;
        }
        Ok(())
    }

    /// Statistics after a while without a command.
    fn quiet(
        &mut self,
        bench: &mut Bench<'_>,
        server: &mut dyn Appliance,
    ) -> Result<Option<Stats>, RunError> {
        bench.interrupt.sleep(QUIET)?;
        let stats = server.stats()?;
        if let Some(stats) = &stats {
            self.data.kvm = stats.kvm;
            let line = json!({"sample": "kvm", "kvm": stats.kvm});
            bench.recorder.sample(&line)?;
        }
        Ok(stats)
    }

    fn check(&mut self, arm: Arm, when: &str, asked: &[Request]) {
        let mut failed = asked.iter().filter_map(|r| r.failure);
        if let Some(first) = failed.next() {
            let count = failed.count() + 1;
            self.failures.push(format!(
                "{}: {count} of {} commands failed while {when}, the first: {first}",
                arm.name(),
                asked.len()
            ));
        }
    }
}

fn place(arm: Arm, round: usize) -> ArmRound {
    ArmRound {
        arm: arm.name(),
        round,
    }
}

fn generator(server: &dyn Appliance, exchanges: Vec<Exchange>) -> Generator {
    let mode = Connections::KeepAlive(CONNECTIONS);
    Generator::of(server.address(), exchanges, mode, TIMEOUT)
}

/// The unit of a figure that is kept by value.
fn unit_of(figure: &str) -> &'static str {
    match figure.split('.').next() {
        Some("kv_cpu_pct") => "%",
        Some("kv_insns_per_get" | "kv_insns_per_set") => "insns",
        Some("kv_exits_per_get" | "kv_exits_per_set") => "exits",
        _ => "1",
    }
}

impl Experiment for Kv {
    fn planned(&self) -> Duration {
        let turns = u32::try_from(self.turns).unwrap_or(u32::MAX);
        let arms = Arm::ALL.len() as u32;
        (START + self.calibrate) * arms + (START + self.load) * arms * turns
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            "calibrate_ms": self.calibrate.as_millis() as u64,
            "load_ms": self.load.as_millis() as u64, "connections": CONNECTIONS,
            "keys": mix::KEYS, "value_bytes": mix::VALUE, "reads_per_write": mix::READS,
            "arms": Arm::ALL.map(Arm::about),
        })
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for arm in Arm::ALL.map(Arm::name) {
            for sample in ["calibration", "load"] {
                let lines = record.of(sample).filter(|line| line["arm"] == arm);
                for kept in lines.filter_map(|line| line.get("record")) {
                    self.take(arm, sample, kept);
                }
            }
        }
        if let Some(line) = record.of("kvm").last() {
            self.data.kvm = serde_json::from_value(line["kvm"].clone()).unwrap_or(Kvm::None);
        }
        self.rate = self.offered();
        for line in record.of("value") {
            let text = |name: &str| Some(line.get(name)?.as_str()?.to_owned());
            let value = line.get("value").and_then(Value::as_f64);
            if let Some((figure, value)) = text("figure").zip(value) {
                self.data.samples.add(&figure, unit_of(&figure), value);
            }
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for arm in Arm::ALL {
            bench.progress.step(&format!("capacity of {}", arm.name()));
            self.calibrate(bench, arm)?;
            bench.progress.done(START + self.calibrate);
        }
        self.rate = self.offered();
        let rate = self.rate.unwrap_or(1.0);
        for round in 0..self.turns {
            for arm in guest_bench::rotated(&Arm::ALL, round) {
                guest_bench::announce(bench, round, self.turns, arm.name());
                self.turn(bench, arm, round, rate)?;
                bench.recorder.flush()?;
                bench.progress.done(START + self.load);
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (base, q) in [("kv_p50_us", 0.5), ("kv_p90_us", 0.9), ("kv_p99_us", 0.99)] {
            for arm in Arm::ALL {
                let name = format!("{base}.{}", arm.name());
                let times = self.data.groups(LATENCY, arm.name());
                figures.extend(grouped_quantile(&name, "us", times, q));
            }
        }
        figures.extend(self.data.samples.figures());
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        &[]
    }

    fn failures(&self) -> Vec<String> {
        self.failures.clone()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
