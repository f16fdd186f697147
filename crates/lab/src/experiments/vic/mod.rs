//! Interrupt coalescing of a disk (`SYSTEMS.md`, part 1): off against vIC by
//! depth, interleaved, under four loads, and QEMU's own device on the same file.
//!
//! A machine for each arm, load and round; it goes through the depths. The guest
//! (`guests/blk`) has a thread for each command in flight and counts interrupts and
//! latencies; CPU time is read from outside around each run, of all threads.
//!
//! Where KVM emulates the guest's ring 0, a command costs the guest a millisecond, and
//! a file in the host's cache answers in 50 µs: the device has one command at a time at
//! any depth, and there is nothing to hold. So the disk takes as much longer there as
//! the guest does (`latency_us=`), the rule's times are scaled like it,
//! and both are recorded. On hardware neither is done.
//!
//! [`database`]: PostgreSQL in a Linux guest in QEMU over `tare blk`.

mod database;
mod goals;
mod plan;
mod rule;
mod sample;
mod scratch;
mod story;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::live::{self, DiskInterval, RatioShare};
use tare_control::settings::SettingsChange;
use tare_control::stats::{Kvm, Stats};

use super::inside::{self, Place, rotated};
use super::{Experiment, Story};
use crate::appliance::{ApplianceError, Guest, GuestSpec};
use crate::bench::{Bench, RunError};
use crate::figure::{Figure, Samples};
use crate::goal::Goal;
use crate::observe::CpuReading;
use crate::request::Depth;
use plan::{Arm, Load, Plan};
use sample::Outside;
use scratch::Scratch;

