//! Interrupt coalescing of a disk (vIC 2011): off against vIC by
//! depth, interleaved, under several loads, and QEMU's own device on the same file.
//!
//! A machine for each arm, load, deeper depth and round; one goes through depths 1 to 8. The guest
//! (`guests/blk`) has a thread for each command in flight and counts interrupts and
//! latencies; CPU time is read from outside around each run, of all threads.
//!
//! Where KVM emulates ring 0, the guest runs in ring 3, natively, but each command costs it some
//! 50 µs of gates and exits, and a file in the host's cache answers as quickly: the device
//! has few commands at a time at any depth, and there is nothing to hold. So the disk takes
//! longer there (`latency_us=`): at each depth so long that it makes some 2,000 reads a second, from which
//! on the rule acts, and the guest is mostly idle. On hardware the disk is as it is. On such a disk
//! a command cannot come sooner for an interrupt less; so two more loads keep the guest busy: a
//! disk that is faster than the guest, with more threads than commands with it
//! ([`Load::Busy`]), and the file as it is ([`Load::Cached`]).
//!
//! A window counts by latencies: the rule decides by what it has seen in some 20 of them.
//!
//! [`database`]: PostgreSQL in a Linux guest in QEMU over `tare blk`.

mod charts;
mod database;
mod metrics;
mod plan;
mod report;
mod rule;
mod sample;
mod snapshot;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::live::{DiskInterval, RatioShare};
use tare_control::settings::SettingsChange;
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Make, Record, ReportText, RunError, Turn, exact,
    has_data, replanned, replanned_ms, rounds,
};
use tare_machines::appliance::{Guest, GuestSpec};
use tempfile::NamedTempFile;

use super::guest_bench::{self, ArmRound};
use metrics::{GOALS, METRICS};
use plan::{Arm, Latency, Load, Plan};
use rule::WorstCase;
use sample::Outside;
use snapshot::{Reading, Snapshots};

/// The image that loads the disk.
const IMAGE: &str = "blk";
/// Longest silence: a run, and QEMU's start where KVM emulates.
const SILENCE: Duration = Duration::from_secs(60);
/// Ring 3 where KVM emulates ring 0.
const RING: &str = "auto";
/// More than a load has arms: turns are numbered by load and arm.
const ARMS: usize = 8;
/// Samples of the decision's time.
const DECISION_SAMPLES: usize = 11;
/// What is measured of the rule itself.
const DECISION: &str = "decision_ns";
const TEXT: &str = "policy_text_bytes";
/// The place of what needs no machine.
const ALONE: ArmRound = ArmRound {
    arm: Arm::Vic.name(),
    round: 0,
};
/// The rule's own longest hold, and the share of a slower disk's latency that takes its place: runs
/// of held completions at a ratio of 8/CIF last about as long.
const LONGEST_HOLD_US: u32 = 1_000;
const VIC_HOLD_SHARE: u32 = 8;
/// Bounds of a disk's latency.
const LATENCY_US: [f64; 2] = [500.0, 500_000.0];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "vic",
    about: "a disk's interrupts: off, coalesced by depth, QEMU's own device",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(Vic::new(depth, image))),
};

