//! A cache under Tare and memcached in a container on the same machine: what
//! each carries, and how long answers take at a rate that both carry.
//!
//! First each arm's capacity, by a few connections that ask without a pause.
//! Then turns in rotated order, each on a new server, filled with the same
//! items: open-loop load at half of what the slower arm carried. Where KVM
//! executes a guest itself, the instructions of a `get` and a `set` are counted.

pub(super) mod mix;
#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::{Kvm, Stats};
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, IfFails, Make, Metric, Record, ReportText,
    RunError, Template, Turn, has_data, metrics, number, rounds, row,
};
use tare_load::requests::{
    Connections, Exchange, Generator, Request, Schedule, compact, failed, latencies_us,
};
use tare_machines::appliance::{Appliance, ServerKind, Spec};
use tare_machines::observe::counters::{activity_between, instructions_between};

use super::full_speed::carried;
use super::guest_bench::{self, ArmRound};

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

metrics! {
    P50: less("kv_p50_us", "us");
    P90: less("kv_p90_us", "us");
    P99: less("kv_p99_us", "us");
    CARRIED: more("kv_ops_per_s", "1/s");
    ALONE: more("kv_gets_per_s", "1/s");
    ALONE_P50: less("kv_get_us", "us");
    TIMES_MEMCACHED: less("kv_get_times_memcached", "1");
    CPU: neither("kv_cpu_pct", "%");
    INSNS_PER_GET: less("kv_insns_per_get", "insns");
    EXITS_PER_GET: less("kv_exits_per_get", "1");
    INSNS_PER_SET: less("kv_insns_per_set", "insns");
    EXITS_PER_SET: less("kv_exits_per_set", "1");
}

const TARE: &str = "tare";
const MEMCACHED: &str = "memcached";
const RING_0: &str = "ring0";

/// What is counted of a get and of a set: exits as the appliance is meant to run, instructions
/// in ring 0.
const EXITS: [[Option<Metric>; 2]; 2] = [[None, Some(EXITS_PER_GET)], [None, Some(EXITS_PER_SET)]];
const INSNS: [[Option<Metric>; 2]; 2] = [[Some(INSNS_PER_GET), None], [Some(INSNS_PER_SET), None]];

/// Who serves, with what it is.
const ARMS: [(&str, &str); 3] = [
    (TARE, "tare: the kv appliance on one vCPU"),
    (
        MEMCACHED,
        "memcached: one thread in a container (runc), the host's network",
    ),
    (
        RING_0,
        "ring0: the kv appliance in ring 0, where KVM may emulate it",
    ),
];
/// Those that are held against each other at a rate that both carry.
const COMPARED: usize = 2;