/// The image that loads the disk.
const IMAGE: &str = "blk";
/// Longest silence: a run, and QEMU's start where KVM emulates.
const SILENCE: Duration = Duration::from_secs(60);
/// Samples of the decision's time.
const DECISION_SAMPLES: usize = 11;
/// Where KVM emulates the guest: completions a second from which the rule acts, since
/// they are counted in tens and hundreds there.
const EMULATED_IOPS_THRESHOLD: u32 = 10;
/// Of the deepest queue, so many commands are to be with the disk.
const WITH_THE_DISK: f64 = 48.0;
/// Bounds of a disk's latency.
const LATENCY_US: [f64; 2] = [5_000.0, 500_000.0];

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
        }
    }

    fn weigh_rule(&mut self) {
        if cfg!(debug_assertions) {
            let why = "decision_ns: this program is not optimised";
            self.missing.push(why.to_owned());
        } else {
            for _ in 0..DECISION_SAMPLES {
                self.samples.add("decision_ns", "ns", rule::decision_ns());
            }
        }
        match rule::text_bytes() {
            Ok(bytes) => self.samples.add("policy_text_bytes", "B", bytes),
            Err(why) => self.missing.push(why),
        }
    }

    /// The deepest queue on a disk that answers at once: what executes guests, and at
    /// what pace a guest sends commands.
    fn calibrate(&mut self, bench: &mut Bench<'_>, scratch: &Scratch) -> Result<(), RunError> {
        let place = Place {
            arm: Arm::Off.name(),
            round: 0,
        };
        let depth = plan::CIF[plan::CIF.len() - 1];
        let words = format!(
            "{} cif={depth} ms=500 warm_ms=300 hold",
            Load::Random.words()
        );
        let spec = GuestSpec {
            disks: vec![self.disk(scratch, Arm::Off)],
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
                inside::keep(bench, place, "pace", &record)?;
                let number = |name: &str| record.get(name).and_then(Value::as_f64);
                let pace = number("completed").zip(number("ns"));
                self.pace = pace.map(|(completed, ns)| completed * 1e9 / ns);
                break;
            }
        }
        Ok(())
    }

    /// The latency that the disk is given, microseconds; 0 for its own. Where KVM
    /// emulates: such that of the deepest queue most commands are with the disk.
    fn latency_us(&self) -> u32 {
        match (self.kvm, self.pace) {
            (Kvm::Emulated, Some(pace)) if pace > 0.0 => {
                let [least, most] = LATENCY_US;
                (WITH_THE_DISK / pace * 1e6).clamp(least, most) as u32
            }
            _ => 0,
        }
    }

    /// What is set of the rule for such a disk. The longest hold is to its latency as
    /// the rule's own is to that of the talk's storage.
    fn rule_words(&self) -> Vec<String> {
        match self.latency_us() {
            0 => Vec::new(),
            latency_us => vec![
                format!("disk0.coalesce.iops_threshold={EMULATED_IOPS_THRESHOLD}"),
                format!("disk0.coalesce.longest_hold_us={}", latency_us / 2),
            ],
        }
    }

    /// A disk as `tare run` takes it.
    fn disk(&self, scratch: &Scratch, arm: Arm) -> String {
        let latency_us = match arm {
            // QEMU's device has no such setting.
            Arm::Qemu => 0,
            _ => self.latency_us(),
        };
        let latency = match latency_us {
            0 => String::new(),
            latency_us => format!(",latency_us={latency_us}"),
        };
        format!("{}{}{latency}", scratch.file().display(), arm.disk_words())
    }

    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Scratch,
        load: Load,
        arm: Arm,
        round: usize,
    ) -> Result<(), RunError> {
        let result = self.machine(bench, scratch, load, arm, round);
        if arm != Arm::Qemu {
            return result;
        }
        if let Some(why) = inside::optional(result)? {
            self.missing.push(format!("QEMU's own device: {why}"));
        }
        Ok(())
    }

    /// A machine from start to end.
    fn machine(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Scratch,
        load: Load,
        arm: Arm,
        round: usize,
    ) -> Result<(), RunError> {
        let place = Place {
            arm: arm.name(),
            round,
        };
        let depths = plan::depths(load, arm).iter().map(u32::to_string);
        let depths: Vec<String> = depths.collect();
        let latency = Duration::from_micros(self.latency_us().into());
        let cmdline = format!(
            "{} cif={} ms={} warm_ms={} hold",
            load.words(),
            depths.join(","),
            self.plan.counted.max(latency * 8).as_millis(),
            (self.plan.warm_up + latency * 2).as_millis()
        );
        let spec = GuestSpec {
            engine: arm.engine(),
            disks: vec![self.disk(scratch, arm)],
            ..place.machine(&self.image, 1, cmdline)
        };
        let mut guest = bench.executor.measure(&spec)?;
        let mut around = Around::default();
        loop {
            let record = guest.record(SILENCE, bench.interrupt)?;
            let Some(record) = record else {
                return Err(ApplianceError::Silent(SILENCE).into());
            };
            inside::keep(bench, place, load.about(), &record)?;
            if record.get("begin").is_some() {
                if around.last.is_none() {
                    self.adjust(bench, place, &mut *guest, arm)?;
                }
                around.begin = Some(Reading::of(&mut *guest)?);
            } else if record.get("end").is_some() {
                around.last = Some(Reading::of(&mut *guest)?);
            } else if record.get("completed").is_some() {
                self.take(bench, place, load, &around, &record)?;
            } else if record.get("done").is_some() {
                bench.recorder.flush()?;
                return Ok(());
            }
        }
    }

    /// Finds out what executes the guest, and sets vIC as it must be there.
    fn adjust(
        &mut self,
        bench: &mut Bench<'_>,
        place: Place,
        guest: &mut dyn Guest,
        arm: Arm,
    ) -> Result<(), RunError> {
        let Some(stats) = guest.stats()? else {
            return Ok(());
        };
        self.kvm = stats.kvm;
        let words = self.rule_words();
        if arm != Arm::Vic || words.is_empty() {
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
            inside::keep(bench, place, "settings", &value)?;
            self.settings = Some(value);
        }
        Ok(())
    }

    /// Figures of one run.
    fn take(
        &mut self,
        bench: &mut Bench<'_>,
        place: Place,
        load: Load,
        around: &Around,
        line: &Value,
    ) -> Result<(), RunError> {
        let Some(arm) = Arm::of(load).iter().find(|arm| arm.name() == place.arm) else {
            return Ok(());
        };
        let outside = around.outside();
        let kept = json!({"cif": line.get("cif"), "cpu": outside.cpu,
            "instructions": outside.instructions, "delivered_per_io": outside.ratio});
        inside::keep(bench, place, "outside", &kept)?;
        for wrong in ["errors", "mismatches"] {
            let count = line.get(wrong).and_then(Value::as_u64).unwrap_or(0);
            if count > 0 {
                let about = load.about();
                self.failures
                    .push(format!("{about}, {}: {count} {wrong}", arm.name()));
            }
        }
        sample::add(&mut self.samples, load, *arm, line, &outside);
        if load == Load::Random && *arm == Arm::Vic && place.round == 0 {
            self.over_time.extend(around.intervals());
            if let Some(shares) = around.distribution() {
                self.distribution = shares;
            }
        }
        Ok(())
    }
}