/// The experiment, as far as it came.
pub(crate) struct Vic {
    depth: Depth,
    plan: Plan,
    image: String,
    data: Data,
    /// Of a record: its guests ran in ring 0 where KVM emulated it, on a slower disk and with
    /// settings of the rule that were scaled like it.
    is_scaled: bool,
    /// Commands a second that the guest sends where it waits for none.
    pace: Option<f64>,
    /// What the disk did in each of vIC's runs of the first load and round.
    over_time: Vec<DiskInterval>,
    /// R's distribution in them, by ratio from many interrupts to few.
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
            data: Data::default(),
            is_scaled: false,
            pace: None,
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
            self.lacks(bench, why.to_owned())?;
        } else {
            self.worst = rule::worst_cases();
            for case in &self.worst {
                let value = serde_json::to_value(case).unwrap_or_default();
                guest_bench::keep(bench, ALONE, "worst", &value)?;
            }
            for _ in 0..DECISION_SAMPLES {
                self.of_rule(bench, DECISION, rule::decision_ns())?;
            }
        }
        match rule::text_bytes() {
            Ok(bytes) => self.of_rule(bench, TEXT, bytes),
            Err(why) => self.lacks(bench, why),
        }
    }

    /// Adds and keeps a measurement of the rule itself.
    fn of_rule(
        &mut self,
        bench: &mut Bench<'_>,
        name: &'static str,
        value: f64,
    ) -> Result<(), RunError> {
        self.data.samples.add_of(METRICS, name, value);
        guest_bench::keep(bench, ALONE, "rule", &json!({ name: value }))
    }

    /// Notes and keeps what is not measured, and why.
    fn lacks(&mut self, bench: &mut Bench<'_>, why: String) -> Result<(), RunError> {
        guest_bench::keep(bench, ALONE, "missing", &json!(why))?;
        self.data.missing.push(why);
        Ok(())
    }

    /// The deepest queue on a disk that answers at once: what executes guests, and at
    /// what pace a guest sends commands.
    fn calibrate(&mut self, bench: &mut Bench<'_>, scratch: &Path) -> Result<(), RunError> {
        let place = ArmRound {
            arm: Arm::Off.name(),
            round: 0,
        };
        let depth = plan::CIF[plan::CIF.len() - 1];
        let cmdline = format!(
            "{} cif={depth} ms=500 warm_ms=300 hold",
            Load::Random.text()
        );
        let spec = GuestSpec {
            disks: vec![disk(scratch, Arm::Off, 0)],
            ring: RING,
            ..place.machine(&self.image, 1, cmdline)
        };
        let mut guest = bench.executor.measure(&spec)?;
        loop {
            let record = guest.record(SILENCE, bench.interrupt)?;
            if record.get("begin").is_some()
                && let Some(stats) = guest.stats()?
            {
                self.data.kvm = stats.kvm;
            }
            if record.get("completed").is_some() {
                let mut kept = record;
                kept["kvm"] = json!(self.data.kvm);
                guest_bench::keep(bench, place, "pace", &kept)?;
                self.take_pace(&kept);
                return Ok(());
            }
        }
    }

    /// Takes over how many commands a second the guest sent, from its run's line.
    fn take_pace(&mut self, line: &Value) {
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        let pace = number("completed").zip(number("ns"));
        self.pace = pace.map(|(completed, ns)| completed * 1e9 / ns);
    }

    /// The latency that the disk is given under a load of `depths`, microseconds; 0 for its own.
    /// Where KVM emulates: such that the disk is what is waited for, or that the guest is.
    fn latency_under(&self, load: Load, depths: &[u32]) -> u32 {
        let (commands, per_second) = match (self.data.kvm, self.pace, Latency::under(load, depths))
        {
            (Kvm::Emulated, Some(_), Latency::Disk(depth)) => (depth, plan::DISK_IOPS),
            (Kvm::Emulated, Some(pace), Latency::Guest(depth)) if pace > 0.0 => (depth, pace),
            _ => return 0,
        };
        let [least, most] = LATENCY_US;
        (f64::from(commands) / per_second * 1e6).clamp(least, most) as u32
    }

    /// Whether the disk is given a latency.
    fn has_slow_disk(&self) -> bool {
        self.latency_under(Load::Busy, &[64]) > 0
    }

    /// A turn of an arm: a machine, or several.
    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Path,
        load: Load,
        arm: Arm,
        round: usize,
    ) -> Result<(), RunError> {
        for depths in plan::machines(load, arm) {
            let result = self.machine(bench, scratch, (load, depths), arm, round);
            if arm != Arm::Qemu {
                result?;
            } else if let Some(why) = guest_bench::optional(result)? {
                self.lacks(bench, format!("QEMU's own device: {why}"))?;
            }
        }
        Ok(())
    }

    /// A machine from start to end.
    fn machine(
        &mut self,
        bench: &mut Bench<'_>,
        scratch: &Path,
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
            load.text(),
            threads.join(","),
            self.plan.counted_on(latency).as_millis(),
            self.plan.warm_up_on(latency).as_millis(),
            // Commands that begin together complete together forever.
            latency.as_millis().max(1)
        );
        let spec = GuestSpec {
            engine: arm.engine(),
            disks: vec![disk(scratch, arm, latency_us)],
            ring: RING,
            ..place.machine(&self.image, 1, cmdline)
        };
        let mut guest = bench.executor.measure(&spec)?;
        let mut snapshots = Snapshots::default();
        loop {
            let record = guest.record(SILENCE, bench.interrupt)?;
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

    /// Finds out what executes the guest and how the rule is set. On a disk that is given a latency
    /// the longest hold is set to it as the rule's own is to vIC 2011's storage, plain
    /// coalescing's so that its ratio delivers and not its deadline.
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
        self.data.kvm = stats.kvm;
        let mut change = SettingsChange::default();
        let longest_hold_us = match arm {
            Arm::Vic => latency_us / VIC_HOLD_SHARE,
            Arm::Plain => latency_us / 2,
            Arm::Off | Arm::Again | Arm::Qemu => 0,
        };
        if longest_hold_us > LONGEST_HOLD_US {
            let word = format!("disk0.coalesce.longest_hold_us={longest_hold_us}");
            if let Err(error) = change.set(&word) {
                self.data.failures.push(format!("{word}: {error}"));
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
                self.data
                    .failures
                    .push(format!("{about}, {}: {count} {wrong}", arm.name()));
            }
        }
        self.data.samples.enter_round(round);
        sample::add(&mut self.data.samples, load, *arm, line, &outside);
        for interval in outside.intervals {
            sample::append(&mut self.over_time, interval);
        }
        if let Some(shares) = outside.distribution {
            // Earlier records have those of all windows so far.
            if self.is_scaled {
                self.distribution.clear();
            }
            sample::merge(&mut self.distribution, shares);
        }
    }
}

