//! Interrupt coalescing of a disk (vIC 2011): off against vIC by
//! depth, interleaved, under several loads, and QEMU's own device on the same file.
//!
//! A machine for each arm, load and round; it goes through the depths. The guest
//! (`guests/blk`) has a thread for each command in flight and counts interrupts and
//! latencies; CPU time is read from outside around each run, of all threads.
//!
//! Where KVM emulates the guest's ring 0, a command costs the guest a millisecond, and
//! a file in the host's cache answers in 50 µs: the device has one command at a time at
//! any depth, and there is nothing to hold. So the disk takes as much longer there as
//! the guest does (`latency_us=`), the rule's times are scaled like it,
//! and both are recorded. On hardware neither is done. On such a disk the guest is
//! mostly idle, and a command cannot come sooner for an interrupt less; so two more
//! loads keep the guest busy: a disk that is faster than the guest, with more threads
//! than commands with it ([`Load::Busy`]), and the file as it is ([`Load::Cached`]).
//!
//! [`database`]: PostgreSQL in a Linux guest in QEMU over `tare blk`.

mod database;
mod goals;
mod plan;
mod report;
mod rule;
mod sample;
mod scratch;
mod snapshot;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::live::{DiskInterval, RatioShare};
use tare_control::settings::SettingsChange;
use tare_control::stats::Kvm;

use super::guest_bench::{self, ArmRound, rotated};
use crate::appliance::{ApplianceError, Guest, GuestSpec};
use crate::bench::{Bench, RunError};
use crate::experiment::{Entry, Experiment, Subject};
use crate::figure::{Figure, Samples, exact};
use crate::metric::Metric;
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::Depth;
use plan::{Arm, Load, Plan};
use rule::WorstCase;
use sample::Outside;
use scratch::Scratch;
use snapshot::{Reading, Snapshots};

/// The image that loads the disk.
const IMAGE: &str = "blk";
/// Longest silence: a run, and QEMU's start where KVM emulates.
const SILENCE: Duration = Duration::from_secs(60);
/// Samples of the decision's time.
const DECISION_SAMPLES: usize = 11;
/// Where KVM emulates the guest: completions a second from which the rule acts, since
/// they are counted in tens and hundreds there.
const EMULATED_IOPS_THRESHOLD: u32 = 10;
/// Commands that the guest could send while the disk has one: half as many again as
/// the deepest queue has, so that it is the disk that is waited for.
const IN_A_LATENCY: f64 = 96.0;
/// Bounds of a disk's latency.
const LATENCY_US: [f64; 2] = [5_000.0, 500_000.0];

/// What it measures.
pub(crate) const METRICS: &[Metric] = &[
    Metric::more("iops", "1/s"),
    Metric::less("interrupts_per_io", "1"),
    Metric::less("cpu_us_per_io", "us"),
    Metric::less("latency_p50_us", "us"),
    Metric::less("latency_p99_us", "us"),
    Metric::less("instructions_per_io", "1"),
    Metric::neither("delivered_per_io", "1"),
    Metric::neither("in_flight", "1"),
    Metric::less("fsync_p50_us", "us"),
    Metric::less("fsync_p99_us", "us"),
    Metric::less("commit_p50_us", "us"),
    Metric::less("iops_off_over_vic", "1"),
    Metric::less("cpu_vic_over_off", "1"),
    Metric::less("latency_vic_over_off", "1"),
    Metric::less("latency_p99_vic_over_off", "1"),
    Metric::neither("iops_off_over_again", "1"),
    Metric::neither("cpu_again_over_off", "1"),
    Metric::neither("latency_again_over_off", "1"),
    Metric::neither("latency_p99_again_over_off", "1"),
    Metric::less("fsync_vic_over_off", "1"),
    Metric::less("fsync_plain_over_off", "1"),
    Metric::more("iops_gain_pct", "%"),
    Metric::more("cpu_gain_pct", "%"),
    Metric::more("instructions_gain_pct", "%"),
    Metric::less("instructions_per_interrupt", "1"),
    Metric::less("interrupt_share_pct", "%"),
    Metric::less("decision_ns", "ns"),
    Metric::less("policy_text_bytes", "B"),
    Metric::less("worst_cost", "1"),
    Metric::more("tps", "1/s"),
    Metric::less("db_latency_ms", "ms"),
    Metric::less("db_interrupts_per_s", "1/s"),
    Metric::less("db_interrupts_per_io", "1"),
    Metric::more("db_iops", "1/s"),
    Metric::neither("db_in_flight", "1"),
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "vic",
    about: "a disk's interrupts: off, coalesced by depth, QEMU's own device",
    subject: Subject::Image,
    metrics: METRICS,
    goals: goals::GOALS,
    make: |depth, image| Box::new(Vic::new(depth, image)),
};