/// Set for a KVM that emulates the guest's ring 0, where the appliance runs in ring 3.
const GOALS: &[Goal] = &[
    Goal::at_least(&[Kvm::Emulated], "kv_gets_per_s.tare", 10_000.0),
    Goal::on(&[Kvm::Emulated], TIMES_MEMCACHED.name, 3.0),
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "kv",
    about: "a cache: Tare's appliance and memcached in a container, rate and latency",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(Kv::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct Kv {
    depth: Depth,
    image: String,
    turns: usize,
    calibrate: Duration,
    load: Duration,
    alone: Duration,
    batch: usize,
    /// The round of the turn that is taken.
    round: usize,
    data: Data,
}

impl Kv {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let sizes = [(1, 1, 3, 20), (6, 2, 4, 50), (10, 5, 20, 100)];
        let (turns, calibrate_s, load_s, batch) = depth.of(sizes);
        Self {
            depth,
            image: image.unwrap_or_else(|| "kv".to_owned()),
            turns,
            calibrate: Duration::from_secs(calibrate_s),
            load: Duration::from_secs(load_s),
            alone: Duration::from_millis(500),
            batch,
            round: 0,
            data: Data::default(),
        }
    }

    /// Starts a loaded server.
    fn serve(
        &mut self,
        bench: &mut Bench<'_>,
        arm: &'static str,
    ) -> Result<Box<dyn Appliance>, RunError> {
        let mut server = match arm {
            TARE => bench
                .executor
                .start(ServerKind::Image(&self.spec("auto")))?,
            RING_0 => bench.executor.start(ServerKind::Image(&self.spec("0")))?,
            _ => bench.executor.start(ServerKind::Memcached(ITEMS_MIB))?,
        };
        server.wait_serving(BOOT, bench.interrupt)?;
        let fill = mix::fill();
        let schedule = Schedule::one_by_one(fill.len());
        let filled = generator(server.as_ref(), fill).run(schedule, bench.interrupt)?;
        self.check(arm, "filling", &filled);
        Ok(server)
    }

    fn spec(&self, ring: &'static str) -> Spec {
        Spec {
            label: TARE.to_owned(),
            image: self.image.clone(),
            root: None,
            port: 11211,
            cmdline: format!("mem={ITEMS_MIB}"),
            engine: "auto",
            ring,
            idle: "block",
            cpus: 1,
            memory_mib: MEMORY_MIB,
        }
    }

    /// Finds what an arm carries.
    fn calibrate(&mut self, bench: &mut Bench<'_>, arm: &'static str) -> Result<(), RunError> {
        let mut server = self.serve(bench, arm)?;
        let mut generator = generator(server.as_ref(), mix::mixed());
        let load = (CONNECTIONS, self.calibrate);
        let asked = carried(server.as_mut(), &mut generator, load, bench.interrupt)?;
        self.check(arm, "calibrating", &asked.requests);
        let record = json!({"answered": asked.answered, "seconds": asked.seconds});
        self.keep(bench, ArmRound { arm, round: 0 }, "calibration", &record)
    }

    /// Half of what the slower arm carries, commands a second; `None` before it is known.
    fn offered(&self) -> Option<f64> {
        let of = |(arm, _): (&str, _)| self.data.samples.values(&CARRIED.of(arm)).to_vec();
        let slowest = ARMS
            .into_iter()
            .take(COMPARED)
            .flat_map(of)
            .reduce(f64::min)?;
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
            let asked = compact::from_json(record).unwrap_or_default();
            let us = latencies_us(&asked).into_iter();
            self.data.extend(LATENCY, arm, us);
        } else if let Some((answered, seconds)) = number("answered").zip(number("seconds")) {
            self.data.samples.put(CARRIED, arm, answered / seconds);
        }
    }

    /// Keeps a sample of a figure.
    fn value(
        &mut self,
        bench: &mut Bench<'_>,
        metric: Metric,
        arm: &str,
        value: f64,
    ) -> Result<(), RunError> {
        let (round, figure) = (self.round, metric.of(arm));
        let line = json!({"sample": "value", "round": round, "figure": figure, "value": value});
        bench.recorder.sample(&line)?;
        self.data.samples.put(metric, arm, value);
        Ok(())
    }

    /// Open-loop load, then what a command costs.
    fn loaded(&mut self, bench: &mut Bench<'_>, place: ArmRound) -> Result<(), RunError> {
        let arm = place.arm;
        let mut server = self.serve(bench, arm)?;
        let schedule = Schedule::steady(self.offered().unwrap_or(1.0), self.load);
        let cpu = server.cpu()?;
        let asked = generator(server.as_ref(), mix::mixed()).run(schedule, bench.interrupt)?;
        let spent = server.cpu()?.since(&cpu);
        self.keep(bench, place, "load", &compact::to_json(&asked))?;
        self.check(arm, "load", &asked);
        let share = (spent.monitor_ns + spent.helper_ns) as f64 / spent.wall_ns as f64;
        self.value(bench, CPU, arm, share * 100.0)?;
        self.alone(bench, server.as_mut(), arm)?;
        if arm == TARE {
            self.count_all(bench, server.as_mut(), EXITS)?;
        }
        Ok(())
    }

    /// Gets on one connection, one after the other.
    fn alone(
        &mut self,
        bench: &mut Bench<'_>,
        server: &mut dyn Appliance,
        arm: &str,
    ) -> Result<(), RunError> {
        let mode = Connections::KeepAlive(1);
        let mut generator = Generator::of(server.address(), mix::gets(), mode, TIMEOUT);
        generator.run(Schedule::one_by_one(1), bench.interrupt)?;
        let load = (1, self.alone);
        let asked = carried(server, &mut generator, load, bench.interrupt)?;
        self.check(arm, "getting on one connection", &asked.requests);
        let us = latencies_us(&asked.requests);
        self.value(bench, ALONE, arm, asked.rate())?;
        if let Some(summary) = tare_stats::summarize(&us) {
            self.value(bench, ALONE_P50, arm, summary.median)?;
        }
        Ok(())
    }

    /// The appliance in ring 0: its rate on one connection, and what KVM counts where it
    /// executes every instruction itself.
    fn in_ring_0(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let mut server = self.serve(bench, RING_0)?;
        self.alone(bench, server.as_mut(), RING_0)?;
        self.count_all(bench, server.as_mut(), INSNS)
    }

    fn count_all(
        &mut self,
        bench: &mut Bench<'_>,
        server: &mut dyn Appliance,
        what: [[Option<Metric>; 2]; 2],
    ) -> Result<(), RunError> {
        for (exchanges, metrics) in [mix::gets(), mix::sets()].into_iter().zip(what) {
            self.count(bench, server, exchanges, metrics)?;
        }
        Ok(())
    }

    /// Instructions and exits of a command, one after the other on a connection.
    fn count(
        &mut self,
        bench: &mut Bench<'_>,
        server: &mut dyn Appliance,
        exchanges: Vec<Exchange>,
        [insns, exits]: [Option<Metric>; 2],
    ) -> Result<(), RunError> {
        let mut generator = generator(server, exchanges);
        // The first opens the connection, the second runs on a warm one.
        generator.run(Schedule::one_by_one(2), bench.interrupt)?;
        let from = self.quiet(bench, server)?;
        let asked = generator.run(Schedule::one_by_one(self.batch), bench.interrupt)?;
        let to = self.quiet(bench, server)?;
        self.check(TARE, "counting", &asked);
        if let (Some(from), Some(to)) = (from, to) {
            let n = asked.len() as f64;
            if let Some((insns, count)) = insns.zip(instructions_between(&from, &to)) {
                self.value(bench, insns, "", count / n)?;
            }
            if let Some(exits) = exits {
                self.value(bench, exits, "", activity_between(&from, &to) / n)?;
            }
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

    fn check(&mut self, arm: &str, when: &str, asked: &[Request]) {
        let failed = failed(asked, &format!("commands failed while {when}"));
        let sentences = failed.map(|failed| format!("{arm}: {failed}"));
        self.data.failures.extend(sentences);
    }
}

fn generator(server: &dyn Appliance, exchanges: Vec<Exchange>) -> Generator {
    let mode = Connections::KeepAlive(CONNECTIONS);
    Generator::of(server.address(), exchanges, mode, TIMEOUT)
}

impl Experiment for Kv {
    has_data!();

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            "calibrate_ms": self.calibrate.as_millis() as u64,
            "load_ms": self.load.as_millis() as u64, "connections": CONNECTIONS,
            "keys": mix::KEYS, "value_bytes": mix::VALUE, "reads_per_write": mix::READS,
            "arms": ARMS.map(|(_, about)| about),
        })
    }

    /// The capacity of each arm, before the first round, then loads.
    fn turns(&self) -> Vec<Turn> {
        let turn = |index: usize, planned| {
            let arm = ARMS[index % ARMS.len()].0;
            let if_fails = match arm {
                TARE => IfFails::BreakOff,
                _ => IfFails::GoOn,
            };
            let planned = match arm {
                RING_0 => self.alone,
                _ => planned + self.alone,
            };
            Turn::new(index, arm, START + planned).if_fails(if_fails)
        };
        let capacity = [0, 1].map(|arm| {
            let turn = turn(ARMS.len() + arm, self.calibrate);
            let step = format!("capacity of {}", turn.label);
            Turn { step, ..turn }
        });
        let load = |_, arm, _| Some(turn(arm, self.load));
        let loads = rounds(self.turns, &[ARMS.len()], 1, load);
        capacity.into_iter().chain(loads).collect()
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let (arm, _) = ARMS[turn.index % ARMS.len()];
        let round = turn.round;
        self.round = round;
        self.data.samples.enter_round(round);
        if arm == RING_0 {
            self.in_ring_0(bench)
        } else if turn.index < ARMS.len() {
            self.loaded(bench, ArmRound { arm, round })
        } else {
            self.calibrate(bench, arm)
        }
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for (arm, _) in ARMS {
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
        for line in record.of("value") {
            // Earlier programs wrote no round: the n-th sample of an arm is of the n-th round.
            let round = line.get("round").and_then(Value::as_u64).unwrap_or(0);
            self.data.samples.enter_round(round as usize);
            let figure = line.get("figure").and_then(Value::as_str);
            let value = line.get("value").and_then(Value::as_f64);
            if let Some((figure, value)) = figure.zip(value) {
                self.data.samples.add_of(METRICS, figure, value);
            }
        }
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (metric, q) in [(P50, 0.5), (P90, 0.9), (P99, 0.99)] {
            let of = |(arm, _)| metric.quantile(arm, self.data.groups(LATENCY, arm), q);
            figures.extend(ARMS.into_iter().filter_map(of));
        }
        figures.extend(self.data.samples.figures());
        let ratios = self.data.samples.ratios(ALONE_P50.name, [TARE, MEMCACHED]);
        figures.extend(TIMES_MEMCACHED.paired("", &ratios));
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        let carried = [TARE, MEMCACHED].map(|arm| CARRIED.value(figures, arm));
        let is_slower = matches!(carried, [Some(tare), Some(memcached)] if tare < memcached);
        let text = Template::new(include_str!("report.md"), METRICS, figures)
            .maybe("rate", self.offered().map(|rate| number(rate.round())))
            .set("reads", mix::READS)
            .set("keys", mix::KEYS)
            .set("bytes", mix::VALUE)
            .set("connections", CONNECTIONS)
            .set("calibrate_s", number(self.calibrate.as_secs_f64()))
            .set("load_s", number(self.load.as_secs_f64()))
            .set("turns", self.turns)
            .set("batch", self.batch)
            .only_if("slower", is_slower);
        let arms = ARMS.map(|(arm, about)| row([("about", about), ("arm", arm)]));
        let names = [TARE, MEMCACHED];
        let about = "Answer time by percentile";
        let chart = self.data.percentiles(LATENCY, &names, about);
        text.report_with(arms, [text.section("answers", chart)], &self.data.missing)
    }
}