/// The file of the disk that all arms use, without holes, so that reads are reads.
fn scratch(mib: u64) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("tare-vic-")?;
    let chunk: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 8)) as u8).collect();
    for _ in 0..mib {
        file.write_all(&chunk)?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

/// A disk as `tare run` takes it.
fn disk(scratch: &Path, arm: Arm, latency_us: u32) -> String {
    let latency = match latency_us {
        0 => String::new(),
        latency_us => format!(",latency_us={latency_us}"),
    };
    format!("{}{}{latency}", scratch.display(), arm.disk_words())
}

impl Experiment for Vic {
    has_data!();

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
            "loads": Load::ALL.map(|load| json!({"about": load.about(), "words": load.text()})),
            "disk_mib": self.plan.disk_mib,
            "ring": RING,
            "database": self.plan.database.as_ref().map(database::Plan::describe),
        })
    }

    fn was_recorded_in_part(&self) -> bool {
        true
    }

    fn replan(&mut self, plan: &Value) {
        replanned_ms(plan, "counted_ms", &mut self.plan.counted);
        replanned_ms(plan, "warm_up_ms", &mut self.plan.warm_up);
        replanned(plan, "rounds", &mut self.plan.rounds);
        self.is_scaled = plan.get("iops_threshold_where_emulated").is_some();
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
                    let kvm = said.get("kvm").cloned().unwrap_or_default();
                    self.data.kvm = serde_json::from_value(kvm).unwrap_or(self.data.kvm);
                    self.take_pace(said);
                }
                (_, "settings") => {
                    // Once they were changed where KVM emulates, and nowhere else.
                    if self.is_scaled {
                        self.data.kvm = Kvm::Emulated;
                    }
                    self.settings.get_or_insert(said.clone());
                }
                (_, "rule") => {
                    for name in [DECISION, TEXT] {
                        if let Some(value) = said.get(name).and_then(Value::as_f64) {
                            self.data.samples.add_of(METRICS, name, value);
                        }
                    }
                }
                (_, "missing") => self.data.missing.extend(said.as_str().map(str::to_owned)),
                (_, "database" | "database counters") => {
                    database::add(&mut self.data.samples, arm, said);
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

    /// Of each load, its arms in turn.
    fn turns(&self) -> Vec<Turn> {
        let arms = Load::ALL.map(|load| Arm::of(load).len());
        rounds(self.plan.rounds, &arms, 1, |load, arm, _| {
            let (load, index) = (Load::ALL[load], load * ARMS + arm);
            let label = format!("{}, {}", load.about(), Arm::of(load)[arm].name());
            Some(Turn::new(index, &label, Duration::ZERO))
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        self.weigh_rule(bench)?;
        let file = scratch(self.plan.disk_mib).map_err(RunError::Root)?;
        self.calibrate(bench, file.path())?;
        if let Some(plan) = self.plan.database
            && let Some(why) = database::weigh(bench, &plan, self.data.kvm, &mut self.data.samples)?
        {
            self.lacks(bench, format!("the database: {why}"))?;
        }
        let slow_disk = self.has_slow_disk();
        for turn in self.turns() {
            let (load, arm) = (Load::ALL[turn.index / ARMS], turn.index % ARMS);
            if slow_disk || !load.needs_slow_disk() {
                bench.progress.step(&turn.step);
                self.turn(bench, file.path(), load, Arm::of(load)[arm], turn.round)?;
            }
        }
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = sample::figures(&self.data.samples);
        for case in &self.worst {
            let name = format!("worst_cost.{}", case.kind);
            figures.extend(exact(&name, "1", &[case.factor]));
        }
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