/// The experiment, as far as it came.
pub(crate) struct Vic {
    depth: Depth,
    plan: Plan,
    image: String,
    kvm: Kvm,
    /// Commands a second that the guest sends where it waits for none.
    pace: Option<f64>,
    samples: Samples,
    missing: Vec<String>,
    failures: Vec<String>,
    /// What the disk did in each of vIC's runs of the first load and round.
    over_time: Vec<DiskInterval>,
    /// R's distribution in them.
    distribution: Vec<RatioShare>,
    /// The rule's settings as they were read back.
    settings: Option<Value>,
    /// What the rule costs most, by kind of simulated load.
    worst: Vec<WorstCase>,
}

impl Vic {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        Self {
            depth,
            plan: Plan::of(depth),
            image: image.unwrap_or_else(|| IMAGE.to_owned()),
            kvm: Kvm::None,
            pace: None,
            samples: Samples::default(),
            missing: Vec::new(),
            failures: Vec::new(),
            over_time: Vec::new(),
            distribution: Vec::new(),
            settings: None,
            worst: Vec::new(),
        }
    }

    /// What needs no machine: the rule's own cost, and what it costs at worst.
    fn weigh_rule(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        if cfg!(debug_assertions) {
            let why = "decision_ns and worst_cost: this program is not optimised";
            self.missing.push(why.to_owned());
        } else {
            self.worst = rule::worst_cases();
            for case in &self.worst {
                let value = serde_json::to_value(case).unwrap_or_default();
                let arm = Arm::Vic.name();
                guest_bench::keep(bench, ArmRound { arm, round: 0 }, "worst", &value)?;
            }
            for _ in 0..DECISION_SAMPLES {
                self.samples.add("decision_ns", "ns", rule::decision_ns());
            }
        }
        match rule::text_bytes() {
            Ok(bytes) => self.samples.add("policy_text_bytes", "B", bytes),
            Err(why) => self.missing.push(why),
        }
        Ok(())
    }

    /// The deepest queue on a disk that answers at once: what executes guests, and at
    /// what pace a guest sends commands.
    fn calibrate(&mut self, bench: &mut Bench<'_>, scratch: &Scratch) -> Result<(), RunError> {
        let place = ArmRound {
            arm: Arm::Off.name(),
            round: 0,
        };
        let depth = plan::CIF[plan::CIF.len() - 1];
        let words = format!(
            "{} cif={depth} ms=500 warm_ms=300 hold",
            Load::Random.words()
        );
        let spec = GuestSpec {
            disks: vec![disk(scratch, Arm::Off, 0)],
            ..place.machine(&self.image, 1, words)
        };
        let mut guest = bench.executor.measure(&spec)?;
        while let Some(record) = guest.record(SILENCE, bench.interrupt)? {
            if record.get("begin").is_some()
                && let Some(stats) = guest.stats()?
            {
                self.kvm = stats.kvm;
            }
            if record.get("completed").is_some() {
                guest_bench::keep(bench, place, "pace", &record)?;
                let number = |name: &str| record.get(name).and_then(Value::as_f64);
                let pace = number("completed").zip(number("ns"));
                self.pace = pace.map(|(completed, ns)| completed * 1e9 / ns);
                break;
            }
        }
        Ok(())
    }

    /// The latency that the disk is given, microseconds; 0 for its own. Where KVM
    /// emulates: such that the disk is what is waited for.
    fn latency_us(&self) -> u32 {
        self.time_of(IN_A_LATENCY)
    }

    /// The same under a load of one of `depths`.
    fn latency_under(&self, load: Load, depths: &[u32]) -> u32 {
        match load {
            Load::Cached => 0,
            // This many are with the disk while the guest sends as fast as it can.
            Load::Busy => self.time_of(depths.first().copied().unwrap_or(1).into()),
            _ => self.latency_us(),
        }
    }

    /// The guest's own time for the commands in flight, where KVM emulates it.
    fn time_of(&self, commands: f64) -> u32 {
        match (self.kvm, self.pace) {
            (Kvm::Emulated, Some(pace)) if pace > 0.0 => {
                let [least, most] = LATENCY_US;
                (commands / pace * 1e6).clamp(least, most) as u32
            }
            _ => 0,
        }
    }

    /// What is set of the rule for a disk of such a latency. The longest hold is to it
    /// as the rule's own is to that of vIC 2011's storage.
    fn rule_words(&self, latency_us: u32) -> Vec<String> {
        match latency_us {
            0 if self.latency_us() > 0 => self.rule_words(self.latency_us()),
            0 => Vec::new(),
            latency_us => vec![
                format!("disk0.coalesce.iops_threshold={EMULATED_IOPS_THRESHOLD}"),
                format!("disk0.coalesce.longest_hold_us={}", latency_us / 2),
            ],
        }
    }

    /// A turn of an arm: a machine, or several.
    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Scratch,
        load: Load,
        arm: Arm,
        round: usize,
    ) -> Result<(), RunError> {
        for depths in plan::machines(load, arm) {
            let result = self.machine(bench, scratch, (load, depths), arm, round);
            if arm != Arm::Qemu {
                result?;
            } else if let Some(why) = guest_bench::optional(result)? {
                self.missing.push(format!("QEMU's own device: {why}"));
            }
        }
        Ok(())
    }

    /// A machine from start to end.
    fn machine(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Scratch,
        (load, depths): (Load, &[u32]),
        arm: Arm,
        round: usize,
    ) -> Result<(), RunError> {
        let place = ArmRound {
            arm: arm.name(),
            round,
        };
        let latency_us = self.latency_under(load, depths);
        let threads = depths.iter().map(|cif| load.threads(*cif).to_string());
        let threads: Vec<String> = threads.collect();
        let latency = Duration::from_micros(latency_us.into());
        let cmdline = format!(
            "{} cif={} ms={} warm_ms={} ramp_ms={} hold",
            load.words(),
            threads.join(","),
            self.plan.counted.max(latency * 8).as_millis(),
            (self.plan.warm_up + latency * 2).as_millis(),
            // Commands that begin together complete together forever.
            latency.as_millis()
        );
        let spec = GuestSpec {
            engine: arm.engine(),
            disks: vec![disk(scratch, arm, latency_us)],
            ..place.machine(&self.image, 1, cmdline)
        };
        let mut guest = bench.executor.measure(&spec)?;
        let mut snapshots = Snapshots::default();
        loop {
            let record = guest.record(SILENCE, bench.interrupt)?;
            let Some(record) = record else {
                return Err(ApplianceError::Silent(SILENCE).into());
            };
            guest_bench::keep(bench, place, load.about(), &record)?;
            if record.get("disk").is_some() {
                self.adjust(bench, place, &mut *guest, arm, latency_us)?;
            } else if record.get("begin").is_some() {
                snapshots.begin = Some(Reading::of(&mut *guest)?);
            } else if record.get("end").is_some() {
                snapshots.last = Some(Reading::of(&mut *guest)?);
            } else if record.get("completed").is_some() {
                self.take(bench, place, load, &snapshots, &record)?;
            } else if record.get("done").is_some() {
                bench.recorder.flush()?;
                return Ok(());
            }
        }
    }

    /// Finds out what executes the guest, and sets the rule, and plain coalescing's
    /// longest hold, as they must be there.
    fn adjust(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        guest: &mut dyn Guest,
        arm: Arm,
        latency_us: u32,
    ) -> Result<(), RunError> {
        let Some(stats) = guest.stats()? else {
            return Ok(());
        };
        self.kvm = stats.kvm;
        let words = self.rule_words(latency_us);
        if !matches!(arm, Arm::Vic | Arm::Plain) || words.is_empty() {
            return Ok(());
        }
        let mut change = SettingsChange::default();
        for word in &words {
            if let Err(error) = change.set(word) {
                self.failures.push(format!("{word}: {error}"));
            }
        }
        if let Some(settings) = guest.set(&change)? {
            let value = serde_json::to_value(&settings).unwrap_or_default();
            guest_bench::keep(bench, place, "settings", &value)?;
            if arm == Arm::Vic {
                self.settings.get_or_insert(value);
            }
        }
        Ok(())
    }

    /// Figures of one run.
    fn take(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        load: Load,
        snapshots: &Snapshots,
        line: &Value,
    ) -> Result<(), RunError> {
        let mut outside = snapshots.outside();
        if (load, place.arm, place.round) == (Load::Random, Arm::Vic.name(), 0) {
            outside.intervals = snapshots.intervals();
            outside.distribution = snapshots.distribution();
        }
        let mut kept = serde_json::to_value(&outside).unwrap_or_default();
        kept["cif"] = json!(line.get("cif"));
        kept["counters"] = json!(snapshots.counters());
        guest_bench::keep(bench, place, "outside", &kept)?;
        self.add(load, place.arm, place.round, line, outside);
        Ok(())
    }

    /// Takes one run, measured now or read from a record.
    fn add(&mut self, load: Load, arm: &str, round: usize, line: &Value, outside: Outside) {
        let Some(arm) = Arm::of(load).iter().find(|known| known.name() == arm) else {
            return;
        };
        for wrong in ["errors", "mismatches"] {
            let count = line.get(wrong).and_then(Value::as_u64).unwrap_or(0);
            if count > 0 {
                let about = load.about();
                self.failures
                    .push(format!("{about}, {}: {count} {wrong}", arm.name()));
            }
        }
        self.samples.enter_round(round);
        sample::add(&mut self.samples, load, *arm, line, &outside);
        self.over_time.extend(outside.intervals);
        if let Some(shares) = outside.distribution {
            self.distribution = shares;
        }
    }
}

