//! Two threads that answer each other, in several places: what `events` and
//! `tcp-rr` have in common. A [`PingPongSpec`] says what they exchange and where, a
//! [`PingPong`] is one planned weighing of it.
//!
//! Arms in rotated order, each turn a machine of its own. QEMU's firmware takes
//! seconds under emulation: its arms have one turn, in the first round.

mod arm;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;

pub(crate) use self::arm::{Arm, Where};
use super::guest_bench::{self, ArmRound, Data, Exchange};
use super::tcp_rr::GuestFilesError;
use crate::appliance::{GuestSpec, LinuxGuest};
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::{Figure, grouped_quantile};
use crate::goal::Goal;
use crate::report::{ReportText, Template};
use crate::request::Depth;

/// What QEMU's firmware takes under emulation.
const FIRMWARE: Duration = Duration::from_secs(6);

/// Exits that come less often in an exchange are the machine's, not its own.
const RARE: f64 = 0.02;

/// Puts what a Linux guest runs into a directory; gives its place there.
pub(crate) type Fill = fn(&Path) -> Result<&'static str, GuestFilesError>;

/// What is exchanged, and where.
pub(crate) struct PingPongSpec {
    /// Name of the image and of the experiment.
    pub(crate) image: &'static str,
    /// What the image says.
    pub(crate) exchange: Exchange,
    /// The image's word for how many exchanges there are.
    pub(crate) word: &'static str,
    /// Turns of an arm, and exchanges in a turn.
    pub(crate) sizes: fn(Depth) -> (usize, usize),
    /// What a turn is planned to take beside its exchanges.
    pub(crate) turn: Duration,
    /// What an exchange is planned to take.
    pub(crate) each: Duration,
    /// Where.
    pub(crate) arms: &'static [Arm],
    /// The same on the host: times in ns of this many exchanges on this many CPUs.
    pub(crate) host: fn(usize, usize) -> io::Result<Vec<f64>>,
    /// What Linux guests run, if there are any.
    pub(crate) program: Option<Fill>,
    /// Figure of exits by kind, if the machines are watched for them.
    pub(crate) exits: Option<&'static str>,
    /// Figures that are quantiles of the times.
    pub(crate) quantiles: &'static [(&'static str, f64)],
    /// Goals for the figures.
    pub(crate) goals: &'static [Goal],
    /// What they say.
    pub(crate) report_text: fn(&PingPong, &[Figure]) -> ReportText,
}

/// A planned weighing and what it has measured.
pub(crate) struct PingPong {
    pub(crate) kind: &'static PingPongSpec,
    pub(crate) depth: Depth,
    pub(crate) image: String,
    pub(crate) turns: usize,
    pub(crate) exchanges: usize,
    pub(crate) data: Data,
}

impl PingPong {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(kind: &'static PingPongSpec, depth: Depth, image: Option<String>) -> Self {
        let (turns, exchanges) = (kind.sizes)(depth);
        Self {
            kind,
            depth,
            image: image.unwrap_or_else(|| kind.image.to_owned()),
            turns,
            exchanges,
            data: Data::default(),
        }
    }