/// What is read at an edge of a run.
struct Reading {
    cpu: CpuReading,
    stats: Option<Stats>,
}

impl Reading {
    fn of(guest: &mut dyn Guest) -> Result<Self, RunError> {
        let stats = guest.stats()?;
        Ok(Self {
            cpu: guest.cpu()?,
            stats,
        })
    }

    fn instructions(&self) -> Option<u64> {
        let vcpus = self.stats.as_ref()?.vcpus.iter();
        let counts = vcpus.filter_map(|vcpu| vcpu.kvm.get("insn_emulation"));
        Some(counts.sum())
    }
}

/// The edges of a run.
#[derive(Default)]
struct Around {
    begin: Option<Reading>,
    last: Option<Reading>,
}

impl Around {
    fn outside(&self) -> Outside {
        let (Some(begin), Some(end)) = (&self.begin, &self.last) else {
            return Outside::default();
        };
        let instructions = begin.instructions().zip(end.instructions());
        let instructions = instructions.map(|(then, now)| now.saturating_sub(then));
        Outside {
            cpu: Some(end.cpu.since(&begin.cpu)),
            instructions: instructions.filter(|count| *count > 0),
            ratio: self.intervals().first().map(|interval| interval.r),
        }
    }

    fn stats(&self) -> Option<(&Stats, &Stats)> {
        let (begin, end) = (self.begin.as_ref()?, self.last.as_ref()?);
        begin.stats.as_ref().zip(end.stats.as_ref())
    }

    fn intervals(&self) -> Vec<DiskInterval> {
        let intervals = self.stats().map(|(begin, end)| live::intervals(begin, end));
        let busy = intervals.into_iter().flatten();
        busy.filter(|interval| interval.completions > 0).collect()
    }

    /// Since the machine began: it went through all depths.
    fn distribution(&self) -> Option<Vec<RatioShare>> {
        let (_, end) = self.stats()?;
        let (_, disk) = live::disks(end).next()?;
        Some(live::distribution(None, disk))
    }
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
            "database": self.plan.database.as_ref().map(database::Plan::told),
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        self.weigh_rule();
        let scratch = Scratch::make(self.plan.disk_mib).map_err(RunError::Root)?;
        self.calibrate(bench, &scratch)?;
        if let Some(plan) = self.plan.database
            && let Some(why) = database::weigh(bench, &plan, self.kvm, &mut self.samples)?
        {
            self.missing.push(format!("the database: {why}"));
        }
        for round in 0..self.plan.rounds {
            for load in Load::ALL {
                for arm in rotated(Arm::of(load), round) {
                    let what = format!("{}, {}", load.about(), arm.name());
                    inside::announce(bench, round, self.plan.rounds, &what);
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
        sample::figures(&self.samples)
    }

    fn goals(&self) -> &'static [Goal] {
        goals::GOALS
    }

    fn failures(&self) -> Vec<String> {
        self.failures.clone()
    }

    fn report(&self, figures: &[Figure]) -> Story {
        story::story(self, figures)
    }
}