/// A disk as `tare run` takes it.
fn disk(scratch: &Scratch, arm: Arm, latency_us: u32) -> String {
    let latency = match latency_us {
        0 => String::new(),
        latency_us => format!(",latency_us={latency_us}"),
    };
    format!("{}{}{latency}", scratch.file().display(), arm.disk_words())
}

impl Experiment for Vic {
    fn planned(&self) -> Duration {
        self.plan.took()
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(),
            "image": self.image,
            "rounds": self.plan.rounds,
            "counted_ms": self.plan.counted.as_millis() as u64,
            "warm_up_ms": self.plan.warm_up.as_millis() as u64,
            "cif": plan::CIF,
            "loads": Load::ALL.map(|load| json!({"about": load.about(), "words": load.words()})),
            "disk_mib": self.plan.disk_mib,
            "iops_threshold_where_emulated": EMULATED_IOPS_THRESHOLD,
            "database": self.plan.database.as_ref().map(database::Plan::describe),
        })
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        let mut last: Option<(Load, &Value)> = None;
        for line in &record.lines {
            let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
            let (sample, arm) = (text("sample"), text("arm"));
            let Some(said) = line.get("record") else {
                continue;
            };
            let load = Load::ALL.into_iter().find(|load| load.about() == sample);
            match (load, sample) {
                (Some(load), _) if said.get("completed").is_some() => last = Some((load, said)),
                (_, "pace") => {
                    let number = |name: &str| said.get(name).and_then(Value::as_f64);
                    let pace = number("completed").zip(number("ns"));
                    self.pace = pace.map(|(completed, ns)| completed * 1e9 / ns);
                }
                (_, "settings") => {
                    self.settings.get_or_insert(said.clone());
                }
                (_, "worst") => self.worst.extend(serde_json::from_value(said.clone())),
                (_, "outside") => {
                    let outside = serde_json::from_value(said.clone());
                    if let Some(((load, run), outside)) = last.take().zip(outside.ok()) {
                        let round = line.get("round").and_then(Value::as_u64);
                        self.add(load, arm, round.unwrap_or(0) as usize, run, outside);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        self.weigh_rule(bench)?;
        let scratch = Scratch::make(self.plan.disk_mib).map_err(RunError::Root)?;
        self.calibrate(bench, &scratch)?;
        if let Some(plan) = self.plan.database
            && let Some(why) = database::weigh(bench, &plan, self.kvm, &mut self.samples)?
        {
            self.missing.push(format!("the database: {why}"));
        }
        let slow_disk = self.latency_us() > 0;
        for round in 0..self.plan.rounds {
            for load in Load::ALL {
                if load.needs_slow_disk() && !slow_disk {
                    continue;
                }
                for arm in rotated(Arm::of(load), round) {
                    let what = format!("{}, {}", load.about(), arm.name());
                    guest_bench::announce(bench, round, self.plan.rounds, &what);
                    self.turn(bench, &scratch, load, arm, round)?;
                }
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = sample::figures(&self.samples);
        for case in &self.worst {
            let name = format!("worst_cost.{}", case.kind);
            figures.extend(exact(&name, "1", &[case.factor]));
        }
        figures
    }

    fn failures(&self) -> Vec<String> {
        self.failures.clone()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