    /// Names of the arms, in order.
    fn names(&self) -> Vec<&'static str> {
        self.kind.arms.iter().map(|arm| arm.name).collect()
    }

    /// A report's text with the plan's values.
    pub(crate) fn text<'a>(&self, markdown: &str, figures: &'a [Figure]) -> Template<'a> {
        Template::new(markdown, figures)
            .set("image", &self.image)
            .set("turns", self.turns)
            .set("exchanges", self.exchanges)
    }

    /// The times of all arms as a chart.
    pub(crate) fn percentiles(&self, description: &str) -> String {
        let series = self.kind.exchange.series;
        self.data.percentiles(series, &self.names(), description)
    }

    fn turn(&mut self, bench: &mut Bench<'_>, arm: &Arm, round: usize) -> Result<(), RunError> {
        let place = ArmRound {
            arm: arm.name,
            round,
        };
        match arm.place {
            Where::Tare { cpus, words } => {
                let spec = self.machine(place, cpus, words);
                self.guest(bench, place, arm, &spec)
            }
            Where::Qemu { cpus, words } => {
                let spec = GuestSpec {
                    engine: "qemu-kvm",
                    ..self.machine(place, cpus, words)
                };
                let result = self.guest(bench, place, arm, &spec);
                let why = guest_bench::optional(result)?;
                self.data.unavailable(arm.name, why);
                Ok(())
            }
            Where::Linux { cpus } => {
                let result = self.linux(bench, place, arm, cpus);
                let why = guest_bench::optional(result)?;
                self.data.unavailable(arm.name, why);
                Ok(())
            }
            Where::Host { cpus } => self.host(bench, place, arm, cpus),
        }
    }

    /// The host's two threads on a Linux kernel of their own.
    fn linux(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        arm: &Arm,
        cpus: u8,
    ) -> Result<(), RunError> {
        let Some(program) = self.kind.program else {
            return Ok(());
        };
        let root = tempfile::tempdir().map_err(RunError::Root)?;
        // What a recorded guest printed does not depend on what this host has.
        let filled = if bench.executor.is_replay() {
            Ok("")
        } else {
            program(root.path())
        };
        let program = match filled {
            Ok(program) => program,
            Err(error) => {
                self.data.unavailable(arm.name, Some(error.to_string()));
                return Ok(());
            }
        };
        let command = [program, &self.exchanges.to_string(), &cpus.to_string()];
        let spec = GuestSpec {
            // Its own loop takes no longer than a host's where it is not translated.
            engine: match self.data.kvm {
                Kvm::Hardware => "qemu-kvm",
                Kvm::Emulated | Kvm::None => "qemu",
            },
            linux: Some(LinuxGuest {
                root: root.path().to_owned(),
                command: command.map(str::to_owned).into(),
            }),
            ..self.machine(place, cpus, "")
        };
        self.guest(bench, place, arm, &spec)
    }

    fn machine(&self, place: ArmRound, cpus: u8, words: &str) -> GuestSpec {
        let cmdline = format!("{}={} hold {words}", self.kind.word, self.exchanges);
        place.machine(&self.image, cpus, cmdline.trim_end().to_owned())
    }

    fn guest(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        arm: &Arm,
        spec: &GuestSpec,
    ) -> Result<(), RunError> {
        let exchange = &self.kind.exchange;
        exchange.run(&mut self.data, bench, place, spec, arm.suffix)
    }

    /// A turn of each of Tare's arms under watch: exits by kind.
    fn watch(&mut self, bench: &mut Bench<'_>, base: &str) -> Result<(), RunError> {
        for arm in self.kind.arms {
            let Where::Tare { cpus, words } = arm.place else {
                continue;
            };
            let place = ArmRound {
                arm: arm.name,
                round: self.turns,
            };
            bench
                .progress
                .step(&format!("exits by kind: {}", arm.about));
            let words = format!("{words} {}", guest_bench::PAUSE);
            let spec = self.machine(place, cpus, &words);
            let Some(account) = guest_bench::watch(bench, place, &spec)? else {
                let why = "exits by kind: nothing was seen from outside";
                self.data.unavailable(arm.name, Some(why.to_owned()));
                continue;
            };
            let number = self.exchanges as f64 + self.kind.exchange.warm_up;
            for (name, count) in guest_bench::exits(&account) {
                let each = count as f64 / number;
                if each >= RARE {
                    let name = format!("{base}.{name}.{}", arm.suffix);
                    self.data.samples.add(&name, "1", each);
                }
            }
        }
        Ok(())
    }

    fn host(
        &mut self,
        bench: &mut Bench<'_>,
        place: ArmRound,
        arm: &Arm,
        cpus: usize,
    ) -> Result<(), RunError> {
        bench.interrupt.check()?;
        if bench.executor.is_replay() {
            let record = bench
                .executor
                .recorded(place.arm, "host")
                .unwrap_or_default();
            let ns: Vec<f64> = guest_bench::numbers(&record, "exchange_ns").collect();
            let us = ns.into_iter().map(|ns| ns / 1e3);
            self.data.extend(self.kind.exchange.series, place.arm, us);
            return Ok(());
        }
        match (self.kind.host)(self.exchanges, cpus) {
            Ok(times) => {
                guest_bench::keep(bench, place, "host", &json!({"exchange_ns": times}))?;
                let us = times.into_iter().map(|ns| ns / 1e3);
                self.data.extend(self.kind.exchange.series, place.arm, us);
            }
            Err(error) => self.data.unavailable(arm.name, Some(error.to_string())),
        }
        Ok(())
    }

    /// What a turn of an arm is planned to take.
    fn planned_turn(&self, arm: &Arm) -> Duration {
        let exchanges = self.kind.each * u32::try_from(self.exchanges).unwrap_or(u32::MAX);
        match arm.place {
            Where::Tare { .. } => self.kind.turn + exchanges,
            Where::Linux { .. } => FIRMWARE + self.kind.turn,
            Where::Qemu { .. } => FIRMWARE + self.kind.turn + exchanges,
            // Takes next to nothing.
            Where::Host { .. } => Duration::ZERO,
        }
    }

    /// Where the counter or KVM's statistic that a figure is of stands.
    fn rank(&self, figure: &Figure) -> Option<usize> {
        let counters = self.kind.exchange.counters.iter();
        let all = counters.chain(self.kind.exchange.of_kvm);
        all.map(|(_, name)| name)
            .position(|name| figure.name.starts_with(&format!("{name}.")))
    }
}

impl Experiment for PingPong {
    fn planned(&self) -> Duration {
        let turns = |arm: &Arm| u32::try_from(arm.turns(self.turns)).unwrap_or(u32::MAX);
        let arms = self.kind.arms.iter();
        arms.map(|arm| self.planned_turn(arm) * turns(arm)).sum()
    }

    fn plan(&self) -> Value {
        let arms: Vec<_> = self.kind.arms.iter().map(|arm| arm.about).collect();
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            self.kind.word: self.exchanges, "arms": arms,
        })
    }

    fn replan(&mut self, plan: &Value) {
        let number = |name: &str| Some(plan.get(name)?.as_u64()? as usize);
        self.turns = number("turns").unwrap_or(self.turns);
        self.exchanges = number(self.kind.word).unwrap_or(self.exchanges);
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let indices: Vec<usize> = (0..self.kind.arms.len()).collect();
        for round in 0..self.turns {
            for index in guest_bench::rotated(&indices, round) {
                let arm = &self.kind.arms[index];
                if round >= arm.turns(self.turns) {
                    continue;
                }
                guest_bench::announce(bench, round, self.turns, arm.about);
                self.turn(bench, arm, round)?;
                bench.progress.done(self.planned_turn(arm));
            }
        }
        match self.kind.exits {
            Some(base) => self.watch(bench, base),
            None => Ok(()),
        }
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (base, q) in self.kind.quantiles {
            for arm in self.names() {
                let times = self.data.groups(self.kind.exchange.series, arm);
                let name = format!("{base}.{arm}");
                figures.extend(grouped_quantile(&name, "us", times, *q));
            }
        }
        let mut counted = self.data.samples.figures();
        counted.sort_by_key(|figure| self.rank(figure).unwrap_or(usize::MAX));
        figures.extend(counted);
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        self.kind.goals
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        (self.kind.report_text)(self, figures)
    }
}
